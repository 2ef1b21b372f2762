//! Brings a PostgreSQL schema to what this binary knows. Numbered, checked against what was applied, forward only.
//!
//! Invariants: everything that is missing comes in one transaction, so one that is cut off leaves nothing; many servers that start at
//! once take turns by a lock that ends with that transaction (it guards the schema, never a conversation); an applied migration never
//! changes. A schema serves the binary that made it and the one before: each migration says from which schema on a binary may use it.
//! Rows are behind the walls for everybody: a migration that changes rows must `SET LOCAL ROLE werkruf_system` first and reset it after.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, GenericClient};
use werkruf_contract::hex;

use super::error::broken;
use super::param::p;
use crate::{SchemaReport, StoreError, crash};

/// One step of the schema.
pub(super) struct Migration {
    pub(super) version: i64,
    /// The schema a binary must know at least to work on this one.
    pub(super) compatible_with: i64,
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
}

/// Every step, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, compatible_with: 1, name: "first", sql: include_str!("migrations/0001_first.sql") },
    Migration { version: 2, compatible_with: 2, name: "turns", sql: include_str!("migrations/0002_turns.sql") },
    Migration { version: 3, compatible_with: 2, name: "boardings", sql: include_str!("migrations/0003_boardings.sql") },
    Migration { version: 4, compatible_with: 2, name: "ledger", sql: include_str!("migrations/0004_ledger.sql") },
    Migration { version: 5, compatible_with: 2, name: "knowledge", sql: include_str!("migrations/0005_knowledge.sql") },
    Migration { version: 6, compatible_with: 2, name: "search", sql: include_str!("migrations/0006_search.sql") },
    Migration { version: 7, compatible_with: 2, name: "embedding_claims", sql: include_str!("migrations/0007_embedding_claims.sql") },
    Migration { version: 8, compatible_with: 2, name: "retention", sql: include_str!("migrations/0008_retention.sql") },
    Migration { version: 9, compatible_with: 2, name: "principals", sql: include_str!("migrations/0009_principals.sql") },
];

const ROLES: &str = include_str!("roles.sql");
const WALLS: &str = include_str!("row_security.sql");
const COMPAT_VIEWS: &str = include_str!("compat_views.sql");

/// The views of older versions cannot look through the eyes of whoever asks, so they would not respect the walls.
const OLDEST_SERVER: i64 = 150_000;

impl Migration {
    fn checksum(&self) -> String {
        hex(&Sha256::digest(self.sql.as_bytes()))
    }
}

/// A migration as the database remembers it.
struct Applied {
    version: i64,
    checksum: String,
    compatible_with: i64,
}

/// Applies what is missing in `schema`, a plain identifier. Says which version is there afterwards.
pub(super) async fn migrate(client: &mut Client, schema: &str, steps: &[Migration], now: Timestamp) -> Result<i64, StoreError> {
    let server: String = client.query_typed_one("SELECT current_setting('server_version_num')", &[]).await?.try_get(0)?;
    if server.parse::<i64>().is_ok_and(|server| server < OLDEST_SERVER) {
        return Err(broken(format!("this is PostgreSQL {}; 15 is the oldest that can be used", server.get(..2).unwrap_or_default())));
    }
    // Nearly always there is nothing to do, and then nobody waits for anybody.
    if let Some(current) = up_to_date(&applied(client, schema).await?, steps)? {
        return Ok(current);
    }
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        .await?;
    let lock = format!("werkruf migrate {schema}");
    transaction.query_typed("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[p(&lock.as_str())]).await?;
    let applied = applied(&transaction, schema).await?;
    if let Some(current) = up_to_date(&applied, steps)? {
        return Ok(current);
    }
    if applied.is_empty() {
        begin(&transaction, schema).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path TO {schema}; {ROLES}")).await?;
    let current = applied.last().map_or(0, |last| last.version);
    let mut reached = current;
    for step in steps.iter().filter(|step| step.version > current) {
        transaction.batch_execute(step.sql).await?;
        crash::point("inside_migration");
        let noted = "INSERT INTO schema_migrations (version, name, checksum, compatible_with, applied_at) VALUES ($1, $2, $3, $4, $5)";
        let checksum = step.checksum();
        let checksum = checksum.as_str();
        let values = [p(&step.version), p(&step.name), p(&checksum), p(&step.compatible_with), p(&now)];
        transaction.execute_typed(noted, &values).await?;
        reached = step.version;
    }
    transaction.batch_execute(WALLS).await?;
    transaction.commit().await?;
    crash::point("after_migration");
    Ok(reached)
}

/// Whether there is nothing to do; what is wrong where this binary must not touch the schema.
fn up_to_date(applied: &[Applied], steps: &[Migration]) -> Result<Option<i64>, StoreError> {
    let known = steps.last().map_or(0, |step| step.version);
    if let Some(newest) = applied.last()
        && applied.iter().any(|step| step.compatible_with > known)
    {
        return Err(StoreError::TooNew { found: newest.version, known });
    }
    for found in applied.iter().filter(|found| found.version <= known) {
        if !steps.iter().any(|step| step.version == found.version && step.checksum() == found.checksum) {
            return Err(broken(format!("migration {} in the database is not the one this binary has", found.version)));
        }
    }
    Ok(applied.last().map(|last| last.version).filter(|version| *version >= known))
}

/// The schema and its list of migrations; a schema of this name that is somebody else's is left alone.
async fn begin(client: &impl GenericClient, schema: &str) -> Result<(), StoreError> {
    let foreign = "SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1)";
    if client.query_typed_one(foreign, &[p(&schema)]).await?.try_get(0)? {
        return Err(broken(format!("the schema {schema} holds tables of another program; name another one with WERKRUF_DATABASE_SCHEMA")));
    }
    let made = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
         CREATE TABLE {schema}.schema_migrations (
           version         bigint NOT NULL PRIMARY KEY,
           name            text NOT NULL,
           checksum        text NOT NULL,
           compatible_with bigint NOT NULL,
           applied_at      timestamptz NOT NULL
         )"
    );
    Ok(client.batch_execute(&made).await?)
}

async fn applied(client: &impl GenericClient, schema: &str) -> Result<Vec<Applied>, StoreError> {
    // Asked of the tables themselves: a name's look-up may remember that it was not there before we waited.
    let there = "SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                   WHERE nspname = $1 AND relname = 'schema_migrations')";
    if !client.query_typed_one(there, &[p(&schema)]).await?.try_get::<_, bool>(0)? {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT version, checksum, compatible_with FROM {schema}.schema_migrations ORDER BY version");
    let rows = client.query_typed(&sql, &[]).await?;
    let read =
        |row: &tokio_postgres::Row| Ok(Applied { version: row.try_get(0)?, checksum: row.try_get(1)?, compatible_with: row.try_get(2)? });
    rows.iter().map(read).collect()
}

/// How far the schema is, without touching it.
pub(super) async fn report(client: &Client, schema: &str, steps: &[Migration]) -> Result<SchemaReport, StoreError> {
    let applied = applied(client, schema).await?;
    up_to_date(&applied, steps)?;
    let found = applied.last().map_or(0, |last| last.version);
    let pending = steps.iter().filter(|step| step.version > found).map(|step| format!("{:04}_{}", step.version, step.name));
    Ok(SchemaReport { found, known: steps.last().map_or(0, |step| step.version), pending: pending.collect() })
}

/// Puts the seeds' views into `public` too.
pub(super) async fn compat_views(client: &mut Client, schema: &str) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL search_path TO {schema}; {COMPAT_VIEWS}")).await?;
    Ok(transaction.commit().await?)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
