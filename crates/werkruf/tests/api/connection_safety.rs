//! What must not happen with accounts of people at MCP servers: tokens that are lost, kept or sent to strangers, and links that are misused.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_store::{Author, KeyDigest, Seal};
use werkruf_tools::{LoginAnswer, McpServerConfig, McpServers, McpServices, OAuthServices};

use crate::account_server::AccountServer;
use crate::connections::{call, connect, get, go_on, link, link_in, log_in, open, state};
use crate::support::{TestServer, body};

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn post(server: &TestServer, path: &str) -> reqwest::Response {
    server.operator(Method::POST, path).json(&json!({})).send().await.unwrap()
}

/// A server whose calls may be repeated, and have little time.
async fn impatient(accounts: &AccountServer) -> TestServer {
    TestServer::open_with(&accounts.tool("timeout_ms = 400\nattempts = 1").replace("'once'", "'read'")).await
}

/// How many renewals there were, and how many answers wait.
fn counted(accounts: &AccountServer) -> (usize, usize) {
    let accounts = accounts.accounts();
    (accounts.renewals, accounts.held)
}

#[tokio::test]
async fn a_renewal_goes_on_when_its_call_has_ended() {
    let accounts = AccountServer::start().await;
    let server = impatient(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    accounts.accounts().tokens.clear();
    accounts.accounts().hold = true;
    // The authorization server has replaced the token, and its answer comes after the calls have given up.
    let calls = futures_util::future::join_all(["owner", "write"].map(|tool| call(&server, 1, tool))).await;
    assert!(calls.iter().all(|output| output["error"]["code"] == "tool_timeout"), "{calls:?}");
    accounts.holds(1).await;
    assert_eq!(counted(&accounts), (1, 1));
    accounts.accounts().hold = false;
    until("the answer has come", || accounts.accounts().held == 0).await;
    // On a busy machine the little time of a call may not be enough.
    let answer = loop {
        let output = call(&server, 1, "owner").await;
        if output["error"]["code"] != "tool_timeout" {
            break output;
        }
    };
    assert_eq!(answer["data"], json!({"text": "ada"}));
    assert_eq!((counted(&accounts), state(&server, 1).await), ((1, 0), json!("connected")));
}

#[tokio::test]
async fn a_renewal_is_stored_although_the_key_was_rotated_meanwhile() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    accounts.accounts().tokens.clear();
    accounts.accounts().hold = true;
    let (called, ()) = tokio::join!(call(&server, 1, "owner"), async {
        accounts.holds(1).await;
        assert_eq!(body(post(&server, "/api/admin/secrets/rotate").await).await["sealed"], 2);
        accounts.accounts().hold = false;
    });
    assert_eq!(called["data"], json!({"text": "ada"}), "{called}");
    accounts.accounts().tokens.clear();
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}), "the token that renews is the new one");
    assert_eq!(accounts.accounts().renewals, 2);
}

#[tokio::test]
async fn a_login_that_ends_after_the_erasure_of_its_person_is_not_stored() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    let (back, cookie) = log_in(&server, &link(&server, 3).await).await;
    accounts.accounts().hold = true;
    let (finished, ()) = tokio::join!(get(&server, &back, Some(&cookie)), async {
        accounts.holds(1).await;
        assert_eq!(post(&server, "/api/people/users/3/erase").await.status(), 200);
        accounts.accounts().hold = false;
    });
    assert_eq!(finished.status(), 410);
    assert_eq!(server.app.database.connections().all_connections().await.unwrap(), []);
    let revoked = accounts.accounts().revoked.clone();
    assert!(revoked.len() == 1 && revoked[0].starts_with("refresh-ada"), "the server is told: {revoked:?}");
}

#[tokio::test]
async fn an_erasure_revokes_tokens_and_does_not_wait_for_it() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 3).await).await;
    accounts.accounts().hold = true;
    assert_eq!(post(&server, "/api/people/users/3/erase").await.status(), 200);
    accounts.holds(1).await;
    assert!(accounts.accounts().revoked[0].starts_with("refresh-ada"));
    accounts.accounts().hold = false;
}

