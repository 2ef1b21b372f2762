//! Users, roles and branches one by one, as the API manages them.
//!
//! Invariants: an edit is checked like a row of an import file and written with its audit entry in one transaction, or not at all; a user
//! is never deleted here, because other rows name them, but made inactive. What is the same for both databases is here.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::Uuid;

use crate::import::{Checked, Faults, Fields, ImportFault, Object, Row, in_order};
use crate::{Act, Author, Branch, Modules, NewUser, Order, PeopleBatch, Recorder, RoleWithPermissions, StoreError, StoreFuture};

/// The largest id: programs that read JSON numbers as floats know no larger whole number.
pub const MAX_PERSON_ID: i64 = 1 << 53;
/// The longest text of a field, in characters.
const MAX_TEXT: usize = 255;
/// The most roles of a user, and the most permissions of a role.
const MAX_LIST: usize = 1000;

/// Which list a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeopleKind {
    User,
    Role,
    Branch,
}

impl PeopleKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Role => "role",
            Self::Branch => "branch",
        }
    }

    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::User => "users",
            Self::Role => "roles",
            Self::Branch => "branches",
        }
    }

    /// A row from its JSON.
    pub(crate) fn parse(self, text: &str) -> Result<PeopleRow, StoreError> {
        let row = match self {
            Self::User => serde_json::from_str(text).map(PeopleRow::User),
            Self::Role => serde_json::from_str(text).map(PeopleRow::Role),
            Self::Branch => serde_json::from_str(text).map(PeopleRow::Branch),
        };
        row.map_err(|error| StoreError::Broken(error.to_string()))
    }
}

/// A row of one of the lists. Its JSON has the fields of an import file; that of a user also has `active`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PeopleRow {
    User(NewUser),
    Role(RoleWithPermissions),
    Branch(Branch),
}

/// A page of a list that is ordered by number.
#[derive(Debug, Clone, Copy)]
pub struct NumberPage {
    /// The last id of the previous page.
    pub after: Option<i64>,
    pub limit: u32,
    pub order: Order,
    /// The page ends with the row that makes its rows this large together.
    pub max_bytes: usize,
}

impl NumberPage {
    /// The rows from their JSON, and whether there may be more. No text after the one that fills the page counts.
    pub(crate) fn read(&self, kind: PeopleKind, texts: &[String]) -> Result<PeoplePage, StoreError> {
        let rows: Vec<PeopleRow> = texts.iter().map(|text| kind.parse(text)).collect::<Result<_, _>>()?;
        let bytes: usize = texts.iter().map(String::len).sum();
        let is_full = bytes >= self.max_bytes || u32::try_from(rows.len()).is_ok_and(|count| count >= self.limit);
        Ok(PeoplePage { rows, is_full })
    }
}

/// Rows, and whether there may be more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeoplePage {
    pub rows: Vec<PeopleRow>,
    pub is_full: bool,
}

/// A change of one row. `fields` is a JSON object as the client sent it.
#[derive(Debug, Clone)]
pub enum PeopleEdit {
    /// Without an id in the fields the row gets the next free one.
    Create { fields: String },
    /// Fields that are not named stay.
    Change { id: i64, fields: String },
    /// Makes a user inactive; deletes a role or a branch.
    Delete { id: i64 },
}

/// Why a row was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditRefusal {
    /// There is no such row.
    Unknown,
    /// The id of a new row belongs to another.
    Taken(i64),
    /// Another role has the name.
    NameTaken(i64),
    InUse(Uses),
    Faults(Vec<ImportFault>),
}

/// What names a role or branch, so that it is not deleted, or a role not renamed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Users who have it, also by a valid token. A role that is renamed stays that of its users; only tokens name it.
    pub users: i64,
    /// Tables of modules with rows that name it.
    pub tables: Vec<&'static str>,
}

impl Uses {
    pub(crate) fn check(self) -> Result<(), EditRefusal> {
        if self == Self::default() { Ok(()) } else { Err(EditRefusal::InUse(self)) }
    }
}

