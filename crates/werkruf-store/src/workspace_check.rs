//! Checks the values and references of an import. Independent of the database: the rows a tenant already has come in as [`Stored`].

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use werkruf_contract::Uuid;

use crate::{Branch, ImportFault, NewArticle, NewRequest, NewTask, NewUser, NewWorktime, RoleWithPermissions, WorkspaceBatch};

/// The most faults in a report.
const MOST: usize = 100;

const REQUEST_STATUS: [&str; 4] = ["open", "in_progress", "done", "cancelled"];
const TASK_STATUS: [&str; 5] = ["open", "in_progress", "improval", "quality_control", "done"];

/// Faults in the order they were found, up to [`MOST`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(Vec<ImportFault>);

impl Faults {
    pub(crate) fn push(&mut self, path: String, message: impl Into<String>) {
        if self.0.len() < MOST {
            self.0.push(ImportFault { path, line: None, message: message.into() });
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.truncate(MOST);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_list(self) -> Vec<ImportFault> {
        self.0
    }
}

/// A row whose values can be checked without other rows.
pub(crate) trait Checked {
    fn id(&self) -> i64;
    fn check(&self, path: &str, faults: &mut Faults);
}

/// The ids that the tenant already has.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) branches: HashSet<i64>,
    pub(crate) roles: HashSet<i64>,
    pub(crate) users: HashSet<i64>,
    /// The user of each external id.
    pub(crate) external_ids: HashMap<String, i64>,
}

/// Checks that a tenant of this name may be created.
pub(crate) fn check_new_tenant(name: &str, faults: &mut Faults) {
    if Uuid::try_parse(name).is_ok() {
        faults.push("/tenant".to_owned(), format!("there is no tenant with the id {name}; a new tenant is named by its slug"));
    } else if !is_slug(name) {
        let form = "takes a slug: 1 to 64 of a-z, 0-9, -, _ and ., beginning with a letter or digit";
        faults.push("/tenant".to_owned(), form);
    }
}

/// Checks everything that does not need the database.
pub(crate) fn check_values(batch: &WorkspaceBatch) -> Faults {
    let mut faults = Faults::default();
    check_list("branches", &batch.branches, &mut faults);
    check_list("roles", &batch.roles, &mut faults);
    check_list("users", &batch.users, &mut faults);
    check_list("requests", &batch.requests, &mut faults);
    check_list("tasks", &batch.tasks, &mut faults);
    check_list("worktimes", &batch.worktimes, &mut faults);
    check_list("cerebro_articles", &batch.cerebro_articles, &mut faults);
    faults
}

fn check_list<T: Checked>(name: &str, rows: &[T], faults: &mut Faults) {
    let mut first_use: HashMap<i64, usize> = HashMap::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let path = format!("/{name}/{at}");
        row.check(&path, faults);
        if let Some(first) = first_use.get(&row.id()) {
            faults.push(format!("{path}/id"), format!("{} is the id of /{name}/{first} already", row.id()));
        } else {
            first_use.insert(row.id(), at);
        }
    }
}

/// Checks that every referenced row exists, in the file or in the tenant.
pub(crate) fn check_references(batch: &WorkspaceBatch, mut stored: Stored, faults: &mut Faults) {
    check_external_ids(batch, &stored.external_ids, faults);
    stored.branches.extend(batch.branches.iter().map(|row| row.id));
    stored.roles.extend(batch.roles.iter().map(|row| row.id));
    stored.users.extend(batch.users.iter().map(|row| row.id));
    let mut known = |kind: &str, ids: &HashSet<i64>, id: i64, path: String| {
        if !ids.contains(&id) {
            faults.push(path, format!("there is no {kind} {id}, neither in the file nor in the tenant"));
        }
    };
    let Stored { branches, roles, users, .. } = &stored;
    for (at, row) in batch.users.iter().enumerate() {
        if let Some(id) = row.branch_id {
            known("branch", branches, id, format!("/users/{at}/branch_id"));
        }
        for (place, id) in row.role_ids.iter().enumerate() {
            known("role", roles, *id, format!("/users/{at}/role_ids/{place}"));
        }
    }
    for (at, row) in batch.requests.iter().enumerate() {
        known("user", users, row.requester_id, format!("/requests/{at}/requester_id"));
        if let Some(id) = row.responsible_id {
            known("user", users, id, format!("/requests/{at}/responsible_id"));
        }
        known("branch", branches, row.branch_id, format!("/requests/{at}/branch_id"));
    }
    for (at, row) in batch.tasks.iter().enumerate() {
        known("user", users, row.user_id, format!("/tasks/{at}/user_id"));
        known("branch", branches, row.branch_id, format!("/tasks/{at}/branch_id"));
    }
    for (at, row) in batch.worktimes.iter().enumerate() {
        known("user", users, row.user_id, format!("/worktimes/{at}/user_id"));
        known("branch", branches, row.branch_id, format!("/worktimes/{at}/branch_id"));
    }
    for (at, row) in batch.cerebro_articles.iter().enumerate() {
        if let Some(id) = row.branch_id {
            known("branch", branches, id, format!("/cerebro_articles/{at}/branch_id"));
        }
    }
}

