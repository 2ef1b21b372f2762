//! Brings a PostgreSQL schema to what this binary knows: numbered migrations per part of the schema, and a numbered set of functions per part.
//!
//! Everything that is missing is applied in one transaction, so an interrupted start leaves nothing behind. Processes that start at
//! once wait for each other by an advisory lock that ends with that transaction. An applied migration never changes; migrations only go
//! forward; each says which migration of its part a binary must know at least to work on the schema. Row-level security holds for every
//! role: a migration that changes rows must `SET LOCAL ROLE werkruf_system` first and reset it after.
//!
//! Functions (`functions/*.sql`) are no migrations: the whole set is replaced where the set in the database has a lower number. A binary
//! with a lower number leaves a newer set alone and works with it, because a set keeps the signatures that the binary before it calls.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, GenericClient};
use werkruf_contract::hex;

use super::error::broken;
use super::param::p;
use crate::{FunctionSet, Migration, Modules, SchemaReport, StoreError, crash};

/// A migration and the part that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct PartMigration {
    pub(super) part: &'static str,
    pub(super) migration: Migration,
}

/// A set of functions and the name under which it is recorded beside the parts.
#[derive(Clone)]
pub(super) struct PartFunctions {
    pub(super) part: String,
    pub(super) set: FunctionSet,
}

/// What a binary wants the database to have.
#[derive(Clone)]
pub(super) struct Schema {
    /// In the order in which they are applied.
    pub(super) migrations: Vec<PartMigration>,
    pub(super) functions: Vec<PartFunctions>,
}

const KERNEL: &str = "kernel";
const KERNEL_MIGRATIONS: &[Migration] = &[Migration::first(include_str!("migrations/kernel/0001_first.sql"))];

/// The number must rise with every change of a file in `functions` after a release; `project_rules` compares both with its list.
const KERNEL_FUNCTIONS: FunctionSet = FunctionSet {
    number: 1,
    compatible_with: 1,
    files: &[
        include_str!("functions/leases.sql"),
        include_str!("functions/rows.sql"),
        include_str!("functions/budgets.sql"),
        include_str!("functions/turns.sql"),
        include_str!("functions/conversations.sql"),
        include_str!("functions/people.sql"),
        include_str!("functions/usage.sql"),
        include_str!("functions/retention.sql"),
        include_str!("functions/audit.sql"),
        include_str!("functions/outbox.sql"),
        include_str!("functions/alerts.sql"),
    ],
};

impl Schema {
    /// The schema of a binary with these modules.
    pub(super) fn new(modules: Modules) -> Self {
        let parts = std::iter::once((KERNEL, KERNEL_MIGRATIONS, Some(KERNEL_FUNCTIONS)))
            .chain(modules.iter().map(|module| (module.name, module.postgres.migrations, module.postgres.functions)));
        let mut schema = Self { migrations: Vec::new(), functions: Vec::new() };
        for (part, migrations, functions) in parts {
            schema.migrations.extend(migrations.iter().map(|migration| PartMigration { part, migration: *migration }));
            schema.functions.extend(functions.map(|set| PartFunctions { part: format!("{part}{FUNCTIONS}"), set }));
        }
        schema
    }
}

/// A function set is recorded under the name of its part with this ending.
const FUNCTIONS: &str = "/functions";
const ROLES: &str = include_str!("roles.sql");
const ROW_SECURITY: &str = include_str!("row_security.sql");
const COMPAT_VIEWS: &str = include_str!("compat_views.sql");

/// Views of older versions cannot run with the rights of the caller, so they would ignore row-level security.
const OLDEST_SERVER: i64 = 150_000;

fn checksum(sql: &str) -> String {
    hex(&Sha256::digest(sql.as_bytes()))
}

/// The function sets of a binary with these modules: the name in `schema_migrations`, the number and the checksum of each.
pub fn function_sets(modules: Modules) -> Vec<(String, i64, String)> {
    let known = Schema::new(modules).functions.into_iter();
    known.map(|PartFunctions { part, set }| (part, set.number, checksum(&set.files.concat()))).collect()
}

/// A row of `schema_migrations`.
struct Applied {
    part: String,
    number: i64,
    checksum: String,
    compatible_with: i64,
}

/// What the database lacks.
struct Missing<'a> {
    migrations: Vec<&'a PartMigration>,
    functions: Vec<&'a PartFunctions>,
}

impl Missing<'_> {
    fn is_empty(&self) -> bool {
        self.migrations.is_empty() && self.functions.is_empty()
    }
}

impl Schema {
    fn functions_of(&self, part: &str) -> Option<&FunctionSet> {
        self.functions.iter().find(|known| known.part == part).map(|known| &known.set)
    }

