//! The shared store tests on PostgreSQL: each in a database of its own, with the roles that the server uses.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use werkruf_contract::{BoxFuture, Clock};

use super::{PostgresOptions, PostgresStore};
use crate::story::Tamper;
use crate::testbed::fresh_database;

/// A new store.
pub(super) async fn fresh() -> (Arc<PostgresStore>, Clock, ()) {
    let clock = Clock::system(0);
    let options = PostgresOptions { pool_size: 4, ..PostgresOptions::new(fresh_database()) };
    (PostgresStore::open(options, &clock, crate::story::MODULES).await.unwrap(), clock, ())
}

/// A connection beside the store.
pub(super) async fn connect(url: &str) -> Client {
    connect_with(&url.parse().unwrap()).await
}

#[expect(clippy::disallowed_methods, reason = "the connection ends with the test that opened it")]
pub(super) async fn connect_with(config: &tokio_postgres::Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Tamper for PostgresStore {
    fn sql<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let client = connect(&self.options.url).await;
            client.batch_execute(&format!("SET search_path TO {}; {text}", self.options.schema)).await.unwrap();
        })
    }
}

crate::story::tell!(fresh);
