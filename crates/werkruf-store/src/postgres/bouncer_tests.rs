//! The one story behind PgBouncer in transaction mode, where a connection is another one with every transaction.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use werkruf_contract::Clock;

use super::{PostgresOptions, PostgresStore};
use crate::testbed::fresh_database;

/// The same database through the pooler; as it is on a machine that cannot have one.
fn bounced(url: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres/bouncer");
    let made = Command::new(script).output().unwrap();
    if made.status.code() == Some(3) {
        eprintln!("no PgBouncer on this machine; the story is told without it");
        return url.to_owned();
    }
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let database = url.rsplit_once('/').unwrap().1;
    format!("{}/{database}", String::from_utf8(made.stdout).unwrap().trim())
}

async fn fresh() -> (Arc<PostgresStore>, Clock, ()) {
    let (clock, url) = (Clock::system(0), bounced(&fresh_database()));
    let options = PostgresOptions { pool_size: 4, poll_only: true, ..PostgresOptions::new(url) };
    (PostgresStore::open(options, &clock).await.unwrap(), clock, ())
}

crate::story::tell!(fresh);
