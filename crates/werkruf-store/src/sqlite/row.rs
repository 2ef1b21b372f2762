//! Reads SQLite rows into row types. Columns are read by position; `reading` defines the column lists and their order.

use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Params, Row, Statement};
use werkruf_contract::{State, Uuid};

use super::text::parse_stamp;
pub(super) use crate::reading::{ALERT, APPROVAL, AUDIT, AUDIT_HEAD, CALL, CONTACT, CONVERSATION, KEY, MESSAGE, OUTBOX, TURN};
use crate::{ListRow, StoreError};

/// Lists have no session state: it may be large.
pub(super) const CONVERSATION_WITHOUT_STATE: &str =
    "id, tenant_id, user_id, channel, assistant, title, '{}' AS state, created_at, updated_at";

/// One row, read from left to right.
pub struct Columns<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> Columns<'r> {
    pub const fn new(row: &'r Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    fn value(&mut self) -> Result<ValueRef<'r>, StoreError> {
        let value = self.row.get_ref(self.next)?;
        self.next += 1;
        Ok(value)
    }

    fn broken(&self, wanted: &str) -> StoreError {
        let column = self.row.as_ref().column_name(self.next - 1).unwrap_or("?");
        StoreError::Broken(format!("column {column} is no {wanted}"))
    }

    fn str_or_null(&mut self) -> Result<Option<&'r str>, StoreError> {
        match self.value()? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => std::str::from_utf8(bytes).map(Some).map_err(|_| self.broken("text")),
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => Err(self.broken("text")),
        }
    }

    fn str(&mut self) -> Result<&'r str, StoreError> {
        self.str_or_null()?.ok_or_else(|| self.broken("text"))
    }

    pub fn text(&mut self) -> Result<String, StoreError> {
        self.str().map(str::to_owned)
    }

    pub fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.str_or_null()?.map(str::to_owned))
    }

    pub fn id(&mut self) -> Result<Uuid, StoreError> {
        self.id_or_null()?.ok_or_else(|| self.broken("id"))
    }

    pub fn id_or_null(&mut self) -> Result<Option<Uuid>, StoreError> {
        match self.str_or_null()? {
            Some(text) => Uuid::try_parse(text).map(Some).map_err(|_| self.broken("id")),
            None => Ok(None),
        }
    }

    pub fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.time_or_null()?.ok_or_else(|| self.broken("time"))
    }

    pub fn time_or_null(&mut self) -> Result<Option<Timestamp>, StoreError> {
        match self.str_or_null()? {
            Some(text) => parse_stamp(text.as_bytes()).map(Some).ok_or_else(|| self.broken("time")),
            None => Ok(None),
        }
    }

    pub fn bytes(&mut self) -> Result<&'r [u8], StoreError> {
        self.bytes_or_null()?.ok_or_else(|| self.broken("blob"))
    }

    pub fn bytes_or_null(&mut self) -> Result<Option<&'r [u8]>, StoreError> {
        match self.value()? {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => Ok(Some(bytes)),
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => Err(self.broken("blob")),
        }
    }

    pub fn int(&mut self) -> Result<i64, StoreError> {
        self.int_or_null()?.ok_or_else(|| self.broken("number"))
    }

    pub fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        match self.value()? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => Err(self.broken("number")),
        }
    }

    pub fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| self.broken("count"))
    }

    pub fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    /// A text with a fixed set of values.
    pub fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.str()?;
        parse(text).ok_or_else(|| self.broken("known value"))
    }

    pub fn state(&mut self) -> Result<State, StoreError> {
        let text = self.str()?;
        // Most conversations have no state, and a comparison is cheaper than parsing.
        if text == "{}" {
            return Ok(State::new());
        }
        serde_json::from_str(text).map_err(|_| self.broken("JSON object"))
    }
}

/// The first row, if any, through `read`.
pub fn first<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => read(&mut Columns::new(row)).map(Some),
        None => Ok(None),
    }
}

/// Every row through `read`.
pub fn all<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(&mut Columns::new(row))?);
    }
    Ok(found)
}

/// Like [`all`], up to the row that makes the list this large.
pub fn all_within<T: ListRow>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
    max_bytes: usize,
) -> Result<Vec<T>, StoreError> {
    let mut rows = statement.query(params)?;
    let (mut found, mut bytes) = (Vec::new(), 0_usize);
    while bytes < max_bytes
        && let Some(row) = rows.next()?
    {
        let row = read(&mut Columns::new(row))?;
        bytes = bytes.saturating_add(row.list_bytes());
        found.push(row);
    }
    Ok(found)
}

crate::reading::readings!();