impl EditRefusal {
    pub(crate) fn no_free_id() -> Self {
        let message = "the largest id is taken, so there is no next one; give an id".to_owned();
        Self::Faults(vec![ImportFault { path: "/id".to_owned(), line: None, message }])
    }
}

/// Users, roles and branches, one by one or as a batch.
pub trait ManagePeople: Send + Sync {
    fn people(&self, tenant_id: Uuid, kind: PeopleKind, page: NumberPage) -> StoreFuture<'_, PeoplePage>;
    fn people_row(&self, tenant_id: Uuid, kind: PeopleKind, id: i64) -> StoreFuture<'_, Option<PeopleRow>>;
    /// Makes, changes or deletes one row, and returns it as it is then; a deleted row as it was.
    fn edit_people(
        &self,
        tenant_id: Uuid,
        kind: PeopleKind,
        edit: PeopleEdit,
        by: Author,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<PeopleRow, EditRefusal>>;
    /// Writes branches, roles and users in one transaction. A row with the same id is replaced; a replaced user loses the roles from a token.
    fn put_people(&self, tenant_id: Uuid, batch: PeopleBatch) -> StoreFuture<'_, ()>;
}

/// An edit with everything that a transaction needs to make it.
pub(crate) struct EditRequest {
    pub(crate) tenant_id: Uuid,
    pub(crate) kind: PeopleKind,
    pub(crate) edit: PeopleEdit,
    pub(crate) by: Author,
    pub(crate) now: Timestamp,
    pub(crate) recorder: Recorder,
    pub(crate) modules: Modules,
}

/// What an edit does with the row that it found.
pub(crate) enum EditStep {
    Refuse(EditRefusal),
    /// The row is already as it should be.
    Keep(PeopleRow),
    Write {
        before: Option<Box<PeopleRow>>,
        after: PeopleRow,
    },
    Remove(PeopleRow),
}

impl PeopleEdit {
    /// The id of the row; `None` for a new row that names none.
    pub(crate) fn id(&self) -> Result<Option<i64>, EditRefusal> {
        match self {
            Self::Change { id, .. } | Self::Delete { id } => Ok(Some(*id)),
            Self::Create { fields } => {
                let mut faults = Faults::default();
                let id = object(fields, &mut faults).and_then(|given| Fields::new(given, "", &mut faults).may("id", &mut faults));
                if let Some(Some(number)) = id.filter(|id| id.is_some_and(|number| !(1..=MAX_PERSON_ID).contains(&number))) {
                    faults.push("/id".to_owned(), format!("takes a number from 1 to {MAX_PERSON_ID}, not {number}"));
                }
                if faults.is_empty() { Ok(id.flatten()) } else { Err(EditRefusal::Faults(faults.into_list())) }
            }
        }
    }

    /// Decides by the row with this id. References are not checked yet.
    pub(crate) fn step(&self, kind: PeopleKind, id: i64, stored: Option<PeopleRow>) -> Result<EditStep, StoreError> {
        let (fields, before) = match (self, stored) {
            (Self::Create { .. }, Some(_)) => return Ok(EditStep::Refuse(EditRefusal::Taken(id))),
            (Self::Change { .. } | Self::Delete { .. }, None) => return Ok(EditStep::Refuse(EditRefusal::Unknown)),
            (Self::Delete { .. }, Some(PeopleRow::User(user))) => {
                let before = PeopleRow::User(user.clone());
                let after = PeopleRow::User(NewUser { active: Some(false), ..user });
                return Ok(if before == after { EditStep::Keep(after) } else { EditStep::Write { before: Some(Box::new(before)), after } });
            }
            (Self::Delete { .. }, Some(row)) => return Ok(EditStep::Remove(row)),
            (Self::Create { fields }, None) => (fields, None),
            (Self::Change { fields, .. }, Some(row)) => (fields, Some(row)),
        };
        Ok(match read(kind, id, before.as_ref(), fields)? {
            Err(faults) => EditStep::Refuse(EditRefusal::Faults(faults.into_list())),
            Ok(after) if before.as_ref() == Some(&after) => EditStep::Keep(after),
            Ok(after) => EditStep::Write { before: before.map(Box::new), after },
        })
    }
}

/// The rows that a row refers to, as far as they exist.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) branch: bool,
    pub(crate) roles: HashSet<i64>,
    /// Another user with the external id.
    pub(crate) external_id_of: Option<i64>,
    /// Another role with the name.
    pub(crate) name_of: Option<i64>,
}

