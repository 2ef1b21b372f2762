//! PostgreSQL: any number of processes on one database, each operation one transaction in one flush.
//!
//! What must be decided inside a transaction is decided by functions in the schema (`migrations/*_turns.sql`), so that no round trip
//! stands between a guard and what it guards. Leases count by the database's clock.

mod admin;
mod error;
mod fault;
mod flush;
mod history;
mod import;
mod legacy_source;
mod migrate;
mod options;
mod param;
mod people;
mod people_write;
mod records;
mod row;
mod take_all;
mod text;
mod workspace;

use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;
use werkruf_contract::Clock;

use crate::StoreError;
pub(crate) use legacy_source::read as read_legacy;
use options::Address;
pub use options::PostgresOptions;

/// A database shared with other processes.
pub struct PostgresStore {
    pool: Pool,
    options: PostgresOptions,
    clock: Clock,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date.
    pub async fn open(options: PostgresOptions, clock: &Clock) -> Result<Arc<Self>, StoreError> {
        options.check_schema()?;
        let pool = pool(&options)?;
        let store = Self { pool, options, clock: clock.clone() };
        store.migrate().await?;
        Ok(Arc::new(store))
    }
}

/// Dead connections are thrown away when they are next taken out; no question is asked of a living one.
fn pool(options: &PostgresOptions) -> Result<Pool, StoreError> {
    let Address { mut driver, tls } = Address::parse(&options.url)?;
    driver.connect_timeout(options.connect_timeout).tcp_user_timeout(std::time::Duration::from_secs(2));
    if driver.get_application_name().is_none() {
        driver.application_name("werkruf");
    }
    let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match tls {
        Some(tls) => Manager::from_config(driver, MakeRustlsConnect::new(tls), how),
        None => Manager::from_config(driver, NoTls, how),
    };
    Pool::builder(manager).max_size(options.pool_size.max(1)).build().map_err(|error| StoreError::Broken(error.to_string()))
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("options", &self.options).finish_non_exhaustive()
    }
}