#[tokio::test]
async fn a_token_that_is_renewed_while_its_person_is_erased_is_revoked() {
    let accounts = AccountServer::start().await;
    let server = impatient(&accounts).await;
    connect(&server, &link(&server, 3).await).await;
    accounts.accounts().tokens.clear();
    accounts.accounts().hold = true;
    assert_eq!(call(&server, 3, "owner").await["error"]["code"], "tool_timeout");
    accounts.holds(1).await;
    assert_eq!(post(&server, "/api/people/users/3/erase").await.status(), 200);
    accounts.holds(2).await;
    accounts.accounts().hold = false;
    until("both tokens are revoked", || accounts.accounts().revoked.len() == 2).await;
    let revoked = accounts.accounts().revoked.clone();
    assert_ne!(revoked[0], revoked[1]);
    assert_eq!(server.app.database.connections().all_connections().await.unwrap(), []);
}

#[tokio::test]
async fn only_the_issuer_of_the_configuration_gets_codes() {
    let accounts = AccountServer::start().await;
    let known = accounts.tool(&format!("issuer = '{}/login'", accounts.url()));
    let (pinned, unpinned) = (TestServer::open_with(&known).await, open(&accounts).await);
    accounts.accounts().resource_metadata = json!({"authorization_servers": [format!("{}/false", accounts.url())]});
    assert_eq!(go_on(&pinned, &link(&pinned, 1).await).await.status(), 502, "another authorization server");
    // The login page says whose answer it is, so also the other server notices.
    let (back, cookie) = log_in(&unpinned, &link(&unpinned, 1).await).await;
    assert_eq!(get(&unpinned, &back, Some(&cookie)).await.status(), 502);
    let (again, cookie) = log_in(&unpinned, &link(&unpinned, 1).await).await;
    let silent = again.split_once("&iss=").map(|(start, end)| format!("{start}&{}", end.split_once('&').unwrap().1)).unwrap();
    assert_eq!(get(&unpinned, &silent, Some(&cookie)).await.status(), 502);
    assert_eq!(accounts.accounts().stolen, 1, "without the setting, a login page that does not say it helps a false server");

    accounts.accounts().resource_metadata = Value::Null;
    // The server calls itself with a slash, in its metadata and in its answers.
    accounts.accounts().server_metadata = json!({"issuer": format!("{}/login/", accounts.url())});
    connect(&pinned, &link(&pinned, 1).await).await;
    assert_eq!(call(&pinned, 1, "owner").await["data"], json!({"text": "ada"}));

    let path = pinned.folder.path().join("werkruf.toml");
    let file = std::fs::read_to_string(&path).unwrap().replace("/login'", "/other'");
    std::fs::write(&path, file).unwrap();
    assert_eq!(body(post(&pinned, "/api/admin/reload").await).await, json!({"reloaded": true}));
    assert_eq!(state(&pinned, 1).await, "needs_connection", "tokens of another issuer are not used any more");
    assert_eq!(go_on(&pinned, &link(&pinned, 1).await).await.status(), 502);
    assert_eq!(accounts.accounts().stolen, 1);
}

#[tokio::test]
async fn a_link_makes_the_server_send_few_requests() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    let made = link(&server, 1).await;
    accounts.accounts().server_metadata = json!({"code_challenge_methods_supported": []});
    accounts.accounts().hold = true;
    let (first, ()) = tokio::join!(go_on(&server, &made), async {
        accounts.holds(1).await;
        for refused in futures_util::future::join_all((0..5).map(|_| go_on(&server, &made))).await {
            assert_eq!(refused.status(), 409);
        }
        assert_eq!(accounts.accounts().discoveries, 1, "one try at a time");
        accounts.accounts().hold = false;
    });
    assert_eq!(first.status(), 502);
    for _ in 1..10 {
        assert_eq!(go_on(&server, &made).await.status(), 502);
    }
    for used_up in [made.clone(), format!("{made}/open")] {
        assert_eq!(get(&server, &used_up, None).await.status(), 410);
    }
    assert_eq!(accounts.accounts().discoveries, 10);
}