/// The id after the largest one.
pub(crate) fn next_id(largest: Option<i64>) -> Option<i64> {
    Some(largest.unwrap_or(0).max(0) + 1).filter(|id| *id <= MAX_PERSON_ID)
}

/// The name that a role loses by an edit.
pub(crate) fn lost_name<'a>(before: Option<&'a PeopleRow>, after: &PeopleRow) -> Option<&'a str> {
    match (before?, after) {
        (PeopleRow::Role(before), PeopleRow::Role(after)) if before.name != after.name => Some(&before.name),
        _ => None,
    }
}

/// Whether an edit gives a user other roles. Roles from a token stay unless it does.
pub(crate) fn has_other_roles(before: Option<&PeopleRow>, after: &NewUser) -> bool {
    !matches!(before, Some(PeopleRow::User(before)) if before.role_ids == after.role_ids)
}

impl References {
    /// Refuses a row that refers to rows that do not exist.
    pub(crate) fn check(&self, row: &PeopleRow) -> Result<(), EditRefusal> {
        let PeopleRow::User(user) = row else { return self.name_of.map_or(Ok(()), |other| Err(EditRefusal::NameTaken(other))) };
        let mut faults = Faults::default();
        if let Some(id) = user.branch_id.filter(|_| !self.branch) {
            faults.push("/branch_id".to_owned(), format!("there is no branch {id} in the tenant"));
        }
        for (at, id) in user.role_ids.iter().enumerate().filter(|(_, id)| !self.roles.contains(id)) {
            faults.push(format!("/role_ids/{at}"), format!("there is no role {id} in the tenant"));
        }
        if let Some(other) = self.external_id_of {
            faults.push("/external_id".to_owned(), format!("is that of user {other} already"));
        }
        if faults.is_empty() { Ok(()) } else { Err(EditRefusal::Faults(faults.into_list())) }
    }
}

fn object<'t>(text: &'t str, faults: &mut Faults) -> Option<Object<'t>> {
    let object = serde_json::from_str(text).ok();
    if object.is_none() {
        faults.push(String::new(), "takes one JSON object");
    }
    object
}

/// The stored row with the given fields in place of its own, checked like a row of an import file.
fn read(kind: PeopleKind, id: i64, stored: Option<&PeopleRow>, fields: &str) -> Result<Result<PeopleRow, Faults>, StoreError> {
    let broken = |error: serde_json::Error| StoreError::Broken(error.to_string());
    let (mut faults, id_text) = (Faults::default(), id.to_string());
    let stored = serde_json::to_string(&stored).map_err(broken)?;
    let stored: Option<Object<'_>> = serde_json::from_str(&stored).map_err(broken)?;
    let Some(mut given) = object(fields, &mut faults) else { return Ok(Err(faults)) };
    let id_value: &RawValue = serde_json::from_str(&id_text).map_err(broken)?;
    if stored.is_none() {
        given.0.retain(|(name, value)| !(name == "id" && value.get() == "null"));
    }
    if given.0.iter().any(|(name, value)| name == "id" && value.get() != id_text) {
        faults.push("/id".to_owned(), "cannot be changed");
    }
    let mut merged = Fields::new(given, "", &mut faults);
    merged.fill("id", id_value);
    for (name, value) in stored.into_iter().flat_map(|row| row.0) {
        merged.fill(&name, value);
    }
    let row = match kind {
        PeopleKind::User => {
            let user = NewUser::read(&mut merged, &mut faults);
            user.map(|user| PeopleRow::User(in_order(NewUser { active: Some(user.is_active()), ..user })))
        }
        PeopleKind::Role => RoleWithPermissions::read(&mut merged, &mut faults).map(PeopleRow::Role),
        PeopleKind::Branch => Branch::read(&mut merged, &mut faults).map(PeopleRow::Branch),
    };
    merged.close(&mut faults);
    let Some(row) = row else { return Ok(Err(faults)) };
    row.check(&mut faults);
    Ok(if faults.is_empty() { Ok(row) } else { Err(faults) })
}

