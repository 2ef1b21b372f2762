//! Operations on a whole database: migrate its schema, report on it, import a SQLite database.

use std::path::PathBuf;

use tokio_postgres::Client;
use werkruf_contract::Clock;

use super::migrate::Schema;
use super::{PostgresOptions, PostgresStore, import_sqlite, migrate, pool};
use crate::{MaintenanceError, Modules, Moved, SchemaReport, StoreError};

impl PostgresStore {
    /// Applies the migrations that are missing.
    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        let mut client = self.acquire().await?;
        let client: &mut Client = &mut client;
        migrate::migrate(client, &self.options.schema, &Schema::new(self.modules), self.clock.now()).await
    }

    /// Compares the schema of a database with that of this binary; changes nothing.
    pub async fn schema_report(options: &PostgresOptions, modules: Modules) -> Result<SchemaReport, StoreError> {
        options.check_schema()?;
        let pool = pool(options)?;
        let client = pool.get().await.map_err(super::fault::Fault::from)?;
        migrate::report(&client, &options.schema, &Schema::new(modules)).await
    }

    /// Creates the views and functions with the seeds' names in `public` too.
    pub async fn add_compat_views(&self) -> Result<(), StoreError> {
        let mut client = self.acquire().await?;
        let client: &mut Client = &mut client;
        migrate::compat_views(client, &self.options.schema, self.modules).await
    }

    /// Imports a whole SQLite database in one transaction that is read back before it is committed. The target must be empty; the
    /// file is locked meanwhile and not changed.
    pub async fn import_sqlite(&self, from: PathBuf, clock: Clock) -> Result<Moved, MaintenanceError> {
        let mut client = self.acquire().await.map_err(StoreError::from)?;
        let client: &mut Client = &mut client;
        import_sqlite::import_sqlite(client, &self.options.schema, from, clock, self.modules).await
    }
}