    /// Number of the newest migration that this binary has of a part, or of its function set; 0 for a part it does not know.
    fn newest(&self, part: &str) -> i64 {
        if let Some(set) = self.functions_of(part) {
            return set.number;
        }
        self.migrations.iter().filter(|known| known.part == part).map(|known| known.migration.number).max().unwrap_or(0)
    }

    fn checksum(&self, part: &str, number: i64) -> Option<String> {
        if let Some(set) = self.functions_of(part) {
            // Sets before the current one are not in the binary any more.
            return (number == set.number).then(|| checksum(&set.files.concat()));
        }
        let known = self.migrations.iter().find(|known| known.part == part && known.migration.number == number);
        known.map(|known| checksum(known.migration.sql))
    }

    /// What the schema `name` of the database lacks; an error where this binary must not work on the schema.
    fn missing(&self, applied: &[Applied], name: &str) -> Result<Missing<'_>, StoreError> {
        for row in applied {
            let known = self.newest(&row.part);
            if row.compatible_with > known {
                let found = newest_applied(applied, &row.part);
                return Err(StoreError::TooNew { part: row.part.clone(), found, known });
            }
            let is_older_set = row.part.ends_with(FUNCTIONS) && row.number < known;
            if row.number <= known && !is_older_set && self.checksum(&row.part, row.number).as_ref() != Some(&row.checksum) {
                // Only unreleased builds had other SQL under the same number.
                return Err(StoreError::Prerelease(format!("the schema {name}")));
            }
        }
        Ok(Missing {
            migrations: self.migrations.iter().filter(|known| known.migration.number > newest_applied(applied, known.part)).collect(),
            functions: self.functions.iter().filter(|known| known.set.number > newest_applied(applied, &known.part)).collect(),
        })
    }
}

fn newest_applied(applied: &[Applied], part: &str) -> i64 {
    applied.iter().filter(|row| row.part == part).map(|row| row.number).max().unwrap_or(0)
}

