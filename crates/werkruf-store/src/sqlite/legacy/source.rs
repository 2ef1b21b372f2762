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
    connection
        .execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")
        .map_err(|error| unusable(StoreError::from(error).to_string()))?;
    let mut memory = Memory::of(path);
    // One snapshot, because the other program may still be writing.
    let connection = connection.unchecked_transaction().map_err(|error| unusable(error.to_string()))?;
    let tables = tables(&connection).map_err(|error| unusable(error.to_string()))?;
    let tables = Tables::choose(&tables).map_err(unusable)?;
    let rows = tables.known().iter().map(|table| match table {
        Some(table) => fields(&connection, table, &mut memory).map_err(|why| unusable(format!("{table}: {why}"))),
        None => Ok(Vec::new()),
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let unknown = tables.unknown().iter().map(|table| count(&connection, table).map_err(|error| unusable(error.to_string())));
    tables.note(&rows, &unknown.collect::<Result<Vec<_>, _>>()?, &mut report);
    Ok((Source::new(rows), report))
}

/// Tables by lower-case name. A virtual table has no page of its own; its rows would be computed by code that the file chooses.
fn tables(c: &Connection) -> Result<BTreeMap<String, String>, StoreError> {
    let mut statement =
        c.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(names.into_iter().map(|name| (name.to_lowercase(), name)).collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn count(c: &Connection, table: &str) -> Result<i64, StoreError> {
    Ok(c.query_row(&format!("SELECT count(*) FROM {}", quoted(table)), [], |row| row.get(0))?)
}

/// What the rows of a file may take in memory, as a multiple of the file. A small file can claim to have rows of many gigabytes.
struct Memory {
    left: usize,
}

impl Memory {
    /// What a value takes beside its bytes, and a row beside its values.
    const VALUE: usize = 128;
    const ROW: usize = 256;
    /// Rows of many short columns take about ten times as much in memory as in the file.
    const TIMES_FILE: u64 = 32;
    const LEAST: u64 = 64 * 1024 * 1024;

    fn of(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let file = size(path).saturating_add(size(Path::new(&log)));
        let left = file.saturating_mul(Self::TIMES_FILE).saturating_add(Self::LEAST);
        Self { left: usize::try_from(left).unwrap_or(usize::MAX) }
    }

    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or("its rows take far more memory than the file has bytes")?;
        Ok(())
    }
}

/// The columns that a row stores. A computed column may be of any size.
fn columns(c: &Connection, table: &str) -> Result<Vec<String>, String> {
    let read = || -> Result<Vec<(String, i64)>, StoreError> {
        let mut statement = c.prepare("SELECT name, hidden FROM pragma_table_xinfo(?1)")?;
        Ok(statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?)
    };
    let found = read().map_err(|error| error.to_string())?;
    match found.iter().find(|(_, hidden)| *hidden != 0) {
        Some((name, _)) => Err(format!("the column {name} is generated; copy the rows into a table of ordinary columns")),
        None => Ok(found.into_iter().map(|(name, _)| name).collect()),
    }
}

/// Rows in the order of the file, which is the order in which they were written.
fn fields(c: &Connection, table: &str, memory: &mut Memory) -> Result<Vec<Fields>, String> {
    let names = columns(c, table)?;
    let listed = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let unreadable = |error: rusqlite::Error| StoreError::from(error).to_string();
    let mut statement = c.prepare(&format!("SELECT {listed} FROM {}", quoted(table))).map_err(unreadable)?;
    let mut rows = statement.query([]).map_err(unreadable)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(unreadable)? {
        memory.take(Memory::ROW)?;
        let mut columns = Map::new();
        for (at, name) in names.iter().enumerate() {
            let stored = row.get_ref(at).map_err(unreadable)?;
            if stored == ValueRef::Null {
                continue;
            }
            // A blob that is not text is kept as hexadecimal digits.
            let bytes = match stored {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => 2 * bytes.len(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
            };
            memory.take(Memory::VALUE + name.len() + bytes)?;
            columns.insert(name.clone(), value(stored));
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
