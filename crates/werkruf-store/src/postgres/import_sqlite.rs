//! Imports a whole SQLite database (`werkruf move`): one transaction, with the rows of every table counted and digested on both sides.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_postgres::{Client, Transaction};
use werkruf_contract::Clock;

use super::error::broken;
use super::param::p;
use super::text::{clean, clean_json, quoted};
use crate::moving::{Cell, Column, Kind, Sum, Table, TableSum, compare};
use crate::sqlite::{Batch, Export};
use crate::{MaintenanceError, Modules, Moved, StoreError, module};

/// Columns of the kernel that SQLite does not have, because only a shared database needs them.
const COLUMNS_ONLY_HERE: [(&str, &str); 3] = [("leases", "last_write"), ("leases", "read_until"), ("tool_calls", "cancel_requested")];
/// Columns that PostgreSQL computes and SQLite stores.
const COMPUTED_HERE: [(&str, &str); 1] = [("api_usage", "cost_usd")];
/// Tables that only processes sharing a database need, and only for a short time.
const TABLES_ONLY_HERE: [&str; 2] = ["dedupe_claims", "rate_windows"];
/// Batches that may be queued between reader and writer.
const QUEUED: usize = 4;
const FETCH: &str = "FETCH 1000 FROM every";

/// Imports everything in the file; the schema exists and is empty.
pub(super) async fn import_sqlite(
    client: &mut Client,
    schema: &str,
    from: PathBuf,
    clock: Clock,
    modules: Modules,
) -> Result<Moved, MaintenanceError> {
    let transaction = client.transaction().await.map_err(StoreError::from)?;
    transaction
        .batch_execute(&format!(
            "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
             SET LOCAL search_path TO {schema}; SET LOCAL ROLE werkruf_system"
        ))
        .await
        .map_err(StoreError::from)?;
    let here = tables(&transaction, schema, modules).await?;
    lock_empty_tables(&transaction, &here).await?;
    let (sender, mut batches) = mpsc::channel(QUEUED);
    let export = on_a_thread(move || Export::open(&from, &clock, modules)).await??;
    let in_file = export.tables()?;
    let order = ordered(&transaction, schema, matched(here, &in_file, modules)?).await?;
    let sending = {
        let order = order.clone();
        tokio::task::spawn_blocking(move || export.send(&order, &sender))
    };
    let mut refused = None;
    while let Some(batch) = batches.recv().await {
        if let Err(error) = put(&transaction, &order, batch).await {
            refused = Some(error);
            break;
        }
    }
    drop(batches);
    let sent = sending.await.map_err(|error| broken(format!("reading did not end: {error}")))?;
    if let Some(error) = refused {
        return Err(error.into());
    }
    let sent = sent?;
    for module in modules.iter().filter(|module| !module.postgres.after_move.is_empty()) {
        transaction.batch_execute(module.postgres.after_move).await.map_err(StoreError::from)?;
    }
    let arrived = sums(&transaction, &order).await?;
    compare(&sent, &arrived)?;
    transaction.commit().await.map_err(StoreError::from)?;
    Ok(Moved { tables: arrived })
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| broken(format!("reading did not end: {error}")))
}

