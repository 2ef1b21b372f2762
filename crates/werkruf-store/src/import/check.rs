//! Checks the values and references of an import. Independent of the database: the rows a tenant already has come in as [`Stored`].

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use werkruf_contract::{Uuid, is_locale};

use super::{ImportBatch, ImportFault};
use crate::{Branch, MAX_PERSON_ID, NewUser, RoleWithPermissions, StoreError, canonical_phone};

/// The most faults in a report.
const MOST: usize = 100;

/// Faults in the order they were found, up to [`MOST`].
#[derive(Debug, Clone, Default)]
pub struct Faults(Vec<ImportFault>);

impl Faults {
    pub fn push(&mut self, path: String, message: impl Into<String>) {
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
pub trait Checked {
    fn id(&self) -> i64;
    fn check(&self, path: &str, faults: &mut Faults);
}

/// The ids that the tenant already has.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) ids: Known,
    /// The user of each external id.
    pub(crate) external_ids: HashMap<String, i64>,
}

/// The ids to which rows of the file may refer.
#[derive(Debug, Default)]
pub struct Known {
    pub(crate) branches: HashSet<i64>,
    pub(crate) roles: HashSet<i64>,
    pub(crate) users: HashSet<i64>,
}

impl Known {
    /// Checks a reference to a branch.
    pub fn branch(&self, id: i64, path: String, faults: &mut Faults) {
        require("branch", &self.branches, id, path, faults);
    }

    /// Checks a reference to a user.
    pub fn user(&self, id: i64, path: String, faults: &mut Faults) {
        require("user", &self.users, id, path, faults);
    }

    fn role(&self, id: i64, path: String, faults: &mut Faults) {
        require("role", &self.roles, id, path, faults);
    }
}

fn require(kind: &str, ids: &HashSet<i64>, id: i64, path: String, faults: &mut Faults) {
    if !ids.contains(&id) {
        faults.push(path, format!("there is no {kind} {id}, neither in the file nor in the tenant"));
    }
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

/// Checks everything that does not need the database. A large batch takes a while, so the check runs on a thread of its own.
pub(crate) async fn check_values(batch: ImportBatch) -> Result<(Faults, ImportBatch), StoreError> {
    let checked = tokio::task::spawn_blocking(move || (value_faults(&batch), batch)).await;
    checked.map_err(|error| StoreError::Broken(format!("an import was not checked: {error}")))
}

fn value_faults(batch: &ImportBatch) -> Faults {
    let mut faults = Faults::default();
    check_list("branches", &batch.branches, &mut faults);
    check_list("roles", &batch.roles, &mut faults);
    check_list("users", &batch.users, &mut faults);
    batch.of_modules.iter().for_each(|rows| rows.check_values(&mut faults));
    faults
}

/// Checks the values of each row, and that no two rows have the same id.
pub fn check_list<T: Checked>(name: &str, rows: &[T], faults: &mut Faults) {
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
pub(crate) fn check_references(batch: &ImportBatch, stored: Stored, faults: &mut Faults) {
    check_external_ids(batch, &stored.external_ids, faults);
    let mut known = stored.ids;
    known.branches.extend(batch.branches.iter().map(|row| row.id));
    known.roles.extend(batch.roles.iter().map(|row| row.id));
    known.users.extend(batch.users.iter().map(|row| row.id));
    for (at, row) in batch.users.iter().enumerate() {
        if let Some(id) = row.branch_id {
            known.branch(id, format!("/users/{at}/branch_id"), faults);
        }
        for (place, id) in row.role_ids.iter().enumerate() {
            known.role(*id, format!("/users/{at}/role_ids/{place}"), faults);
        }
    }
    batch.of_modules.iter().for_each(|rows| rows.check_references(&known, faults));
}

/// An external id belongs to one user. A user in the file gives up their stored external id.
fn check_external_ids(batch: &ImportBatch, stored: &HashMap<String, i64>, faults: &mut Faults) {
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
fn is_slug(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&text.len()) && text.chars().all(fits) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Checks that a text is not empty.
pub fn filled(text: &str, path: &str, field: &str, faults: &mut Faults) {
    if text.trim().is_empty() {
        faults.push(format!("{path}/{field}"), "is empty");
    }
}

fn small(id: i64, path: &str, faults: &mut Faults) {
    if id > MAX_PERSON_ID {
        faults.push(format!("{path}/id"), format!("takes a number up to {MAX_PERSON_ID}, not {id}"));
    }
}

fn zone(name: &str, path: &str, faults: &mut Faults) {
    if TimeZone::get(name).is_err() {
        faults.push(format!("{path}/time_zone"), format!("there is no time zone \"{name}\"; write one such as Europe/Madrid"));
    }
}

/// Checks that a date has a year of four digits.
pub fn day(date: Option<Date>, path: &str, field: &str, faults: &mut Faults) {
    if date.is_some_and(|date| date.year() < 1) {
        faults.push(format!("{path}/{field}"), "lies before the year 1");
    }
}

/// Checks that a time has a year of four digits.
pub fn moment(time: Option<Timestamp>, path: &str, field: &str, faults: &mut Faults) {
    day(time.map(|time| TimeZone::UTC.to_datetime(time).date()), path, field, faults);
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
        small(self.id, path, faults);
        filled(&self.name, path, "name", faults);
        zone(&self.time_zone, path, faults);
    }
}

impl Checked for RoleWithPermissions {
    fn id(&self) -> i64 {
        self.id
    }

    fn check(&self, path: &str, faults: &mut Faults) {
        small(self.id, path, faults);
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
        small(self.id, path, faults);
        filled(&self.first_name, path, "first_name", faults);
        if let Some(email) = self.email.as_deref().filter(|text| !is_email(text)) {
            faults.push(format!("{path}/email"), format!("\"{email}\" is no e-mail address; write name@host, or null"));
        }
        if let Some(phone) = &self.phone {
            let path = format!("{path}/phone");
            if !is_phone(phone) {
                faults.push(path, format!("\"{phone}\" is no phone number; write one such as +34600111222, or null"));
            } else if canonical_phone(phone).is_none() {
                faults.push(path, format!("\"{phone}\" has no country code; write the number with the country code, such as +34600111222"));
            }
        }
        for (field, name) in [("whatsapp_user_id", &self.whatsapp_user_id), ("external_id", &self.external_id)] {
            if let Some(name) = name {
                filled(name, path, field, faults);
            }
        }
        if !is_locale(&self.locale) {
            faults.push(format!("{path}/locale"), format!("\"{}\" is no language tag; write one such as de-DE", self.locale));
        }
        if let Some(name) = &self.time_zone {
            zone(name, path, faults);
        }
    }
}
