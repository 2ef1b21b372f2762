//! Reads a whole database for `werkruf move`. It holds the file's lock, so no other process writes meanwhile.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tokio::sync::mpsc;
use werkruf_contract::{Clock, hex};

use super::files::Lock;
use super::row::all;
use super::{migrate, open};
use crate::moving::{Cell, Sum, Table, TableSum};
use crate::postgres::storable;
use crate::{MaintenanceError, Modules, StoreError};

/// The most rows, and about the most bytes, of one batch.
const ROWS: usize = 1000;
const BYTES: usize = 4 * 1024 * 1024;

/// Rows of the table with this index.
pub(crate) struct Batch {
    pub(crate) table: usize,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// An open and locked database file.
pub(crate) struct Export {
    // Dropped in this order.
    connection: Connection,
    _lock: Lock,
}

impl Export {
    /// Locks the file and applies missing migrations, as every opening does.
    pub(crate) fn open(path: &Path, clock: &Clock, modules: Modules) -> Result<Self, MaintenanceError> {
        if !path.is_file() {
            return Err(MaintenanceError::Unfit { path: path.to_owned(), why: "there is no such database".to_owned() });
        }
        let lock = Lock::take(path, false)?;
        let connection = open::writable(path)?;
        migrate::migrate(&connection, path, &migrate::parts(modules), clock.now())?;
        // One snapshot for all reads.
        connection.execute_batch("BEGIN").map_err(StoreError::from)?;
        Ok(Self { connection, _lock: lock })
    }

    /// All tables with their columns, except the record of migrations. Search indexes are rebuilt, not moved.
    pub(crate) fn tables(&self) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
        let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
                     AND name <> 'schema_migrations'";
        let names = all(&mut self.connection.prepare(sql)?, [], |columns| columns.text())?;
        let mut columns = self.connection.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
        let with_columns = names.into_iter().map(|name| {
            let found = all(&mut columns, [&name], |columns| columns.text())?;
            Ok((name, found))
        });
        with_columns.collect()
    }

    /// Sends all rows of these tables, in their order, and returns the count and digest of each table.
    pub(crate) fn send(&self, tables: &[Table], to: &mpsc::Sender<Batch>) -> Result<BTreeMap<String, TableSum>, StoreError> {
        let mut sums = BTreeMap::new();
        for (at, table) in tables.iter().enumerate() {
            sums.insert(table.name.clone(), self.send_table(at, table, to)?.finish());
        }
        Ok(sums)
    }

    fn send_table(&self, at: usize, table: &Table, to: &mpsc::Sender<Batch>) -> Result<Sum, StoreError> {
        let closed = |_| StoreError::Unavailable("the target accepted no more rows".to_owned());
        let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
        let mut statement = self.connection.prepare(&format!("SELECT {} FROM {}", names.join(", "), quoted(&table.name)))?;
        let mut rows = statement.query([])?;
        let (mut sum, mut batch, mut bytes) = (Sum::default(), Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let cells = table.columns.iter().enumerate().map(|(place, column)| {
                let text = cell(row.get_ref(place)?);
                Ok(text.map(|text| storable(column, text)))
            });
            let cells = cells.collect::<Result<Vec<_>, StoreError>>()?;
            sum.add(&table.columns, &cells);
            bytes += cells.iter().flatten().map(String::len).sum::<usize>();
            batch.push(cells);
            if batch.len() >= ROWS || bytes >= BYTES {
                to.blocking_send(Batch { table: at, rows: std::mem::take(&mut batch) }).map_err(closed)?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            to.blocking_send(Batch { table: at, rows: batch }).map_err(closed)?;
        }
        Ok(sum)
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Some(hex(bytes)),
    }
}