/// The tables of the schema with the columns that the file must have too.
async fn tables(transaction: &Transaction<'_>, schema: &str, modules: Modules) -> Result<Vec<Table>, StoreError> {
    let sql = "SELECT class.relname, attribute.attname, format_type(attribute.atttypid, NULL)
               FROM pg_class AS class JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
               WHERE class.relnamespace = $1::text::regnamespace AND class.relkind IN ('r', 'p') AND class.relname <> 'schema_migrations'
                 AND attribute.attnum > 0 AND NOT attribute.attisdropped AND attribute.attgenerated = ''
               ORDER BY class.relname, attribute.attnum";
    let of_module = |table: &str, column: &str| {
        module::tables(modules).any(|known| known.name == table && known.columns_only_on_postgres.contains(&column))
    };
    let mut tables: Vec<Table> = Vec::new();
    for row in transaction.query_typed(sql, &[p(&schema)]).await? {
        let (table, name, cast): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if COLUMNS_ONLY_HERE.contains(&(table.as_str(), name.as_str())) || of_module(&table, &name) {
            continue;
        }
        let kind = kind(&cast).ok_or_else(|| broken(format!("{table}.{name} is of type {cast}, which cannot be moved")))?;
        let column = Column { name, kind, cast };
        match tables.last_mut().filter(|last| last.name == table) {
            Some(last) => last.columns.push(column),
            None => tables.push(Table { name: table, columns: vec![column] }),
        }
    }
    Ok(tables)
}

fn kind(cast: &str) -> Option<Kind> {
    match cast {
        "text" | "uuid" | "bigint" | "date" | "json" | "timestamp with time zone" | "double precision" => Some(Kind::Plain),
        "boolean" => Some(Kind::Flag),
        "jsonb" => Some(Kind::Json),
        "bytea" => Some(Kind::Bytes),
        _ => None,
    }
}

async fn lock_empty_tables(transaction: &Transaction<'_>, tables: &[Table]) -> Result<(), MaintenanceError> {
    for table in tables {
        // Locked until the end: no other process may write meanwhile. An entry of the audit log is written under the lock of its head,
        // and this role may not change entries, so it may not lock their table.
        if table.name != "audit_entries" {
            let locked = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", quoted(&table.name));
            transaction.batch_execute(&locked).await.map_err(StoreError::from)?;
        }
        let has_rows = format!("SELECT EXISTS (SELECT 1 FROM {})", quoted(&table.name));
        let row = transaction.query_typed_one(&has_rows, &[]).await.map_err(StoreError::from)?;
        if row.try_get(0).map_err(StoreError::from)? {
            return Err(MaintenanceError::NotEmpty(table.name.clone()));
        }
    }
    Ok(())
}

