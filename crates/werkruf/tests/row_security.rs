//! Row-level security on PostgreSQL for the tables of every module: no tenant reads or changes a row of another one.
#![expect(clippy::unwrap_used, reason = "test helpers are part of the tests")]

#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;

use testbed::fresh_database;
use tokio_postgres::{Client, NoTls};
use werkruf::modules::MODULES;
use werkruf_contract::{Clock, Uuid};
use werkruf_store::{PostgresOptions, PostgresStore};

/// One valid row of each table, written for `$tenant`. A table of a module that is missing here fails the test.
const ROWS: &str = "
  INSERT INTO requests (tenant_id, id, title, status, requester_id) VALUES ('$tenant', 1, 'T', 'open', 1);
  INSERT INTO tasks (tenant_id, id, title, status, user_id) VALUES ('$tenant', 1, 'T', 'open', 1);
  INSERT INTO worktimes (tenant_id, id, user_id, started_at) VALUES ('$tenant', 1, 1, now());
  INSERT INTO cerebro_articles (tenant_id, id, title, content) VALUES ('$tenant', 1, 'T', 'C');
  INSERT INTO collections VALUES ('$tenant', 'c', 1, now());
  INSERT INTO documents VALUES ('$tenant', '$tenant', 'c', 'd', 'T', NULL, false, '{}', 'g', 1, 'r', now(), now());
  INSERT INTO chunks (tenant_id, id, collection, document, position, heading, content, change)
    VALUES ('$tenant', '$tenant', 'c', '$tenant', 0, '', 'T', 1);
  INSERT INTO chunk_terms VALUES ('$tenant', 'c', 1, '');
  INSERT INTO chunk_vectors VALUES ((SELECT min(number) FROM chunks), '$tenant', 'c', 'm', NULL, 1);
  INSERT INTO removed_chunks VALUES ('$tenant', 'c', 1, 0);
";
#[cfg(feature = "flights")]
const ROWS_OF_FLIGHTS: &str = "
  INSERT INTO provider_quota VALUES ('$tenant', 'p', 'a', now(), 1);
  INSERT INTO provider_answers VALUES ('$tenant', 'd', 'x', now(), now());
";
#[cfg(not(feature = "flights"))]
const ROWS_OF_FLIGHTS: &str = "";

struct TwoTenants {
    client: Client,
    a: Uuid,
    b: Uuid,
}

impl TwoTenants {
    #[expect(clippy::disallowed_methods, reason = "the connection ends with the test that opened it")]
    async fn open() -> Self {
        let url = fresh_database();
        PostgresStore::open(PostgresOptions::new(url.clone()), &Clock::system(0), MODULES).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET search_path TO werkruf").await.unwrap();
        let database = Self { client, a: Uuid::from_u128(0xa), b: Uuid::from_u128(0xb) };
        for tenant in [database.a, database.b] {
            database.set_role("werkruf_app", Some(tenant)).await;
            for rows in [ROWS, ROWS_OF_FLIGHTS] {
                database.client.batch_execute(&rows.replace("$tenant", &tenant.to_string())).await.unwrap();
            }
        }
        database
    }

    async fn set_role(&self, role: &str, tenant: Option<Uuid>) {
        let tenant = tenant.map(|id| id.to_string()).unwrap_or_default();
        self.client.batch_execute(&format!("SET ROLE {role}; SET werkruf.tenant TO '{tenant}'")).await.unwrap();
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(&format!("SELECT count(*) FROM {sql}"), &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn a_tenant_reaches_only_its_own_rows_of_modules() {
    let database = TwoTenants::open().await;
    let (a, b) = (database.a, database.b);
    for table in MODULES.iter().flat_map(|module| module.tables) {
        let name = table.name;
        database.set_role("werkruf_app", None).await;
        if table.only_on_postgres {
            assert!(database.client.query(&format!("SELECT * FROM {name}"), &[]).await.is_err(), "{name} has no tenant");
            continue;
        }
        for (role, tenant, visible) in [
            ("werkruf_app", None, 0),
            ("werkruf_app", Some(a), 1),
            ("werkruf_app", Some(Uuid::from_u128(0xc)), 0),
            ("werkruf_system", None, 2),
            ("werkruf_operator", None, 2),
        ] {
            database.set_role(role, tenant).await;
            assert_eq!(database.count(name).await, visible, "{name} as {role} of {tenant:?}");
        }
        for sql in [format!("DELETE FROM {name}"), format!("UPDATE {name} SET tenant_id = tenant_id")] {
            assert!(database.client.execute(&sql, &[]).await.is_err(), "{name}: the operator role only reads");
        }
        database.set_role("werkruf_app", Some(a)).await;
        assert_eq!(database.count(&format!("{name} WHERE tenant_id = '{b}'")).await, 0, "{name}: another tenant named in the query");
        let stolen = database.client.execute(&format!("UPDATE {name} SET tenant_id = '{a}' WHERE tenant_id = '{b}'"), &[]).await;
        assert_eq!(stolen.unwrap(), 0, "{name}: a row of another tenant was updated");
        let given = database.client.execute(&format!("UPDATE {name} SET tenant_id = '{b}'"), &[]).await;
        assert!(given.is_err(), "{name}: a row was given to another tenant");
    }
    let tables = MODULES.iter().flat_map(|module| module.tables).filter(|table| !table.only_on_postgres);
    for table in tables.collect::<Vec<_>>().into_iter().rev() {
        database.set_role("werkruf_app", Some(a)).await;
        database.client.execute(&format!("DELETE FROM {}", table.name), &[]).await.unwrap();
        database.set_role("werkruf_system", None).await;
        assert_eq!(database.count(&format!("{} WHERE tenant_id = '{b}'", table.name)).await, 1, "{}", table.name);
    }
}
