//! Reads an operator's own PostgreSQL: a read-only transaction per read, with a statement timeout.
//!
//! The database writes each row as JSON and cuts it at the limit, so no row is larger than the limit when it arrives. Values are sent as text,
//! and the database reads each one as the type that the query needs.

use std::collections::HashMap;
use std::error::Error;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deadpool_postgres::{Object, Pool};
use futures_util::TryStreamExt;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};
use tokio_postgres::{CancelToken, Client, NoTls, Statement, Transaction};
use werkruf_contract::{BoxFuture, Deadline};

use super::options::Address;
use super::tls::Encryption;
use super::{PostgresOptions, pool};
use crate::StoreError;
use crate::operator_database::{BoundedRead, NamedQuery, OperatorDatabase, ReadError, ReadRows};

/// A double has so many significant decimal digits for certain.
const EXACT_DIGITS: usize = 15;

/// A database and the query for it.
pub struct OperatorPostgres {
    pool: Pool,
    encryption: Option<Encryption>,
    query: NamedQuery,
}

impl std::fmt::Debug for OperatorPostgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorPostgres").field("query", &self.query).finish_non_exhaustive()
    }
}

impl OperatorPostgres {
    /// Reads the address, and opens nothing. At most so many connections are opened later.
    pub fn new(url: &str, connections: usize, query: NamedQuery) -> Result<Self, StoreError> {
        let options = PostgresOptions { pool_size: connections, ..PostgresOptions::new(url) };
        Ok(Self { pool: pool(&options)?, encryption: Address::parse(url)?.encryption, query })
    }

    async fn rows(&self, client: &mut Client, read: &BoundedRead) -> Result<ReadRows, ReadError> {
        let transaction = client.build_transaction().read_only(true).start().await?;
        let left = u64::try_from(read.deadline.left().as_millis()).unwrap_or(u64::MAX).clamp(1, 86_400_000);
        transaction.batch_execute(&format!("SET LOCAL statement_timeout = {left}; SET LOCAL TimeZone TO 'UTC'")).await?;
        let plain = transaction.prepare(self.query.text()).await?;
        check_columns(&plain)?;
        let sql = format!(
            "SELECT left(row_to_json(found)::text, {}) FROM ({}\n) AS found LIMIT {}",
            read.max_bytes.saturating_add(1).min(i32::MAX as usize),
            self.query.text(),
            read.max_rows.saturating_add(1)
        );
        let whole = transaction.prepare(&sql).await?;
        fetched(&transaction, &plain, &whole, read).await
    }

    async fn cancel(&self, token: CancelToken) {
        let canceled = match self.encryption.clone() {
            Some(encryption) => token.cancel_query(encryption).await,
            None => token.cancel_query(NoTls).await,
        };
        if let Err(error) = canceled {
            tracing::debug!(%error, "a query of a SQL tool was not canceled; its time limit ends it");
        }
    }
}

impl OperatorDatabase for OperatorPostgres {
    fn read(&self, read: BoundedRead) -> BoxFuture<'_, Result<ReadRows, ReadError>> {
        Box::pin(async move {
            let taken = tokio::select! {
                biased;
                taken = self.pool.get() => taken.map_err(|error| ReadError::Unreachable(causes(&error)))?,
                () = read.cancel.raised() => return Err(ReadError::Canceled),
                () = overdue(read.deadline) => return Err(ReadError::Overdue),
            };
            let mut connection = TakenConnection(Some(taken));
            let client = connection.client()?;
            let token = client.cancel_token();
            let stopped = tokio::select! {
                biased;
                rows = self.rows(client, &read) => {
                    if rows.is_ok() {
                        connection.keep();
                    }
                    return rows;
                }
                () = read.cancel.raised() => ReadError::Canceled,
                () = overdue(read.deadline) => ReadError::Overdue,
            };
            self.cancel(token).await;
            Err(stopped)
        })
    }
}

async fn overdue(deadline: Deadline) {
    tokio::time::sleep_until(deadline.instant().into()).await;
}

/// A connection that returns to the pool only after a whole read: rows of a broken-off one may still arrive.
struct TakenConnection(Option<Object>);

impl TakenConnection {
    fn client(&mut self) -> Result<&mut Client, ReadError> {
        let object = self.0.as_mut().ok_or_else(|| ReadError::Unreachable("no connection".to_owned()))?;
        Ok(object)
    }