/// A value as PostgreSQL can store it; the same rule as for every other write.
pub(crate) fn storable(column: &Column, text: String) -> String {
    let clean = if column.cast.starts_with("json") { clean_json(&text) } else { clean(&text) };
    match clean {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// The tables with their columns, checked to be the same on both sides: no row is left behind silently.
fn matched(here: Vec<Table>, in_file: &BTreeMap<String, Vec<String>>, modules: Modules) -> Result<Vec<Table>, StoreError> {
    let names: HashSet<&String> = here.iter().map(|table| &table.name).collect();
    if let Some(table) = in_file.keys().find(|table| !names.contains(table)) {
        return Err(broken(format!("the table {table} is missing in PostgreSQL")));
    }
    let of_modules = module::tables(modules).filter(|table| table.only_on_postgres).map(|table| table.name);
    let only_here: HashSet<&str> = TABLES_ONLY_HERE.into_iter().chain(of_modules).collect();
    let mut found = Vec::new();
    for table in here.into_iter().filter(|table| !only_here.contains(table.name.as_str())) {
        let Some(columns) = in_file.get(&table.name) else {
            return Err(broken(format!("the table {} is missing in the file", table.name)));
        };
        let ours: HashSet<&String> = table.columns.iter().map(|column| &column.name).collect();
        let is_stored = |column: &&String| !COMPUTED_HERE.contains(&(table.name.as_str(), column.as_str()));
        let of_file: HashSet<&String> = columns.iter().filter(is_stored).collect();
        if let Some(column) = ours.symmetric_difference(&of_file).next() {
            return Err(broken(format!("{}.{column} is on one side only", table.name)));
        }
        found.push(table);
    }
    Ok(found)
}

/// Tables that others refer to come first.
async fn ordered(transaction: &Transaction<'_>, schema: &str, tables: Vec<Table>) -> Result<Vec<Table>, StoreError> {
    let sql = "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
               WHERE contype = 'f' AND connamespace = $1::text::regnamespace AND conrelid <> confrelid";
    let mut needs: HashMap<String, HashSet<String>> = HashMap::new();
    for row in transaction.query_typed(sql, &[p(&schema)]).await? {
        needs.entry(row.try_get(0)?).or_default().insert(row.try_get(1)?);
    }
    let (mut remaining, mut ordered) = (tables, Vec::<Table>::new());
    while !remaining.is_empty() {
        let placed: HashSet<String> = ordered.iter().map(|table| table.name.clone()).collect();
        let free = |table: &Table| needs.get(&table.name).is_none_or(|needs| needs.is_subset(&placed));
        let (next, later): (Vec<_>, Vec<_>) = remaining.into_iter().partition(free);
        if next.is_empty() {
            return Err(broken("the tables refer to each other in a circle".to_owned()));
        }
        ordered.extend(next);
        remaining = later;
    }
    Ok(ordered)
}

async fn put(transaction: &Transaction<'_>, tables: &[Table], batch: Batch) -> Result<(), StoreError> {
    let Some(table) = tables.get(batch.table) else { return Err(broken("rows of no table".to_owned())) };
    let list = |spell: &dyn Fn(&Column) -> String| table.columns.iter().map(spell).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM json_to_recordset($1::json) AS row({})",
        quoted(&table.name),
        list(&|column| quoted(&column.name)),
        list(&|column| match column.kind {
            Kind::Bytes => format!("decode(row.{}, 'hex')", quoted(&column.name)),
            Kind::Plain | Kind::Flag | Kind::Json => format!("row.{}::{}", quoted(&column.name), column.cast),
        }),
        list(&|column| format!("{} text", quoted(&column.name))),
    );
    let count = batch.rows.len();
    let rows: Vec<Value> = batch.rows.into_iter().map(|cells| object(table, cells)).collect();
    let rows = Value::Array(rows).to_string();
    let written = transaction.execute_typed(&sql, &[p(&rows.as_str())]).await?;
    if usize::try_from(written).ok() != Some(count) {
        return Err(broken(format!("{count} rows of {} were sent and {written} written", table.name)));
    }
    Ok(())
}

fn object(table: &Table, cells: Vec<Cell>) -> Value {
    let members = table.columns.iter().zip(cells).filter_map(|(column, cell)| Some((column.name.clone(), Value::from(cell?))));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Reads everything back and adds it up.
async fn sums(transaction: &Transaction<'_>, tables: &[Table]) -> Result<BTreeMap<String, TableSum>, StoreError> {
    let mut sums = BTreeMap::new();
    for table in tables {
        let names: Vec<String> = table.columns.iter().map(canonical).collect();
        let declared = format!("DECLARE every NO SCROLL CURSOR FOR SELECT {} FROM {}", names.join(", "), quoted(&table.name));
        transaction.batch_execute(&declared).await?;
        let mut sum = Sum::default();
        loop {
            let rows = transaction.query_typed(FETCH, &[]).await?;
            for row in &rows {
                let cells = (0..table.columns.len()).map(|at| row.try_get::<_, Cell>(at)).collect::<Result<Vec<_>, _>>()?;
                sum.add(&table.columns, &cells);
            }
            if rows.is_empty() {
                break;
            }
        }
        transaction.batch_execute("CLOSE every").await?;
        sums.insert(table.name.clone(), sum.finish());
    }
    Ok(sums)
}

/// The expression for the canonical text of a column.
fn canonical(column: &Column) -> String {
    let name = quoted(&column.name);
    match (column.kind, column.cast.as_str()) {
        (Kind::Flag, _) => format!("{name}::integer::text"),
        (Kind::Bytes, _) => format!("encode({name}, 'hex')"),
        (_, "timestamp with time zone") => format!("to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"),
        _ => format!("{name}::text"),
    }
}
