//! Row-level security, tested with the roles that the server uses: whatever a query forgets, no row of another tenant is read or changed.

use jiff::Timestamp;
use tokio_postgres::Client;
use werkruf_contract::Uuid;

use super::migrate::{Schema, migrate};
use super::story_tests::{connect, connect_with};
use crate::testbed::fresh_database;

/// Every table with a tenant, with a row of each of two tenants in it.
struct TwoTenants {
    client: Client,
    tables: Vec<String>,
    a: Uuid,
    b: Uuid,
}

/// One valid row of each table, written for `$tenant`. A table that is missing here fails the first test below.
const ROWS: &str = "
  INSERT INTO tenants (id, slug, created_at) VALUES ('$tenant', 'slug-$tenant', now());
  INSERT INTO branches VALUES ('$tenant', 1, 'B', 'UTC');
  INSERT INTO roles VALUES ('$tenant', 1, 'R');
  INSERT INTO permissions VALUES ('$tenant', 1, 0, 'e', 't', 'read', 'own');
  INSERT INTO users (tenant_id, id, first_name, last_name, locale) VALUES ('$tenant', 1, 'F', 'L', 'en-US');
  INSERT INTO user_roles VALUES ('$tenant', 1, 1);
  INSERT INTO api_keys (tenant_id, id, digest, scopes, created_at) VALUES ('$tenant', '$tenant', 'digest-$tenant', 'chat', now());
  INSERT INTO console_sessions VALUES ('$tenant', '$tenant', 'digest-$tenant', false, '$tenant', NULL, now(), now());
  INSERT INTO conversations VALUES ('$tenant', '$tenant', '1', 'web', 'default', 'T', '{}', now(), now());
  INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES ('$tenant', '$tenant', 0, 1, 1);
  INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role) VALUES ('$tenant', '$tenant', now(), '$tenant', 'C', 'user');
  INSERT INTO turns (tenant_id, id, conversation_id, user_id, kind, assistant, status, created_at, updated_at)
    VALUES ('$tenant', '$tenant', '$tenant', '1', 'chat', 'default', 'completed', now(), now());
  INSERT INTO tool_calls (tenant_id, id, conversation_id, turn_id, step, output_index, kind, runner, tool_name, status, effect, context, created_at, updated_at)
    VALUES ('$tenant', '$tenant', '$tenant', '$tenant', 1, 0, 'function', 'server', 't', 'succeeded', 'read', '{}', now(), now());
  INSERT INTO call_attempts VALUES ('$tenant', '$tenant', 1, now(), now(), 'failed', '{}');
  INSERT INTO events VALUES ('$tenant', 1, '$tenant', '$tenant', 'init', '{}', now());
  INSERT INTO inbox VALUES ('$tenant', 'api', 'a', 'e', 'f', '$tenant', now(), now());
  INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, part, status, repeatable, next_at, created_at, updated_at, body)
    VALUES ('$tenant', '$tenant', 'c', 'a', 'r', 'l', 1, 'pending', false, now(), now(), now(), '{}');
  INSERT INTO outbox_lanes VALUES ('$tenant', 'l', now(), 'c', 'a');
  INSERT INTO alerts VALUES ('$tenant', '$tenant', 'k', 's', false, NULL, '{}', now(), now(), NULL);
  INSERT INTO contacts (tenant_id, channel, account, person, address, created_at, updated_at) VALUES ('$tenant', 'c', 'a', 'p', 'd', now(), now());
  INSERT INTO rate_windows VALUES ('$tenant', 'key', now(), 1);
  INSERT INTO dedupe_claims VALUES ('$tenant', 'key', '$tenant', now());
  INSERT INTO approvals (tenant_id, id, turn_id, call_id, tool_name, arguments, arguments_digest, approver_roles, asked_by, asked_key, status, created_at, expires_at)
    VALUES ('$tenant', '$tenant', '$tenant', '$tenant', 't', '{}', 'd', '[]', '1', 'key:1', 'pending', now(), now());
  INSERT INTO api_usage (id, tenant_id, user_id, created_at, provider, model, operation, tokens_prompt, tokens_cached, tokens_completion,
    tokens_reasoning, tokens_total, estimated) VALUES ('$tenant', '$tenant', '1', now(), 'p', 'm', 'chat', 1, 0, 1, 0, 2, false);
  INSERT INTO usage_daily VALUES ('$tenant', '2026-01-01', '1', 'm', '', true, 1, 1, 0, 1, 0, 2, 0, 1, 0);
  INSERT INTO budgets VALUES ('$tenant', '$tenant', 'tenant', NULL, 'day', 'tokens', 1, false, now());
  INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved) VALUES ('$tenant', '$tenant', '', '2026-01-01', 1, 0);
  INSERT INTO budget_reservations VALUES ('$tenant', '$tenant', '$tenant', '', '2026-01-01', 1, NULL, now());
  INSERT INTO provider_tokens VALUES ('$tenant', 'p', 'a', 'x', NULL, now(), now());
  INSERT INTO provider_claims VALUES ('$tenant', 'p', 'a', '$tenant', now());
  INSERT INTO connections VALUES ('$tenant', '1', 's', 'x', NULL, now(), now());
  INSERT INTO connection_requests VALUES ('$tenant', '$tenant', '1', 's', NULL, 'digest-$tenant', false, NULL, NULL, 0, NULL, now(), now());
  INSERT INTO tool_pins VALUES ('$tenant', 't', 's', 'd', '{}', now(), NULL, NULL, NULL);
  INSERT INTO audit_entries (tenant_id, seq, at, operator, action, subject, person, salt, after, hash)
    VALUES ('$tenant', 1, now(), true, 'a', 's', '1', 'salt', '{}', 'h');
  INSERT INTO audit_heads VALUES ('$tenant', 1, 'h', 1, NULL, NULL);
  INSERT INTO notes VALUES ('$tenant', 1, 1, 'T', NULL);
  INSERT INTO note_labels VALUES ('$tenant', 'T');
