//! The shared store tests on PostgreSQL: each in a database of its own, with the roles that the server uses.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use werkruf_contract::{BoxFuture, Clock};

use super::flush::DbRole;
use super::row::all;
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

    fn texts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move { all(&self.query(DbRole::System, query, &[]).await.unwrap(), |columns| columns.text()).unwrap() })
    }

    fn everything(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let tables =
                "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1";
            let mut rows = Vec::new();
            for table in self.texts(tables).await {
                rows.extend(self.texts(&format!("SELECT '{table} ' || found::text FROM {table} AS found ORDER BY 1")).await);
            }
            rows
        })
    }

    const COUNTED_ON: &'static str = "CAST(coalesce(u.counted_on, (u.created_at AT TIME ZONE 'UTC')::date) AS TEXT)";
}

crate::story::tell!(fresh);
