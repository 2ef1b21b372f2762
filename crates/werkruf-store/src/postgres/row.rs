//! Reads rows of PostgreSQL into the store's row types. Columns are read by number; `reading` says which, and in which order.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use werkruf_contract::{State, Uuid};

use super::text::Text;
pub(super) use crate::reading::{ALERT, APPROVAL, AUDIT, AUDIT_HEAD, CALL, CONTACT, CONVERSATION, EVENT, KEY, MESSAGE, OUTBOX, TURN};
use crate::{ListRow, StoreError};

/// Lists have no session state: it may be large.
pub(super) const CONVERSATION_WITHOUT_STATE: &str =
    "id, tenant_id, user_id, channel, assistant, title, '{}'::jsonb AS state, created_at, updated_at";

/// One row, read from left to right.
pub struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Columns<'r> {
    pub const fn new(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    fn value<T: FromSql<'r>>(&mut self) -> Result<Option<T>, StoreError> {
        let at = self.next;
        self.next += 1;
        self.row.try_get(at).map_err(|error| StoreError::Broken(error.to_string()))
    }

    fn broken(&self, wanted: &str) -> StoreError {
        let column = self.row.columns().get(self.next - 1).map_or("?", |column| column.name());
        StoreError::Broken(format!("column {column} is no {wanted}"))
    }

    fn must<T: FromSql<'r>>(&mut self, wanted: &str) -> Result<T, StoreError> {
        self.value()?.ok_or_else(|| self.broken(wanted))
    }

    pub fn text(&mut self) -> Result<String, StoreError> {
        self.must::<Text>("text").map(|text| text.0)
    }

    pub fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.value::<Text>()?.map(|text| text.0))
    }

    pub fn id(&mut self) -> Result<Uuid, StoreError> {
        self.must("id")
    }

    pub fn id_or_null(&mut self) -> Result<Option<Uuid>, StoreError> {
        self.value()
    }

    pub fn ids(&mut self) -> Result<Vec<Uuid>, StoreError> {
        self.must("list of ids")
    }

    pub fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.must("time")
    }

    pub fn time_or_null(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.value()
    }

    pub fn int(&mut self) -> Result<i64, StoreError> {
        self.must("number")
    }

    pub fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        self.value()
    }

    pub fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| self.broken("count"))
    }

    pub fn bytes(&mut self) -> Result<&'r [u8], StoreError> {
        self.must("bytes")
    }

    pub fn bytes_or_null(&mut self) -> Result<Option<&'r [u8]>, StoreError> {
        self.value()
    }

    pub fn flag(&mut self) -> Result<bool, StoreError> {
        self.must("flag")
    }

    pub fn flag_or_null(&mut self) -> Result<Option<bool>, StoreError> {
        self.value()
    }

    /// Text that `parse` understands.
    pub fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| self.broken("known value"))
    }

    pub fn state(&mut self) -> Result<State, StoreError> {
        self.state_or_null()?.ok_or_else(|| self.broken("JSON object"))
    }

    pub fn state_or_null(&mut self) -> Result<Option<State>, StoreError> {
        let Some(text) = self.text_or_null()? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|_| self.broken("JSON object"))
    }
}

/// The first row, if any, through `read`.
pub fn first<T>(rows: &[Row], read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    rows.first().map(|row| read(&mut Columns::new(row))).transpose()
}

/// The one row that a statement always has.
pub fn only<T>(rows: &[Row], read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
    first(rows, read)?.ok_or_else(|| StoreError::Broken("a statement that always has a row returned none".to_owned()))
}

/// Every row through `read`.
pub fn all<T>(rows: &[Row], mut read: impl FnMut(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(|row| read(&mut Columns::new(row))).collect()
}

/// Like [`all`], up to the row that makes the list this large.
pub fn all_within<T: ListRow>(
    rows: &[Row],
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
    max_bytes: usize,
) -> Result<Vec<T>, StoreError> {
    let (mut found, mut bytes) = (Vec::new(), 0_usize);
    for row in rows {
        if bytes >= max_bytes {
            break;
        }
        let row = read(&mut Columns::new(row))?;
        bytes = bytes.saturating_add(row.list_bytes());
        found.push(row);
    }
    Ok(found)
}

crate::reading::readings!();