/// Applies what `name`, a plain identifier, lacks.
pub(super) async fn migrate(client: &mut Client, name: &str, schema: &Schema, now: Timestamp) -> Result<(), StoreError> {
    let server: String = client.query_typed_one("SELECT current_setting('server_version_num')", &[]).await?.try_get(0)?;
    if server.parse::<i64>().is_ok_and(|server| server < OLDEST_SERVER) {
        return Err(broken(format!("this is PostgreSQL {}; 15 is the oldest that can be used", server.get(..2).unwrap_or_default())));
    }
    // Nearly always nothing is missing, and then no process waits for another.
    if schema.missing(&applied(client, name).await?, name)?.is_empty() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction
        .batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        .await?;
    let lock = format!("werkruf migrate {name}");
    transaction.query_typed("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[p(&lock.as_str())]).await?;
    let applied = applied(&transaction, name).await?;
    let missing = schema.missing(&applied, name)?;
    if missing.is_empty() {
        return Ok(());
    }
    if applied.is_empty() {
        create_schema(&transaction, name).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path TO {name}; {ROLES}")).await?;
    for PartMigration { part, migration } in missing.migrations {
        transaction.batch_execute(migration.sql).await?;
        crash::point("inside_migration");
        let Migration { number, compatible_with, name, sql } = *migration;
        let row = Applied { part: (*part).to_owned(), number, checksum: checksum(sql), compatible_with };
        record(&transaction, &row, name, now).await?;
    }
    for PartFunctions { part, set } in missing.functions {
        for sql in set.files {
            transaction.batch_execute(sql).await?;
        }
        let FunctionSet { number, compatible_with, files } = *set;
        record(&transaction, &Applied { part: part.clone(), number, checksum: checksum(&files.concat()), compatible_with }, "set", now)
            .await?;
    }
    transaction.batch_execute(ROW_SECURITY).await?;
    let extended = extend_search_path(&transaction, name).await?;
    transaction.commit().await?;
    crash::point("after_migration");
    if !extended {
        tracing::warn!(
            schema = name,
            "not the owner of the database, so people with the role werkruf_operator must set their search_path; docs/operations.md has the statement for the owner"
        );
    }
    Ok(())
}

/// Puts the schema at the end of the database's default search path, so that people read its tables without a prefix. A setting of
/// `werkruf_operator` would not do: a login takes no settings of the roles that it is a member of. PostgreSQL skips a schema without the
/// right to use it, so nothing changes for other logins. False where only the owner of the database may do it.
async fn extend_search_path(client: &impl GenericClient, name: &str) -> Result<bool, StoreError> {
    // Migrations of other schemas of this database wait: two changes of one row of the catalog at once fail.
    client.batch_execute("SELECT pg_advisory_xact_lock(hashtextextended('werkruf search_path', 0))").await?;
    let sql = "SELECT coalesce((SELECT substr(setting, 13) FROM pg_db_role_setting, unnest(setconfig) AS setting
                   WHERE setdatabase = pg_database.oid AND setrole = 0 AND setting LIKE 'search_path=%'),
                 (SELECT boot_val FROM pg_settings WHERE name = 'search_path')),
               pg_has_role(datdba, 'USAGE'), format('ALTER DATABASE %I SET search_path FROM CURRENT', datname)
               FROM pg_database WHERE datname = current_database()";
    let row = client.query_typed_one(sql, &[]).await?;
    let (path, is_owner, alter): (String, bool, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if path.split(',').any(|known| known.trim() == name) {
        return Ok(true);
    }
    if is_owner {
        client.query_typed("SELECT set_config('search_path', $1, true)", &[p(&format!("{path}, {name}").as_str())]).await?;
        client.batch_execute(&alter).await?;
    }
    Ok(is_owner)
}

async fn record(client: &impl GenericClient, row: &Applied, name: &str, now: Timestamp) -> Result<(), StoreError> {
    let sql = "INSERT INTO schema_migrations (part, number, name, checksum, compatible_with, applied_at) VALUES ($1, $2, $3, $4, $5, $6)";
    let (part, checksum) = (row.part.as_str(), row.checksum.as_str());
    let values = [p(&part), p(&row.number), p(&name), p(&checksum), p(&row.compatible_with), p(&now)];
    client.execute_typed(sql, &values).await?;
    Ok(())
}

/// Creates the schema and its record of migrations. A schema of this name that has tables belongs to another program and is left alone.
async fn create_schema(client: &impl GenericClient, name: &str) -> Result<(), StoreError> {
    let foreign = "SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1)";
    if client.query_typed_one(foreign, &[p(&name)]).await?.try_get(0)? {
        return Err(StoreError::Foreign(format!("the schema {name} holds tables of another program")));
    }
    let sql = format!(
        "CREATE SCHEMA IF NOT EXISTS {name};
         CREATE TABLE {name}.schema_migrations (
           part            text COLLATE \"C\" NOT NULL,
           number          bigint NOT NULL,
           name            text NOT NULL,
           checksum        text NOT NULL,
           compatible_with bigint NOT NULL,
           applied_at      timestamptz NOT NULL,
           PRIMARY KEY (part, number)
         )"
    );
    Ok(client.batch_execute(&sql).await?)
}

/// The record of migrations; empty where the schema does not exist. A record without parts is that of an early unreleased build.
async fn applied(client: &impl GenericClient, name: &str) -> Result<Vec<Applied>, StoreError> {
    // Read from the catalog tables: the lookup of a name may be cached from before the wait for the lock.
    let columns = "SELECT attname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace JOIN pg_attribute ON attrelid = pg_class.oid
                   WHERE nspname = $1 AND relname = 'schema_migrations' AND attnum > 0 AND NOT attisdropped";
    let rows = client.query_typed(columns, &[p(&name)]).await?;
    let columns = rows.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>()?;
    let has = |column: &str| columns.iter().any(|found| found == column);
    if !has("part") {
        return if has("checksum") { Err(StoreError::Prerelease(format!("the schema {name}"))) } else { Ok(Vec::new()) };
    }
    let sql = format!("SELECT part, number, checksum, compatible_with FROM {name}.schema_migrations ORDER BY part, number");
    let rows = client.query_typed(&sql, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Applied { part: row.try_get(0)?, number: row.try_get(1)?, checksum: row.try_get(2)?, compatible_with: row.try_get(3)? })
    };
    rows.iter().map(read).collect()
}

/// Compares the schema of the database with that of the binary, and changes nothing. Migrations of all parts are counted; function sets
/// are not, but a set that is missing is named.
pub(super) async fn report(client: &Client, name: &str, schema: &Schema) -> Result<SchemaReport, StoreError> {
    let applied = applied(client, name).await?;
    let missing = schema.missing(&applied, name)?;
    let migrations = missing.migrations.iter().map(|PartMigration { part, migration }| {
        let Migration { number, name, .. } = migration;
        format!("{part}/{number:04}_{name}")
    });
    let functions = missing.functions.iter().map(|known| format!("{}/{:04}", known.part, known.set.number));
    let count = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
    Ok(SchemaReport {
        found: count(applied.iter().filter(|row| !row.part.ends_with(FUNCTIONS)).count()),
        known: count(schema.migrations.len()),
        pending: migrations.chain(functions).collect(),
    })
}

/// Creates the seeds' views and functions in `public` too, those of the kernel and of the modules.
pub(super) async fn compat_views(client: &mut Client, name: &str, modules: Modules) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL search_path TO {name}; {COMPAT_VIEWS}")).await?;
    for module in modules.iter().filter(|module| !module.postgres.compat_views.is_empty()) {
        transaction.batch_execute(module.postgres.compat_views).await?;
    }
    Ok(transaction.commit().await?)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
