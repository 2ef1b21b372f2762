//! PostgreSQL: any number of processes on one database, each operation one transaction in one flush.
//!
//! Guards that must hold inside a transaction are in functions of the schema (`functions/*.sql`), so that no round trip lies between a
//! guard and the write that it guards. Leases count by the database's clock.

mod admin;
mod alerts;
mod approvals;
mod audit;
mod budgets;
mod client_conversations;
mod client_requests;
mod cluster;
mod connections;
mod console;
mod diagnosis;
mod erase;
mod error;
mod fault;
mod flush;
mod history;
mod hold;
mod identity;
mod import;
mod import_sqlite;
mod installation;
mod keys;
mod legacy;
mod legacy_source;
mod manage_people;
mod migrate;
mod notify;
mod operator_database;
mod options;
mod outbox;
mod outbox_claim;
mod param;
mod people;
mod people_write;
mod plain_password;
mod provider_tokens;
mod records;
mod retention;
mod row;
mod streams;
mod system;
mod text;
mod tls;
mod tool_pins;
mod turn_documents;
mod turn_open;
mod turn_write;
mod turns;
mod usage;
mod usage_documents;
mod usage_statistics;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;
use werkruf_contract::Clock;

use crate::{Modules, Recorder, SecretKeys, StoreError};
pub use audit::record;
pub use fault::Fault;
pub use flush::{DbRole, Param, Statement, Transaction};
pub(crate) use import_sqlite::storable;
pub(crate) use legacy_source::read as read_legacy;
pub use migrate::function_sets;
use notify::Notifier;
pub use operator_database::OperatorPostgres;
use options::Address;
pub use options::PostgresOptions;
pub use param::{Typed, clean_or_null, ms, ms_or_null, p};
pub use row::{Columns, all, first, only};
pub use text::{clean, clean_json};

/// A database shared with other processes.
pub struct PostgresStore {
    pool: Pool,
    options: PostgresOptions,
    clock: Clock,
    /// How long a lease is valid, in seconds, as the statements take it.
    ttl: f64,
    /// `None` where LISTEN and NOTIFY are switched off.
    notifier: Option<Notifier>,
    /// Transactions that this process has committed.
    commits: AtomicU64,
    modules: Modules,
    recorder: Recorder,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date.
    pub async fn open(options: PostgresOptions, clock: &Clock, modules: Modules) -> Result<Arc<Self>, StoreError> {
        let mut store = Self::unmigrated(options, clock, modules)?;
        store.migrate().await?;
        if !store.options.poll_only {
            let Address { driver, encryption } = address(&store.options)?;
            store.notifier = Some(Notifier::open(driver, encryption, &store.options.schema, clock));
        }
        Ok(Arc::new(store))
    }

    /// The store as it is before its first connection.
    fn unmigrated(options: PostgresOptions, clock: &Clock, modules: Modules) -> Result<Self, StoreError> {
        options.check_schema()?;
        Ok(Self {
            pool: pool(&options)?,
            ttl: options.lease_ttl.as_secs_f64(),
            options,
            clock: clock.clone(),
            notifier: None,
            commits: AtomicU64::new(0),
            modules,
            recorder: Recorder::new(SecretKeys::default(), clock),
        })
    }

    /// How long a lease or a claim counts without being renewed.
    pub const fn lease_ttl(&self) -> std::time::Duration {
        self.options.lease_ttl
    }

    /// The clock of the process.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn address(options: &PostgresOptions) -> Result<Address, StoreError> {
    let mut address = Address::parse(&options.url)?;
    address.driver.connect_timeout(options.connect_timeout).tcp_user_timeout(std::time::Duration::from_secs(2));
    if address.driver.get_application_name().is_none() {
        address.driver.application_name("werkruf");
    }
    Ok(address)
}

/// A dead connection is discarded when it is next taken out of the pool; a live one is not tested first.
fn pool(options: &PostgresOptions) -> Result<Pool, StoreError> {
    let Address { driver, encryption } = address(options)?;
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match encryption {
        Some(encryption) => Manager::from_config(driver, encryption, config),
        None => Manager::from_config(driver, NoTls, config),
    };
    Pool::builder(manager).max_size(options.pool_size.max(1)).build().map_err(|error| StoreError::Broken(error.to_string()))
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod bouncer_tests;
#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod legacy_tests;
#[cfg(test)]
mod maintenance_tests;
#[cfg(test)]
mod outbox_tests;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod retention_tests;
#[cfg(test)]
mod row_security_tests;
#[cfg(test)]
mod story_tests;
