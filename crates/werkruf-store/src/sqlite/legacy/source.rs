//! Reads the tables and rows of another program's SQLite file.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Map, Value};
use werkruf_contract::hex;

use crate::legacy::fields::Fields;
use crate::legacy::found::{Source, Tables};
use crate::sqlite::open;
use crate::{LegacyError, LegacyReport, StoreError};

/// Reads the file, and reports its tables.
pub(crate) fn read(path: &Path) -> Result<(Source, LegacyReport), LegacyError> {
    let mut report = LegacyReport::default();
    let unusable = |why: String| LegacyError::Source { name: path.display().to_string(), why };
    if !path.is_file() {
        return Err(unusable("there is no such file".to_owned()));
    }
    let connection = open::read_only(path).map_err(|error| unusable(error.to_string()))?;
    // One snapshot, because the other program may still be writing.
    let connection = connection.unchecked_transaction().map_err(|error| unusable(error.to_string()))?;
    let tables = tables(&connection).map_err(|error| unusable(error.to_string()))?;
    let tables = Tables::choose(&tables).map_err(unusable)?;
    let rows = tables.known().iter().map(|table| match table {
        Some(table) => fields(&connection, table).map_err(|error| unusable(format!("{table}: {error}"))),
        None => Ok(Vec::new()),
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let unknown = tables.unknown().iter().map(|table| count(&connection, table).map_err(|error| unusable(error.to_string())));
    tables.note(&rows, &unknown.collect::<Result<Vec<_>, _>>()?, &mut report);
    Ok((Source::new(rows), report))
}

/// Tables by lower-case name.
fn tables(c: &Connection) -> Result<BTreeMap<String, String>, StoreError> {
    let mut statement = c.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(names.into_iter().map(|name| (name.to_lowercase(), name)).collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn count(c: &Connection, table: &str) -> Result<i64, StoreError> {
    Ok(c.query_row(&format!("SELECT count(*) FROM {}", quoted(table)), [], |row| row.get(0))?)
}

/// Rows in the order of the file, which is the order in which they were written.
fn fields(c: &Connection, table: &str) -> Result<Vec<Fields>, StoreError> {
    let mut statement = c.prepare(&format!("SELECT * FROM {}", quoted(table)))?;
    let names: Vec<String> = statement.column_names().map(str::to_lowercase).collect();
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut columns = Map::new();
        for (at, name) in names.iter().enumerate() {
            columns.insert(name.clone(), value(row.get_ref(at)?));
        }
        found.push(Fields::new(table, columns, found.len()));
    }
    Ok(found)
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned().into(),
        // A UUID may be stored as 16 bytes.
        ValueRef::Blob(bytes) => match <[u8; 16]>::try_from(bytes) {
            Ok(bytes) => uuid::Uuid::from_bytes(bytes).to_string().into(),
            Err(_) => std::str::from_utf8(bytes).map_or_else(|_| hex(bytes), str::to_owned).into(),
        },
    }
}
