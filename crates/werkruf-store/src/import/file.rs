//! Parses an import file field by field, so that all faults are reported at once with path and line.
//!
//! Unknown fields and fields given twice are faults: a typo must not pass silently. Values are borrowed from the text
//! until their type is known, so a large file is in memory once.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use werkruf_contract::{Access, Permission, Scope};

use super::check::{Checked, Faults};
use super::lines::add_lines;
use super::{ImportBatch, ImportFault, ImportRefusal};
use crate::{Author, Branch, Modules, NewUser, RoleWithPermissions};

/// Parses an import file, or returns all faults of its structure, each with path and line. A list of a module that is not on refuses the
/// file as a whole.
pub fn parse_batch(text: &str, modules: Modules, is_on: impl Fn(&str) -> bool) -> Result<ImportBatch, ImportRefusal> {
    let root: Object<'_> = serde_json::from_str(text).map_err(|error| {
        let message = if error.is_data() { "the file takes one JSON object".to_owned() } else { format!("this is not JSON: {error}") };
        ImportRefusal::Faults(vec![ImportFault { path: String::new(), line: Some(error.line()), message }])
    })?;
    let lists = modules.iter().filter_map(|module| Some((module.name, module.import?)));
    for (module, lists) in lists.clone().filter(|(module, _)| !is_on(module)) {
        let is_given = |list: &&&str| root.0.iter().any(|(name, value)| name == **list && value.get() != "null");
        if let Some(list) = lists.names().iter().find(is_given) {
            return Err(ImportRefusal::ModuleOff { module, list });
        }
    }
    let (mut faults, mut values) = (Faults::default(), Faults::default());
    let mut file = Fields::new(root, "", &mut faults);
    let tenant = file.need("tenant", &mut faults);
    let batch = ImportBatch {
        tenant: tenant.unwrap_or_default(),
        branches: file.rows("branches", &mut faults, &mut values),
        roles: file.rows("roles", &mut faults, &mut values),
        users: file.rows("users", &mut faults, &mut values),
        of_modules: lists.map(|(_, lists)| lists.read(&mut file, &mut faults, &mut values)).collect(),
        by: Author::default(),
    };
    file.close(&mut faults);
    if faults.is_empty() {
        // The import checks the values again, together with the whole batch and the database.
        return Ok(batch);
    }
    faults.append(values);
    let mut faults = faults.into_list();
    add_lines(text, &mut faults);
    Err(ImportRefusal::Faults(faults))
}

/// An object's fields in order, not yet parsed.
pub(crate) struct Object<'t>(pub(crate) Vec<(String, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for Object<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;
        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(FieldVisitor)
    }
}

/// A row of one of the lists.
pub trait Row: Checked + Sized {
    /// `None` when a fault was pushed.
    fn read(fields: &mut Fields<'_>, faults: &mut Faults) -> Option<Self>;
}

/// A value, with a description of its form for error messages.
pub trait Value: DeserializeOwned {
    const TAKES: &'static str;
}

impl Value for i64 {
    const TAKES: &'static str = "a whole number";
}
impl Value for bool {
    const TAKES: &'static str = "true or false";
}
impl Value for String {
    const TAKES: &'static str = "text";
}
impl Value for Date {
    const TAKES: &'static str = "a date such as \"2026-11-15\"";
}
impl Value for Timestamp {
    const TAKES: &'static str = "a time with an offset such as \"2026-11-15T08:30:00Z\"";
}
impl Value for Access {
    const TAKES: &'static str = "\"read\", \"write\" or \"both\"";
}
impl Value for Scope {
    const TAKES: &'static str = "\"own\", \"branch\" or \"all\"";
}

/// The fields of one object that were not read yet.
pub struct Fields<'t> {
    path: String,
    left: Vec<(String, &'t RawValue)>,
}

impl<'t> Fields<'t> {
    pub(crate) fn new(object: Object<'t>, path: &str, faults: &mut Faults) -> Self {
        let mut left: Vec<(String, &'t RawValue)> = Vec::with_capacity(object.0.len());
        for (name, value) in object.0 {
            if left.iter().any(|(known, _)| *known == name) {
                faults.push(join(path, &name), "is given twice");
            } else {
                left.push((name, value));
            }
        }
        Self { path: path.to_owned(), left }
    }

    fn take(&mut self, name: &str) -> Option<&'t RawValue> {
        let at = self.left.iter().position(|(known, _)| known == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// A field that must be there.
    pub fn need<T: Value>(&mut self, name: &str, faults: &mut Faults) -> Option<T> {
        let path = join(&self.path, name);
        match self.take(name) {
            Some(raw) => value(raw, path, faults),
            None => {
                faults.push(path, format!("is missing; it takes {}", T::TAKES));
                None
            }
        }
    }

    /// An optional field. A missing field and null are the same; the outer `None` is a fault.
    pub fn may<T: Value>(&mut self, name: &str, faults: &mut Faults) -> Option<Option<T>> {
        match self.take(name).filter(|raw| raw.get() != "null") {
            Some(raw) => value(raw, join(&self.path, name), faults).map(Some),
            None => Some(None),
        }
    }

    /// An optional field that cannot be null.
    fn unless_missing<T: Value>(&mut self, name: &str, faults: &mut Faults) -> Option<Option<T>> {
        match self.take(name) {
            Some(raw) => value(raw, join(&self.path, name), faults).map(Some),
            None => Some(None),
        }
    }

    fn items(&mut self, name: &str, faults: &mut Faults) -> Option<Vec<&'t RawValue>> {
        let Some(raw) = self.take(name).filter(|raw| raw.get() != "null") else { return Some(Vec::new()) };
        let items = serde_json::from_str(raw.get()).ok();
        if items.is_none() {
            faults.push(join(&self.path, name), format!("takes a list, not {}", shown(raw)));
        }
        items
    }

    /// A list of values; a missing list is empty.
    pub fn list<T: Value>(&mut self, name: &str, faults: &mut Faults) -> Option<Vec<T>> {
        let path = join(&self.path, name);
        let items = self.items(name, faults)?;
        let read: Vec<Option<T>> = items.iter().enumerate().map(|(at, raw)| value(raw, format!("{path}/{at}"), faults)).collect();
        read.into_iter().collect()
    }

    fn objects<T>(
        &mut self,
        name: &str,
        faults: &mut Faults,
        mut read: impl FnMut(&mut Fields<'t>, &mut Faults) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = join(&self.path, name);
        let items = self.items(name, faults)?;
        let mut rows = Vec::with_capacity(items.len());
        for (at, raw) in items.iter().enumerate() {
            let path = format!("{list}/{at}");
            let Ok(object) = serde_json::from_str::<Object<'t>>(raw.get()) else {
                faults.push(path, format!("takes an object, not {}", shown(raw)));
                continue;
            };
            let mut fields = Fields::new(object, &path, faults);
            let row = read(&mut fields, faults);
            fields.close(faults);
            rows.extend(row);
        }
        Some(rows)
    }

    /// A list of rows; a missing list is empty.
    pub fn rows<T: Row>(&mut self, name: &str, faults: &mut Faults, values: &mut Faults) -> Vec<T> {
        let read = |fields: &mut Fields<'t>, faults: &mut Faults| {
            let row = T::read(fields, faults)?;
            row.check(&fields.path, values);
            Some(row)
        };
        self.objects(name, faults, read).unwrap_or_default()
    }