/// An external id belongs to one user. A user in the file gives up their stored external id.
fn check_external_ids(batch: &WorkspaceBatch, stored: &HashMap<String, i64>, faults: &mut Faults) {
    let replaced: HashSet<i64> = batch.users.iter().map(|user| user.id).collect();
    let mut taken: HashMap<&str, i64> =
        stored.iter().filter(|(_, id)| !replaced.contains(id)).map(|(name, id)| (name.as_str(), *id)).collect();
    for (at, user) in batch.users.iter().enumerate() {
        let Some(name) = user.external_id.as_deref() else { continue };
        match taken.get(name) {
            Some(other) if *other != user.id => {
                faults.push(format!("/users/{at}/external_id"), format!("\"{name}\" is that of user {other} already"));
            }
            Some(_) => {}
            None => {
                taken.insert(name, user.id);
            }
        }
    }
}

/// Whether the text may be the slug of a new tenant.
pub(crate) fn is_slug(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&text.len()) && text.chars().all(fits) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn filled(text: &str, path: &str, field: &str, faults: &mut Faults) {
    if text.trim().is_empty() {
        faults.push(format!("{path}/{field}"), "is empty");
    }
}

fn status(value: &str, known: &[&str], path: &str, faults: &mut Faults) {
    if !known.contains(&value) {
        faults.push(format!("{path}/status"), format!("there is no status \"{value}\"; take one of {}", known.join(", ")));
    }
}

fn zone(name: &str, path: &str, faults: &mut Faults) {
    if TimeZone::get(name).is_err() {
        faults.push(format!("{path}/time_zone"), format!("there is no time zone \"{name}\"; write one such as Europe/Madrid"));
    }
}

fn day(date: Option<Date>, path: &str, field: &str, faults: &mut Faults) {
    if date.is_some_and(|date| date.year() < 1) {
        faults.push(format!("{path}/{field}"), "lies before the year 1");
    }
}

fn moment(time: Option<Timestamp>, path: &str, field: &str, faults: &mut Faults) {
    day(time.map(|time| TimeZone::UTC.to_datetime(time).date()), path, field, faults);
}

/// Whether the text has the form of a BCP 47 language tag.
fn is_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    (2..=8).contains(&language.len())
        && language.chars().all(|c| c.is_ascii_alphabetic())
        && parts.all(|part| (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric()))
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(who, host)| !who.is_empty() && !host.is_empty() && !host.contains('@'))
        && !text.chars().any(char::is_whitespace)
}

fn is_phone(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let number = text.strip_prefix('+').unwrap_or(text);
    (5..=15).contains(&digits) && number.chars().all(|c| c.is_ascii_digit() || matches!(c, ' ' | '-' | '(' | ')' | '.' | '/'))
}

impl Checked for Branch {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.name, path, "name", faults);
        zone(&self.time_zone, path, faults);
    }
}

impl Checked for RoleWithPermissions {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.name, path, "name", faults);
        for (at, permission) in self.permissions.iter().enumerate() {
            let path = format!("{path}/permissions/{at}");
            filled(&permission.entity, &path, "entity", faults);
            filled(&permission.entity_type, &path, "entity_type", faults);
        }
    }
}

impl Checked for NewUser {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.first_name, path, "first_name", faults);
        if let Some(email) = self.email.as_deref().filter(|text| !is_email(text)) {
            faults.push(format!("{path}/email"), format!("\"{email}\" is no e-mail address; write name@host, or null"));
        }
        if let Some(phone) = self.phone.as_deref().filter(|text| !is_phone(text)) {
            faults.push(format!("{path}/phone"), format!("\"{phone}\" is no phone number; write one such as +34600111222, or null"));
        }
        for (field, name) in [("whatsapp_user_id", &self.whatsapp_user_id), ("external_id", &self.external_id)] {
            if let Some(name) = name {
                filled(name, path, field, faults);
            }
        }
        if !is_tag(&self.locale) {
            faults.push(format!("{path}/locale"), format!("\"{}\" is no language tag; write one such as de-DE", self.locale));
        }
        if let Some(name) = &self.time_zone {
            zone(name, path, faults);
        }
    }
}

impl Checked for NewRequest {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.title, path, "title", faults);
        status(&self.status, &REQUEST_STATUS, path, faults);
        day(self.due_date, path, "due_date", faults);
        moment(self.created_at, path, "created_at", faults);
    }
}

impl Checked for NewTask {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.title, path, "title", faults);
        status(&self.status, &TASK_STATUS, path, faults);
        day(self.due_date, path, "due_date", faults);
        moment(self.created_at, path, "created_at", faults);
    }
}

impl Checked for NewWorktime {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        moment(Some(self.started_at), path, "started_at", faults);
        if self.ended_at.is_some_and(|end| end < self.started_at) {
            faults.push(format!("{path}/ended_at"), format!("lies before started_at ({})", self.started_at));
        }
    }
}

impl Checked for NewArticle {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        filled(&self.title, path, "title", faults);
        for (at, tag) in self.tags.iter().enumerate() {
            filled(tag, path, &format!("tags/{at}"), faults);
        }
    }
}
