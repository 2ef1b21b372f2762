//! The seeds' functions over the server's token, and a quota shared by several processes.

use std::sync::Arc;

use futures_util::future::join_all;
use jiff::SignedDuration;
use jiff::civil::date;
use tokio_postgres::{Client, NoTls};
use werkruf_contract::Clock;
use werkruf_store::{PostgresOptions, PostgresStore, ProviderAccount, ProviderTokens, SealedToken};

use crate::testbed::fresh_database;
use crate::{FlightStore, SCHEMA};

/// A connection beside the store.
#[expect(clippy::disallowed_methods, reason = "the connection ends with the test that opened it")]
async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn open(url: &str) -> Arc<PostgresStore> {
    PostgresStore::open(PostgresOptions { pool_size: 2, ..PostgresOptions::new(url.to_owned()) }, &Clock::system(0), &[SCHEMA])
        .await
        .unwrap()
}

fn amadeus() -> ProviderAccount {
    ProviderAccount { provider: "amadeus".to_owned(), account: "test".to_owned() }
}

const GET: &str = "SELECT werkruf.get_amadeus_token_for_api(p_environment => 'test')::text";

#[tokio::test]
async fn the_seeds_functions_and_the_server_share_one_sealed_token() {
    let url = fresh_database();
    let store = open(&url).await;
    let client = connect(&url).await;
    // With another search path, as a reader other than the server.
    client.batch_execute("SET search_path TO public; SET ROLE werkruf_operator").await.unwrap();
    let get = || async { client.query_one(GET, &[]).await.unwrap().get::<_, Option<String>>(0) };
    assert_eq!(get().await, None);
    let now = Clock::system(0).now();
    let token = SealedToken { sealed: (1..91).collect(), expires_at: "2026-11-15T12:00:00.250Z".parse().unwrap() };
    store.put_provider_token(amadeus(), token.clone(), now).await.unwrap();

    client.batch_execute("RESET ROLE; SET ROLE werkruf_system").await.unwrap();
    let got: serde_json::Value = serde_json::from_str(&get().await.unwrap()).unwrap();
    assert_eq!((&got["expires_at"], &got["token_type"]), (&1_794_744_000_250_i64.into(), &"Bearer".into()));
    let sealed = got["access_token"].as_str().unwrap();
    assert!(sealed.starts_with("sealed:v2:AQID") && !sealed.contains('\n'), "{sealed}");

    let put = |token: &str, kind: &str, seconds: i32| {
        let sql = format!(
            "SELECT werkruf.store_amadeus_token_secure(p_access_token => '{token}', p_token_type => '{kind}', p_expires_in => {seconds},
               p_environment => 'test')"
        );
        let client = &client;
        async move { client.batch_execute(&sql).await }
    };
    put(sealed, "Bearer", 1799).await.unwrap();
    let stored = store.provider_token(amadeus()).await.unwrap().unwrap();
    assert_eq!(stored.sealed, token.sealed, "the token that was read is stored unchanged");
    let lasts = stored.expires_at.duration_since(now);
    assert!(lasts > SignedDuration::from_secs(1790) && lasts < SignedDuration::from_secs(1900), "{lasts:?}");
    for (token, kind, seconds) in
        [("CpjU0sEenniHCgPDrndzOSWFk5mN", "Bearer", 1799), ("sealed:v2:AQID", "Bearer", 1799), (sealed, "MAC", 1799), (sealed, "Bearer", 0)]
    {
        assert!(put(token, kind, seconds).await.is_err(), "{token} {kind} {seconds}");
    }
    client.batch_execute("SET ROLE werkruf_operator").await.unwrap();
    assert!(put(sealed, "Bearer", 1799).await.is_err(), "a role that only reads stores nothing");
    client.batch_execute("SET ROLE werkruf_app; SET werkruf.tenant TO '00000000-0000-0000-0000-00000000000a'").await.unwrap();
    assert_eq!(get().await, None, "a tenant does not see the installation's token");
    assert!(put(sealed, "Bearer", 1799).await.is_err());
    assert_eq!(store.provider_token(amadeus()).await.unwrap().unwrap(), stored);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_counts_over_processes() {
    let url = fresh_database();
    let stores = [open(&url).await, open(&url).await, open(&url).await];
    let spending = (0..60).map(|at| stores[at % 3].spend_call(amadeus(), date(2026, 11, 15), 25));
    let mut numbers: Vec<i64> = join_all(spending).await.into_iter().filter_map(Result::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=25).collect::<Vec<_>>());
}
