//! The shared store tests behind PgBouncer in transaction mode, where each transaction may get another connection.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use werkruf_contract::Clock;

use super::{PostgresOptions, PostgresStore};
use crate::testbed::fresh_database;

/// The address of the pooler, without a database; `None` on a machine where PgBouncer cannot be installed.
static BOUNCER: LazyLock<Option<String>> = LazyLock::new(|| {
    let made = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres/bouncer")).output().unwrap();
    if made.status.code() == Some(3) {
        eprintln!("no PgBouncer on this machine; the tests run without it");
        return None;
    }
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(String::from_utf8(made.stdout).unwrap().trim().to_owned())
});

fn through_bouncer(url: &str) -> String {
    let database = url.rsplit_once('/').unwrap().1;
    BOUNCER.as_ref().map_or_else(|| url.to_owned(), |bouncer| format!("{bouncer}/{database}"))
}

async fn fresh() -> (Arc<PostgresStore>, Clock, ()) {
    let (clock, url) = (Clock::system(0), through_bouncer(&fresh_database()));
    let options = PostgresOptions { pool_size: 4, poll_only: true, ..PostgresOptions::new(url) };
    (PostgresStore::open(options, &clock, crate::story::MODULES).await.unwrap(), clock, ())
}

crate::story::tell!(fresh);
