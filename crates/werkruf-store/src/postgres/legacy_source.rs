//! Reads another program's PostgreSQL once (seeds 000, 001 and 004): its tables and their rows.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tokio_postgres::Transaction;

use super::fault::Fault;
use super::text::quoted;
use super::{PostgresOptions, pool};
use crate::legacy::fields::Fields;
use crate::legacy::found::{Source, Tables};
use crate::{LegacyError, LegacyReport, LegacySource, StoreError};

/// Reads the database at the address, in the schemas of its user's search path, and changes nothing in it.
pub(crate) async fn read(url: &str) -> Result<(Source, LegacyReport), LegacyError> {
    let name = LegacySource::Postgres(url.to_owned()).to_string();
    let unusable = |why: String| LegacyError::Source { name: name.clone(), why };
    let options = PostgresOptions { pool_size: 1, ..PostgresOptions::new(url) };
    let pool = pool(&options).map_err(|error| unusable(error.to_string()))?;
    let mut client = pool.get().await.map_err(|error| unusable(StoreError::from(Fault::from(error)).to_string()))?;
    let client: &mut tokio_postgres::Client = &mut client;
    // One snapshot of the database: the other program may still be writing.
    let started = client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).read_only(true).start().await;
    let transaction = started.map_err(|error| unusable(StoreError::from(error).to_string()))?;
    let tables = Tables::choose(&tables(&transaction).await.map_err(|error| unusable(error.to_string()))?).map_err(&unusable)?;
    let mut rows = Vec::new();
    for table in tables.known() {
        rows.push(match table {
            Some(table) => fields(&transaction, table).await.map_err(|error| unusable(format!("{table}: {error}")))?,
            None => Vec::new(),
        });
    }
    let mut unknown = Vec::new();
    for table in tables.unknown() {
        unknown.push(count(&transaction, table).await.map_err(|error| unusable(format!("{table}: {error}")))?);
    }
    let mut report = LegacyReport::default();
    tables.note(&rows, &unknown, &mut report);
    Ok((Source::new(rows), report))
}

/// Tables by lower-case name.
async fn tables(transaction: &Transaction<'_>) -> Result<BTreeMap<String, String>, StoreError> {
    let sql = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)
                 AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)";
    let rows = transaction.query_typed(sql, &[]).await?;
    let names = rows.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(names.into_iter().map(|name| (name.to_lowercase(), name)).collect())
}

async fn count(transaction: &Transaction<'_>, table: &str) -> Result<i64, StoreError> {
    let row = transaction.query_typed_one(&format!("SELECT count(*) FROM {}", quoted(table)), &[]).await?;
    Ok(row.try_get(0)?)
}

/// Rows in the order of the table's pages, which is mostly the order in which they were written.
async fn fields(transaction: &Transaction<'_>, table: &str) -> Result<Vec<Fields>, StoreError> {
    transaction.batch_execute("SET LOCAL TimeZone TO 'UTC'").await?;
    let rows = transaction.query_typed(&format!("SELECT row_to_json(found)::text FROM {} AS found", quoted(table)), &[]).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let text: String = row.try_get(0)?;
        let columns: Map<String, Value> = serde_json::from_str(&text).map_err(|error| StoreError::Broken(error.to_string()))?;
        let columns = columns.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
        found.push(Fields::new(table, columns, found.len()));
    }
    Ok(found)
}