impl PeopleRow {
    pub const fn id(&self) -> i64 {
        match self {
            Self::User(user) => user.id,
            Self::Role(role) => role.id,
            Self::Branch(branch) => branch.id,
        }
    }

    /// The name of a role.
    pub(crate) fn role_name(&self) -> Option<&str> {
        match self {
            Self::Role(role) => Some(&role.name),
            Self::User(_) | Self::Branch(_) => None,
        }
    }

    /// Checks the values as an import does, and their bounds: an import file has a bound as a whole.
    fn check(&self, faults: &mut Faults) {
        let mut texts: Vec<(String, &str)> = Vec::new();
        let (list, count) = match self {
            Self::User(user) => {
                user.check("", faults);
                let named = [("first_name", Some(&user.first_name)), ("last_name", Some(&user.last_name)), ("email", user.email.as_ref())];
                let ids = [("whatsapp_user_id", user.whatsapp_user_id.as_ref()), ("external_id", user.external_id.as_ref())];
                let all = named.into_iter().chain(ids).chain([("phone", user.phone.as_ref())]);
                texts.extend(all.filter_map(|(name, text)| Some((format!("/{name}"), text?.as_str()))));
                ("/role_ids", user.role_ids.len())
            }
            Self::Role(role) => {
                role.check("", faults);
                texts.push(("/name".to_owned(), &role.name));
                for (at, line) in role.permissions.iter().enumerate() {
                    texts.push((format!("/permissions/{at}/entity"), &line.entity));
                    texts.push((format!("/permissions/{at}/entity_type"), &line.entity_type));
                }
                ("/permissions", role.permissions.len())
            }
            Self::Branch(branch) => {
                branch.check("", faults);
                texts.push(("/name".to_owned(), &branch.name));
                ("", 0)
            }
        };
        if count > MAX_LIST {
            faults.push(list.to_owned(), format!("has {count} entries; it takes at most {MAX_LIST}"));
        }
        for (path, text) in texts {
            if text.chars().nth(MAX_TEXT).is_some() {
                faults.push(path.clone(), format!("takes at most {MAX_TEXT} characters"));
            }
            if text.contains('\0') {
                faults.push(path, "has a character that cannot be stored");
            }
        }
    }

    fn value(&self) -> Result<Value, StoreError> {
        serde_json::to_value(self).map_err(|error| StoreError::Broken(error.to_string()))
    }
}

/// What the audit log says about an edit.
pub(crate) fn act(before: Option<&PeopleRow>, after: Option<&PeopleRow>) -> Result<Act, StoreError> {
    let active = |row: Option<&PeopleRow>| matches!(row, Some(PeopleRow::User(user)) if user.is_active());
    let action = match after.or(before) {
        Some(PeopleRow::User(_)) if active(before) && !active(after) => "person.deactivate",
        Some(PeopleRow::User(_)) if before.is_some() && !active(before) && active(after) => "person.activate",
        Some(PeopleRow::User(_)) | None => "person.put",
        Some(PeopleRow::Role(_)) if after.is_none() => "role.delete",
        Some(PeopleRow::Role(_)) => "role.put",
        Some(PeopleRow::Branch(_)) if after.is_none() => "branch.delete",
        Some(PeopleRow::Branch(_)) => "branch.put",
    };
    let subject = after.or(before).map_or_else(String::new, |row| row.id().to_string());
    let person = matches!(after.or(before), Some(PeopleRow::User(_))).then(|| subject.clone());
    let (before, after) = (before.map(PeopleRow::value).transpose()?, after.map(PeopleRow::value).transpose()?);
    Ok(Act { person, before, after, ..Act::new(action, subject) })
}

#[cfg(test)]
#[path = "manage_people_tests.rs"]
mod tests;
