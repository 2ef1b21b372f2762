//! Reads an operator's own SQLite file: a connection per read, which can change nothing, on a thread for blocking work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Statement, params_from_iter};
use serde_json::{Map, Value};
use werkruf_contract::BoxFuture;

use super::open;
use crate::operator_database::{BoundedRead, NamedQuery, OperatorDatabase, ReadError, ReadRows};

/// After so many instructions of a query it is asked whether somebody waits for its rows: some milliseconds at most.
const INSTRUCTIONS: i32 = 10_000;

/// A file and the query for it.
#[derive(Debug)]
pub struct OperatorSqlite {
    path: PathBuf,
    query: NamedQuery,
}

impl OperatorSqlite {
    /// Opens nothing.
    pub const fn new(path: PathBuf, query: NamedQuery) -> Self {
        Self { path, query }
    }
}

impl OperatorDatabase for OperatorSqlite {
    fn read(&self, read: BoundedRead) -> BoxFuture<'_, Result<ReadRows, ReadError>> {
        let (path, sql) = (self.path.clone(), self.query.text().to_owned());
        Box::pin(async move {
            let (deadline, cancel) = (read.deadline, read.cancel.clone());
            let waits = Arc::new(());
            let waiting = Arc::downgrade(&waits);
            let work = tokio::task::spawn_blocking(move || {
                let mut connection = opened(&path, read.max_bytes)?;
                let (deadline, cancel) = (read.deadline, read.cancel.clone());
                // Whoever waited for the rows may also be gone without a word.
                let ends = move || deadline.passed() || cancel.is_raised() || waiting.strong_count() == 0;
                connection.progress_handler(INSTRUCTIONS, Some(ends))?;
                rows(&connection, &sql, &read)
            });
            let read = tokio::select! {
                biased;
                () = cancel.raised() => Err(ReadError::Canceled),
                done = work => done.unwrap_or_else(|error| Err(ReadError::Query(error.to_string()))),
                () = tokio::time::sleep_until(deadline.instant().into()) => Err(ReadError::Overdue),
            };
            drop(waits);
            read
        })
    }
}

fn opened(path: &Path, max_bytes: usize) -> Result<Connection, ReadError> {
    let connection = open::read_only(path).map_err(|error| ReadError::Unreachable(error.to_string()))?;
    let longest = i32::try_from(max_bytes).unwrap_or(i32::MAX).max(1024);
    let limited =
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest).and_then(|_| connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0));
    limited.map_err(|error| ReadError::Query(error.to_string()))?;
    Ok(connection)
}

fn rows(connection: &Connection, sql: &str, read: &BoundedRead) -> Result<ReadRows, ReadError> {
    let mut statement = connection.prepare(sql)?;
    if !statement.readonly() {
        return Err(ReadError::Query("the query is not a read".to_owned()));
    }
    let columns = columns(&statement)?;
    let values = read.values.iter().map(bound);
    let mut found = statement.query(params_from_iter(values))?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        if rows.len() == read.max_rows {
            return Ok(ReadRows { rows, truncated: true });
        }
        let mut object = Map::new();
        for (at, column) in columns.iter().enumerate() {
            let value = row.get_ref(at)?;
            bytes += column.len() + size(value);
            if bytes > read.max_bytes {
                return Err(ReadError::TooLarge);
            }
            object.insert(column.clone(), json(value));
        }
        rows.push(object);
    }
    Ok(ReadRows { rows, truncated: false })
}

fn columns(statement: &Statement<'_>) -> Result<Vec<String>, ReadError> {
    let mut columns: Vec<String> = Vec::new();
    for name in statement.column_names() {
        if columns.iter().any(|known| known == name) {
            return Err(ReadError::Query(format!("two columns are named {name}; name them with AS")));
        }
        columns.push(name.to_owned());
    }
    Ok(columns)
}

/// A list or an object is bound as its JSON text, which `json_each` reads.
fn bound(value: &Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Bound;
    match value {
        Value::Null => Bound::Null,
        Value::Bool(value) => Bound::Integer(i64::from(*value)),
        Value::Number(number) => number.as_i64().map_or_else(|| Bound::Real(number.as_f64().unwrap_or_default()), Bound::Integer),
        Value::String(text) => Bound::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => Bound::Text(value.to_string()),
    }
}

const fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 20,
        ValueRef::Text(text) => text.len(),
        ValueRef::Blob(bytes) => bytes.len() / 3 * 4 + 4,
    }
}

fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::from(STANDARD.encode(bytes)),
    }
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Overdue,
            Some(ErrorCode::TooBig) => Self::TooLarge,
            Some(ErrorCode::DatabaseBusy | ErrorCode::CannotOpen | ErrorCode::NotADatabase) => Self::Unreachable(error.to_string()),
            Some(ErrorCode::TypeMismatch) => Self::Argument(error.to_string()),
            _ => Self::Query(error.to_string()),
        }
    }
}