";

impl TwoTenants {
    async fn open() -> Self {
        let mut client = connect(&fresh_database()).await;
        migrate(&mut client, "werkruf", &Schema::new(crate::story::MODULES), Timestamp::UNIX_EPOCH).await.unwrap();
        let (a, b) = (Uuid::from_u128(0xa), Uuid::from_u128(0xb));
        client.batch_execute("SET search_path TO werkruf").await.unwrap();
        let sql = "SELECT class.relname::text FROM pg_class AS class JOIN pg_attribute ON attrelid = class.oid
                   WHERE relnamespace = 'werkruf'::regnamespace AND relkind IN ('r', 'p') AND attname = 'tenant_id' ORDER BY 1";
        let tables = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        let database = Self { client, tables, a, b };
        for tenant in [a, b] {
            // As the server writes: as the app role with its tenant; only the system role creates tenants.
            let (first, rest) = ROWS.trim().split_once(";\n").unwrap();
            database.set_role("werkruf_system", None).await;
            database.client.batch_execute(&first.replace("$tenant", &tenant.to_string())).await.unwrap();
            database.set_role("werkruf_app", Some(tenant)).await;
            database.client.batch_execute(&rest.replace("$tenant", &tenant.to_string())).await.unwrap();
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
async fn no_query_reads_more_than_its_tenant() {
    let database = TwoTenants::open().await;
    assert!(database.tables.len() > 19, "{:?}", database.tables);
    for table in &database.tables {
        for (role, tenant, visible) in [
            ("werkruf_app", None, 0),
            ("werkruf_app", Some(database.a), 1),
            ("werkruf_app", Some(Uuid::from_u128(0xc)), 0),
            ("werkruf_system", None, 2),
            ("werkruf_operator", None, 2),
        ] {
            database.set_role(role, tenant).await;
            assert_eq!(database.count(table).await, visible, "{table} as {role} of {tenant:?}");
        }
        database.set_role("werkruf_app", Some(database.a)).await;
        let of_b = format!("{table} WHERE tenant_id = '{}'", database.b);
        assert_eq!(database.count(&of_b).await, 0, "{table}: another tenant named in the query");
    }
    // The views run with the rights of the caller.
    for view in ["chats", "tool_call", "api_usage_by_chat", "held_roles"] {
        database.set_role("werkruf_app", Some(database.a)).await;
        assert_eq!(database.count(view).await, 1, "{view}");
        database.set_role("werkruf_app", None).await;
        assert_eq!(database.count(view).await, 0, "{view}");
    }
}

#[tokio::test]
async fn no_write_reaches_another_tenant() {
    let database = TwoTenants::open().await;
    for table in &database.tables {
        database.set_role("werkruf_app", Some(database.a)).await;
        if table == "tenants" {
            assert!(database.client.execute("DELETE FROM tenants", &[]).await.is_err(), "the app role may not change tenants");
            continue;
        }
        if table == "audit_entries" {
            for role in ["werkruf_app", "werkruf_system"] {
                database.set_role(role, Some(database.a)).await;
                for sql in ["UPDATE audit_entries SET subject = subject", "DELETE FROM audit_entries", "TRUNCATE audit_entries"] {
                    assert!(database.client.execute(sql, &[]).await.is_err(), "{sql}: entries are only added");
                }
                assert!(database.client.execute("DELETE FROM audit_heads", &[]).await.is_err());
            }
            continue;
        }
        let stolen = database
            .client
            .execute(&format!("UPDATE {table} SET tenant_id = '{}' WHERE tenant_id = '{}'", database.a, database.b), &[])
            .await;
        assert_eq!(stolen.unwrap(), 0, "{table}: a row of another tenant was updated");
        let given = database.client.execute(&format!("UPDATE {table} SET tenant_id = '{}'", database.b), &[]).await;
        assert!(given.is_err(), "{table}: a row was given to another tenant");
        let copied = format!("INSERT INTO {table} SELECT * FROM {table}");
        database.set_role("werkruf_app", None).await;
        assert_eq!(database.client.execute(&copied, &[]).await.unwrap_or(0), 0, "{table}");
        database.set_role("werkruf_operator", None).await;
        for sql in [format!("DELETE FROM {table}"), format!("UPDATE {table} SET tenant_id = tenant_id")] {
            assert!(database.client.execute(&sql, &[]).await.is_err(), "{table}: the operator role only reads");
        }
    }
    // A new row for another tenant is refused, and so is deleting one of its rows.
    database.set_role("werkruf_app", Some(database.a)).await;
    for line in ROWS.trim().split(";\n").skip(1) {
        let foreign = line.replace("$tenant", &database.b.to_string());
        assert!(database.client.batch_execute(&foreign).await.is_err(), "{line}");
    }
    let tables: Vec<&String> = database.tables.iter().filter(|table| *table != "tenants" && !table.starts_with("audit_")).collect();
    for _ in 0..3 {
        for table in &tables {
            // A row that others refer to is deleted in a later round.
            let _ = database.client.execute(&format!("DELETE FROM {table}"), &[]).await;
        }
    }
    database.set_role("werkruf_system", None).await;
    for table in tables {
        assert_eq!(
            database.count(&format!("{table} WHERE tenant_id = '{}'", database.b)).await,
            1,
            "{table}: a row of another tenant was deleted"
        );
        assert_eq!(database.count(&format!("{table} WHERE tenant_id = '{}'", database.a)).await, 0, "{table}");
    }
}

#[tokio::test]
async fn the_seeds_queries_run_as_they_are_printed() {
    let database = TwoTenants::open().await;
    let id = database.a.to_string();
    database.set_role("werkruf_operator", None).await;
    for sql in [
        "SELECT id, tool_name, status, created_at, started_at, finished_at, error FROM tool_call WHERE chat_id = '<id>' ORDER BY created_at DESC",
        "SELECT request, response, error FROM tool_call WHERE id = '<id>'",
        "SELECT * FROM messages WHERE conversation_id = '<id>' AND tool_calls IS NOT NULL",
        "SELECT * FROM messages WHERE role = 'tool' AND status = 'error'",
        "SELECT * FROM messages WHERE tool_call_id = 'call_123'",
        "SELECT * FROM chats WHERE id = '<id>'",
        "SELECT sum(cost_usd) FROM api_usage_by_chat WHERE chat_id = '<id>'",
    ] {
        database.client.batch_execute(&sql.replace("<id>", &id)).await.unwrap();
    }
    assert_eq!(database.count(&format!("tool_call WHERE chat_id = '{id}'")).await, 1);
}

#[tokio::test]
async fn the_app_role_cannot_read_tables_without_a_tenant() {
    let database = TwoTenants::open().await;
    database.set_role("werkruf_app", Some(database.a)).await;
    for table in ["settings", "schema_migrations", "note_claims"] {
        assert!(database.client.query(&format!("SELECT * FROM {table}"), &[]).await.is_err(), "{table}");
    }
    database.set_role("werkruf_system", None).await;
    assert!(database.client.execute("DELETE FROM schema_migrations", &[]).await.is_err());
}

#[tokio::test]
async fn values_of_the_audit_log_are_blanked_in_the_own_tenant_only() {
    let database = TwoTenants::open().await;
    let blank = async |of: Uuid| {
        database.set_role("werkruf_app", Some(database.a)).await;
        database.client.query("SELECT blank_audit_values($1, '1')", &[&of]).await.unwrap().len()
    };
    assert_eq!((blank(database.b).await, blank(database.a).await, blank(database.a).await), (0, 1, 0));
    database.set_role("werkruf_system", None).await;
    assert_eq!(database.count("audit_entries WHERE after IS NOT NULL AND salt IS NOT NULL").await, 1);
    database.set_role("werkruf_operator", None).await;
    let refused = database.client.query("SELECT blank_audit_values($1, '1')", &[&database.b]).await;
    assert!(refused.is_err(), "the operator role only reads");
}

/// Connects as another login, with the password of all logins of these tests.
async fn log_in(url: &str, name: &str) -> Client {
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    connect_with(config.user(name).password("secret")).await
}

/// What the owner of a database runs for a person, and what that person then sees.
#[tokio::test]
async fn a_login_with_the_operators_role_reads_without_a_prefix() {
    let url = fresh_database();
    let mut owner = connect(&url).await;
    let database: String = owner.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    owner.batch_execute(&format!("CREATE SCHEMA other; ALTER DATABASE \"{database}\" SET search_path = public, other")).await.unwrap();
    migrate(&mut owner, "werkruf", &Schema::new(crate::story::MODULES), Timestamp::UNIX_EPOCH).await.unwrap();
    let tenant = Uuid::from_u128(0xa);
    let rows = ROWS.replace("$tenant", &tenant.to_string());
    owner.batch_execute(&format!("BEGIN; SET LOCAL search_path TO werkruf; SET LOCAL ROLE werkruf_system; {rows}; COMMIT")).await.unwrap();
    let (with, without) = (format!("with_{database}"), format!("without_{database}"));
    owner
        .batch_execute(&format!(
            "CREATE ROLE \"{with}\" LOGIN PASSWORD 'secret' IN ROLE werkruf_operator; CREATE ROLE \"{without}\" LOGIN PASSWORD 'secret'"
        ))
        .await
        .unwrap();
    let person = log_in(&url, &with).await;
    let path: String = person.query_one("SHOW search_path", &[]).await.unwrap().get(0);
    assert_eq!(path, "public, other, werkruf");
    // The statements of the documents that existing reports were written for.
    let selects = [
        format!("SELECT * FROM messages \nWHERE conversation_id = '{tenant}' \n  AND tool_calls IS NOT NULL"),
        "SELECT * FROM messages \nWHERE role = 'tool' \n  AND status = 'error'".to_owned(),
        "SELECT * FROM messages \nWHERE tool_call_id = 'call_123'".to_owned(),
        format!(
            "SELECT \n  id,\n  tool_name,\n  status,\n  created_at,\n  started_at,\n  finished_at,\n  error\nFROM tool_call\n\
             WHERE chat_id = '{tenant}'\nORDER BY created_at DESC"
        ),
        format!("SELECT \n  request,\n  response,\n  error\nFROM tool_call\nWHERE id = '{tenant}'"),
        "SELECT * FROM messages".to_owned(),
        "SELECT * FROM chats".to_owned(),
    ];
    let mut counts = Vec::new();
    for select in &selects {
        counts.push(person.query(select.as_str(), &[]).await.unwrap_or_else(|error| panic!("{select}: {error:?}")).len());
    }
    assert_eq!(counts, [0, 0, 0, 1, 1, 1, 1]);
    person.execute("DELETE FROM messages", &[]).await.unwrap_err();
    let other = log_in(&url, &without).await;
    let refused = other.query("SELECT * FROM messages", &[]).await.unwrap_err();
    assert!(format!("{refused:?}").contains("relation \\\"messages\\\" does not exist"), "{refused:?}");
    drop((person, other));
    owner.batch_execute(&format!("DROP ROLE \"{with}\"; DROP ROLE \"{without}\"")).await.unwrap();
}

/// Extending twice changes nothing, and another schema of the same database is added too.
#[tokio::test]
async fn the_search_path_names_each_schema_once() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    for name in ["werkruf", "second", "werkruf"] {
        migrate(&mut client, name, &Schema::new(crate::story::MODULES), Timestamp::UNIX_EPOCH).await.unwrap();
    }
    let path: String = connect(&url).await.query_one("SHOW search_path", &[]).await.unwrap().get(0);
    assert_eq!(path, "\"$user\", public, werkruf, second");

    let database: String = client.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let server = format!("server_{database}");
    client
        .batch_execute(&format!(
            "CREATE ROLE \"{server}\" LOGIN PASSWORD 'secret' IN ROLE werkruf_app, werkruf_system, werkruf_operator;
             GRANT CREATE ON DATABASE \"{database}\" TO \"{server}\""
        ))
        .await
        .unwrap();
    migrate(&mut log_in(&url, &server).await, "third", &Schema::new(crate::story::MODULES), Timestamp::UNIX_EPOCH).await.unwrap();
    let path: String = connect(&url).await.query_one("SHOW search_path", &[]).await.unwrap().get(0);
    assert_eq!(path, "\"$user\", public, werkruf, second", "a server that does not own the database works without it");
    client.batch_execute(&format!("DROP OWNED BY \"{server}\" CASCADE; DROP ROLE \"{server}\"")).await.unwrap();
}