/// Another process on the same database, as far as accounts are concerned.
fn replica(server: &TestServer, accounts: &AccountServer) -> McpServers {
    let (servers, app) = (McpServers::default(), &server.app);
    let oauth = OAuthServices {
        store: app.database.connections(),
        seal: Seal::new(app.store.secret_keys()),
        clock: app.clock.clone(),
        egress: werkruf_llm::Egress::default(),
        tasks: servers.token_tasks(),
        random: rand::random,
        base_url: Arc::new(String::new),
    };
    let services = McpServices { pins: app.database.tool_pins(), clock: app.clock.clone(), tasks: app.tasks.clone(), oauth };
    let declared = json!({"name": "calendar", "url": format!("{}/mcp", accounts.url()), "auth": "oauth", "permission": "none"});
    let declared: McpServerConfig = serde_json::from_value(declared).unwrap();
    let client = werkruf_llm::tool_client(&werkruf_llm::HttpLimits::default(), werkruf_llm::Egress::default()).unwrap();
    servers.apply(&[declared], &client, &services, &|_| None);
    servers
}

fn parameter<'a>(address: &'a str, name: &str) -> &'a str {
    let query = address.split_once('?').unwrap().1;
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).unwrap().1
}

#[tokio::test]
async fn an_account_that_another_process_has_connected_gets_a_session_of_its_own() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}));
    accounts.accounts().next = "bert".to_owned();
    let (back, cookie) = log_in(&server, &link(&server, 1).await).await;
    let (other, store) = (replica(&server, &accounts), server.app.database.connections());
    let (state, browser) = (KeyDigest::of(parameter(&back, "state")), KeyDigest::of(cookie.split_once('=').unwrap().1));
    let request = store.take_connection_request(state, browser, server.app.clock.now()).await.unwrap().unwrap();
    let issuer = Some(format!("{}/login", accounts.url()));
    let answer = LoginAnswer { code: Some(parameter(&back, "code").to_owned()), error: None, issuer };
    other.personal("calendar").unwrap().finish(request, answer, Author::operator()).await.unwrap();
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "bert"}));
    assert!(!accounts.accounts().mixed, "no session has tokens of two accounts");
    other.stop();
    let removed = server.as_user(1, Method::DELETE, "/api/connections/calendar").send().await.unwrap();
    assert_eq!(removed.status(), 204);
    link_in(&call(&server, 1, "owner").await);
}

#[tokio::test]
async fn cookies_of_another_name_of_the_domain_do_not_count() {
    let accounts = AccountServer::start().await;
    let server = TestServer::open_with(&format!("public_url = 'https://chat.example.org'\n{}", accounts.tool(""))).await;
    let made = link(&server, 1).await.replace("https://chat.example.org", &format!("http://{}", server.address()));
    let shown = get(&server, &made, None).await.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        shown.starts_with("__Host-werkruf_connect_page=") && shown.contains("; Path=/; SameSite=Strict; HttpOnly; Max-Age=600; Secure")
    );
    let shown = shown.split(';').next().unwrap();
    let planted = get(&server, &format!("{made}/open"), shown.strip_prefix("__Host-")).await;
    assert_eq!((planted.status().as_u16(), planted.headers()["location"].to_str().unwrap().starts_with("/connect/")), (303, true));
    let opened = get(&server, &format!("{made}/open"), Some(shown)).await;
    let cookie = opened.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-werkruf_connect=") && cookie.contains("; Path=/; SameSite=Lax; HttpOnly; Max-Age=600; Secure"));
}