    /// Adds a field that is not given.
    pub(crate) fn fill(&mut self, name: &str, value: &'t RawValue) {
        if !self.left.iter().any(|(known, _)| known == name) {
            self.left.push((name.to_owned(), value));
        }
    }

    /// Reports the fields that were not read as unknown.
    pub(crate) fn close(&mut self, faults: &mut Faults) {
        for (name, _) in std::mem::take(&mut self.left) {
            faults.push(join(&self.path, &name), "is not a field here; correct or remove it");
        }
    }
}

fn value<T: Value>(raw: &RawValue, path: String, faults: &mut Faults) -> Option<T> {
    let read = serde_json::from_str(raw.get()).ok();
    if read.is_none() {
        faults.push(path, format!("takes {}, not {}", T::TAKES, shown(raw)));
    }
    read
}

/// The start of a value, short enough for one line.
fn shown(raw: &RawValue) -> String {
    const LONGEST: usize = 40;
    let text = raw.get();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Appends a step to a JSON pointer.
fn join(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

impl Row for Branch {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, name, time_zone) = (f.need("id", faults), f.need("name", faults), f.need("time_zone", faults));
        Some(Self { id: id?, name: name?, time_zone: time_zone? })
    }
}

impl Row for RoleWithPermissions {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, name) = (f.need("id", faults), f.need("name", faults));
        let permissions = f.objects("permissions", faults, |line, faults| {
            let (entity, entity_type) = (line.need("entity", faults), line.need("entity_type", faults));
            let (access, scope) = (line.need("access", faults), line.need("scope", faults));
            Some(Permission { entity: entity?, entity_type: entity_type?, access: access?, scope: scope? })
        });
        Some(Self { id: id?, name: name?, permissions: permissions? })
    }
}

impl Row for NewUser {
    fn read(f: &mut Fields<'_>, faults: &mut Faults) -> Option<Self> {
        let (id, first_name, last_name) = (f.need("id", faults), f.need("first_name", faults), f.need("last_name", faults));
        let (email, phone) = (f.may("email", faults), f.may("phone", faults));
        let (whatsapp_user_id, external_id) = (f.may("whatsapp_user_id", faults), f.may("external_id", faults));
        let (locale, time_zone) = (f.need("locale", faults), f.may("time_zone", faults));
        let (branch_id, role_ids) = (f.may("branch_id", faults), f.list("role_ids", faults));
        let active = f.unless_missing("active", faults);
        Some(Self {
            id: id?,
            first_name: first_name?,
            last_name: last_name?,
            email: email?,
            phone: phone?,
            whatsapp_user_id: whatsapp_user_id?,
            external_id: external_id?,
            locale: locale?,
            time_zone: time_zone?,
            branch_id: branch_id?,
            role_ids: role_ids?,
            active: active?,
        })
    }
}