    fn keep(mut self) {
        drop(self.0.take());
    }
}

impl Drop for TakenConnection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

async fn fetched(transaction: &Transaction<'_>, plain: &Statement, whole: &Statement, read: &BoundedRead) -> Result<ReadRows, ReadError> {
    let values = read.values.iter().map(Argument);
    let stream = transaction.query_raw(whole, values).await?;
    let mut stream = std::pin::pin!(stream);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = stream.try_next().await? {
        if rows.len() == read.max_rows {
            return Ok(ReadRows { rows, truncated: true });
        }
        let text: &str = row.try_get(0)?;
        bytes += text.len();
        if bytes > read.max_bytes {
            return Err(ReadError::TooLarge);
        }
        rows.push(object(plain, text)?);
    }
    Ok(ReadRows { rows, truncated: false })
}

fn check_columns(statement: &Statement) -> Result<(), ReadError> {
    let names: Vec<&str> = statement.columns().iter().map(tokio_postgres::Column::name).collect();
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, name)) => Err(ReadError::Query(format!("two columns are named {name}; name them with AS"))),
        None => Ok(()),
    }
}

/// A row in the order of its columns.
fn object(statement: &Statement, text: &str) -> Result<Map<String, Value>, ReadError> {
    let unreadable = |error: serde_json::Error| ReadError::Query(format!("a row is not JSON: {error}"));
    let fields: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(unreadable)?;
    let mut object = Map::new();
    for column in statement.columns() {
        let raw = fields.get(column.name()).map_or("null", |raw| raw.get());
        let value = serde_json::from_str(raw).map_err(unreadable)?;
        let value = match *column.type_() {
            Type::NUMERIC => decimal(raw, value),
            Type::BYTEA => bytes(value),
            _ => value,
        };
        object.insert(column.name().to_owned(), value);
    }
    Ok(object)
}

/// A decimal number that a double cannot hold stays text.
fn decimal(raw: &str, value: Value) -> Value {
    let digits = raw.bytes().filter(u8::is_ascii_digit).count();
    match value {
        Value::Number(ref number) if number.is_f64() && digits > EXACT_DIGITS => Value::from(raw),
        other => other,
    }
}

/// Bytes as Base64; the database writes them as `\x…`.
fn bytes(value: Value) -> Value {
    let Some(digits) = value.as_str().and_then(|text| text.strip_prefix("\\x")) else { return value };
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    pairs.collect::<Option<Vec<u8>>>().map_or(value, |bytes| Value::from(STANDARD.encode(bytes)))
}

/// A value as the text of the type that the query needs.
#[derive(Debug)]
struct Argument<'a>(&'a Value);

impl ToSql for Argument<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        if self.0.is_null() && !matches!(*ty, Type::JSON | Type::JSONB) {
            return Ok(IsNull::Yes);
        }
        out.extend_from_slice(written(self.0, ty).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }
}

fn written(value: &Value, ty: &Type) -> String {
    match (value, ty.kind()) {
        _ if matches!(*ty, Type::JSON | Type::JSONB) => value.to_string(),
        (Value::Array(items), Kind::Array(of)) => {
            let items: Vec<String> = items.iter().map(|item| element(item, of)).collect();
            format!("{{{}}}", items.join(","))
        }
        (Value::String(text), _) => text.clone(),
        (other, _) => other.to_string(),
    }
}

/// An element of an array, quoted.
fn element(value: &Value, of: &Type) -> String {
    if value.is_null() {
        return "NULL".to_owned();
    }
    format!("\"{}\"", written(value, of).replace('\\', "\\\\").replace('"', "\\\""))
}

impl From<tokio_postgres::Error> for ReadError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = causes(&error);
        match error.code().map(tokio_postgres::error::SqlState::code) {
            // The statement timeout, or a cancel of the database's own operator.
            Some("57014") => Self::Overdue,
            Some(code) if code.starts_with("22") => Self::Argument(text),
            Some(code) if code.starts_with("08") || code.starts_with("57") || code.starts_with("53") => Self::Unreachable(text),
            Some(_) => Self::Query(text),
            None if error.is_closed() => Self::Unreachable(text),
            None => Self::Query(text),
        }
    }
}

/// The error and its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
