//! The one story, told on PostgreSQL: each chapter in a database of its own, as the roles the server uses.

use std::sync::Arc;

use werkruf_contract::Clock;

use super::{PostgresOptions, PostgresStore};
use crate::testbed::fresh_database;

/// A new store.
pub(super) async fn fresh() -> (Arc<PostgresStore>, Clock, ()) {
    let clock = Clock::system(0);
    let options = PostgresOptions { pool_size: 4, ..PostgresOptions::new(fresh_database()) };
    (PostgresStore::open(options, &clock).await.unwrap(), clock, ())
}

crate::story::tell!(fresh);
