//! Accounts of people at an MCP server: links, logins, whose token a call has, and what is left afterwards.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::account_server::AccountServer;
use crate::support::{TestServer, body, refusal};

pub(crate) async fn open(accounts: &AccountServer) -> TestServer {
    TestServer::open_with(&accounts.tool("")).await
}

/// A link for this user.
pub(crate) async fn link(server: &TestServer, user: i64) -> String {
    let made = server.as_user(user, Method::POST, "/api/connections").json(&json!({"server": "calendar"})).send().await.unwrap();
    assert_eq!(made.status(), 201);
    body(made).await["url"].as_str().unwrap().to_owned()
}

fn header(response: &Response, name: &str) -> String {
    response.headers()[name].to_str().unwrap().to_owned()
}

/// A browser without cookies; it follows no redirect by itself.
pub(crate) async fn get(server: &TestServer, url: &str, cookie: Option<&str>) -> Response {
    let path = url.strip_prefix(&format!("http://{}", server.address()));
    let request = match path {
        Some(path) => server.bare(Method::GET, path),
        None => werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap().get(url),
    };
    let request = cookie.map_or_else(|| request.try_clone().unwrap(), |cookie| request.try_clone().unwrap().header("cookie", cookie));
    request.send().await.unwrap()
}

/// Opens the page of a link, and goes on from it.
pub(crate) async fn go_on(server: &TestServer, link: &str) -> Response {
    let asked = get(server, link, None).await;
    assert_eq!(asked.status(), 200);
    let shown = header(&asked, "set-cookie");
    assert!(shown.contains("Path=/connect; SameSite=Strict; HttpOnly; Max-Age=600"), "{shown}");
    get(server, &format!("{link}/open"), shown.split(';').next()).await
}

/// Opens a link and logs in: the address to come back to, and the cookie.
pub(crate) async fn log_in(server: &TestServer, link: &str) -> (String, String) {
    let opened = go_on(server, link).await;
    assert_eq!(opened.status(), 303, "{:?}", opened.text().await);
    let cookie = header(&opened, "set-cookie");
    assert!(cookie.contains("Path=/oauth/callback; SameSite=Lax; HttpOnly; Max-Age=600"), "{cookie}");
    let login = get(server, &header(&opened, "location"), None).await;
    assert_eq!(login.status(), 302);
    (header(&login, "location"), cookie.split(';').next().unwrap().to_owned())
}

pub(crate) async fn connect(server: &TestServer, link: &str) {
    let (back, cookie) = log_in(server, link).await;
    let done = get(server, &back, Some(&cookie)).await;
    assert_eq!(done.status(), 200, "{:?}", done.text().await);
    let listed = || async {
        let tools = body(server.operator(Method::GET, "/api/tools").send().await.unwrap()).await;
        tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calendar_owner")
    };
    tokio::time::timeout(Duration::from_secs(20), async {
        while !listed().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the tools of the server are listed");
}

pub(crate) async fn call(server: &TestServer, user: i64, tool: &str) -> Value {
    let invoked = server.as_user(user, Method::POST, &format!("/api/tools/calendar_{tool}/invoke")).json(&json!({"input": {}})).send();
    body(invoked.await.unwrap()).await
}

pub(crate) async fn state(server: &TestServer, user: i64) -> Value {
    body(server.as_user(user, Method::GET, "/api/connections").send().await.unwrap()).await["connections"][0]["state"].clone()
}

/// The link in a refusal.
pub(crate) fn link_in(output: &Value) -> String {
    assert_eq!((&output["error"]["code"], &output["error"]["type"]), (&json!("needs_connection"), &json!("FATAL")), "{output}");
    let message = output["error"]["message"].as_str().unwrap();
    message.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned()
}

async fn server_state(server: &TestServer) -> Value {
    body(server.operator(Method::GET, "/api/admin/tools").send().await.unwrap()).await["servers"][0].clone()
}

#[tokio::test]
async fn each_person_uses_an_account_of_their_own() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    tokio::time::timeout(Duration::from_secs(10), async {
        while server_state(&server).await["state"] != "needs_connection" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(server_state(&server).await["error"], "nobody has connected an account; `werkruf connect calendar` connects one");
    let unknown = server.as_user(1, Method::POST, "/api/connections").json(&json!({"server": "mail"})).send().await.unwrap();
    assert_eq!(refusal(unknown).await, (404, "not_found".to_owned()));
    let nobody = server.operator(Method::POST, "/api/connections").json(&json!({"server": "calendar"})).send().await.unwrap();
    assert_eq!(refusal(nobody).await, (403, "user_required".to_owned()));
    let reader = server.key(Some(1), &["read"]).await;
    let unscoped = server.with_key(&reader, Method::GET, "/api/connections").send().await.unwrap();
    assert_eq!(refusal(unscoped).await, (403, "forbidden".to_owned()));

    connect(&server, &link(&server, 1).await).await;
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}));
    assert_eq!((state(&server, 1).await, state(&server, 3).await), (json!("connected"), json!("needs_connection")));
    assert_eq!(server_state(&server).await["state"], "connected");

    let refused = call(&server, 3, "owner").await;
    accounts.accounts().next = "bert".to_owned();
    connect(&server, &link_in(&refused)).await;
    assert_eq!(call(&server, 3, "owner").await["data"], json!({"text": "bert"}));
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}), "nobody's account is another's");
    assert_eq!(accounts.accounts().registrations, 1, "the installation registers once for all people");

    let removed = server.as_user(1, Method::DELETE, "/api/connections/calendar").send().await.unwrap();
    assert_eq!(removed.status(), 204);
    let again = server.as_user(1, Method::DELETE, "/api/connections/calendar").send().await.unwrap();
    assert_eq!(refusal(again).await, (404, "not_found".to_owned()));
    assert_eq!((state(&server, 1).await, state(&server, 3).await), (json!("needs_connection"), json!("connected")));
    let revoked = accounts.accounts().revoked.clone();
    assert!(revoked.len() == 1 && revoked[0].starts_with("refresh-ada"), "{revoked:?}");
    link_in(&call(&server, 1, "owner").await);
    let audit = body(server.operator(Method::GET, "/api/audit?limit=1000&tenant=demo").send().await.unwrap()).await;
    let acts =
        audit["audit"].as_array().unwrap().iter().map(|entry| (entry["action"].as_str().unwrap(), entry["subject"].as_str().unwrap()));
    let mut acts: Vec<_> = acts.filter(|(action, _)| action.starts_with("connection.")).collect();
    acts.sort_unstable();
    assert_eq!(acts, [("connection.create", "calendar"), ("connection.create", "calendar"), ("connection.delete", "calendar")]);
}

#[tokio::test]
async fn a_link_works_once_and_in_one_browser() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    let made = link(&server, 1).await;
    let page = get(&server, &made, None).await;
    assert!(header(&page, "content-security-policy").contains("default-src 'none'") && header(&page, "cache-control") == "no-store");
    let asked = page.text().await.unwrap();
    assert!(asked.contains("calendar (127.0.0.1)") && asked.contains("/open\">"), "{asked}");
    let peeked = server.bare(Method::HEAD, made.split_at(made.find("/connect/").unwrap()).1).send().await.unwrap();
    assert_eq!(peeked.status(), 200, "looking at a link does not use it");
    for foreign in [None, Some("werkruf_connect_page=guess")] {
        let skipped = get(&server, &format!("{made}/open"), foreign).await;
        assert_eq!((skipped.status().as_u16(), made.ends_with(&header(&skipped, "location"))), (303, true), "the page cannot be skipped");
    }

    let (back, cookie) = log_in(&server, &made).await;
    for used in [made.clone(), format!("{made}/open")] {
        assert_eq!(get(&server, &used, None).await.status(), 410);
    }
    for foreign in [None, Some("werkruf_connect=guess"), Some("werkruf_connect=")] {
        assert_eq!(get(&server, &back, foreign).await.status(), 410, "{foreign:?}");
    }
    let forged = back.replace("state=", "state=x");
    assert_eq!(get(&server, &forged, Some(&cookie)).await.status(), 410);
    assert_eq!(state(&server, 1).await, "needs_connection");
    assert_eq!(get(&server, &back, Some(&cookie)).await.status(), 200);
    assert_eq!(state(&server, 1).await, "connected");
    assert_eq!(get(&server, &back, Some(&cookie)).await.status(), 410, "an answer counts once");

    let unknown = format!("http://{}/connect/%3Cscript%3E", server.address());
    let page = get(&server, &unknown, None).await;
    assert_eq!(page.status(), 410);
    assert!(!page.text().await.unwrap().contains("script"));
}

#[tokio::test]
async fn a_login_that_is_not_in_order_connects_nothing() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    let made = link(&server, 1).await;
    let other = json!("https://other.example/mcp");
    for (resource, login) in [
        (json!({"resource": other}), json!({})),
        (json!({"authorization_servers": []}), json!({})),
        (json!({"authorization_servers": ["http://10.0.0.1/login"]}), json!({})),
        (json!({}), json!({"issuer": other})),
        (json!({}), json!({"code_challenge_methods_supported": ["plain"]})),
        (json!({}), json!({"token_endpoint": "http://169.254.169.254/token"})),
    ] {
        accounts.accounts().resource_metadata = resource.clone();
        accounts.accounts().server_metadata = login.clone();
        let opened = go_on(&server, &made).await;
        assert_eq!(opened.status(), 502, "{resource} {login}");
    }
    accounts.accounts().resource_metadata = Value::Null;
    accounts.accounts().server_metadata = Value::Null;
    let (back, cookie) = log_in(&server, &made).await;
    let (start, end) = back.split_once("&iss=").unwrap();
    let of_another = format!("{start}&iss=https%3A%2F%2Fother.example&{}", end.split_once('&').unwrap().1);
    assert_eq!(get(&server, &of_another, Some(&cookie)).await.status(), 502);
    accounts.accounts().decline = true;
    let (back, cookie) = log_in(&server, &link(&server, 1).await).await;
    let declined = get(&server, &back, Some(&cookie)).await;
    assert_eq!(declined.status(), 200);
    assert_eq!(state(&server, 1).await, "needs_connection");
}

#[tokio::test]
async fn a_token_is_renewed_once_and_a_refusal_ends_the_connection() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    // The server forgets the tokens: calls that run at once find out together.
    accounts.accounts().tokens.clear();
    let calls = (0..4).map(|_| call(&server, 1, "owner"));
    for output in futures_util::future::join_all(calls).await {
        assert_eq!(output["data"], json!({"text": "ada"}), "{output}");
    }
    assert_eq!(accounts.accounts().renewals, 1);
    // Tokens that have expired are renewed before a call is sent.
    accounts.accounts().lifetime_s = 0;
    accounts.accounts().tokens.clear();
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}));
    accounts.accounts().lifetime_s = 3600;
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}));
    assert_eq!(accounts.accounts().renewals, 3);

    accounts.accounts().refuse_renewal = true;
    accounts.accounts().tokens.clear();
    let sent = accounts.accounts().callers.len();
    let refused = call(&server, 1, "owner").await;
    assert_eq!(state(&server, 1).await, "expired");
    link_in(&call(&server, 1, "owner").await);
    let renewals = accounts.accounts().renewals;
    let calls = accounts.accounts().callers.len();
    assert_eq!((renewals, calls), (4, sent), "nobody asks again, and nothing is sent");
    accounts.accounts().refuse_renewal = false;
    connect(&server, &link_in(&refused)).await;
    assert_eq!(call(&server, 1, "owner").await["data"], json!({"text": "ada"}));
}

#[tokio::test]
async fn a_right_that_is_missing_is_asked_for() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    let refused = call(&server, 1, "write").await;
    connect(&server, &link_in(&refused)).await;
    assert_eq!(call(&server, 1, "write").await["data"], json!({"text": "ada"}));
    let scopes: Vec<String> = accounts.accounts().tokens.values().map(|(_, scope)| scope.clone()).collect();
    assert!(scopes.contains(&"read".to_owned()) && scopes.contains(&"read write".to_owned()), "{scopes:?}");
}

#[tokio::test]
async fn tokens_are_sealed_and_erased_with_their_person() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 3).await).await;
    let rotated = server.operator(Method::POST, "/api/admin/secrets/rotate").json(&json!({})).send().await.unwrap();
    // The client that was registered, and the tokens of the person.
    assert_eq!(body(rotated).await["sealed"], 2);
    assert_eq!(call(&server, 3, "owner").await["data"], json!({"text": "ada"}));
    let secrets = ["access-ada", "refresh-ada", "client-secret-1"];
    for file in std::fs::read_dir(server.folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        let found = secrets.iter().find(|secret| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
        assert_eq!(found, None);
    }
    link(&server, 3).await;
    let erased = server.operator(Method::POST, "/api/people/users/3/erase").json(&json!({})).send().await.unwrap();
    assert_eq!(erased.status(), 200);
    let connections = server.app.database.connections();
    assert_eq!(connections.all_connections().await.unwrap(), []);
    assert_eq!(state(&server, 1).await, "needs_connection");
}

/// A command of a person beside the server.
fn command(server: &TestServer, key: &str, arguments: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_werkruf"));
    command.args(arguments).env("WERKRUF_SERVER", format!("http://{}", server.address())).env("WERKRUF_KEY", key);
    command.current_dir(server.folder.path()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_command_prints_a_link_and_waits_for_the_login() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    let key = server.key(Some(3), &["chat"]).await;
    let mut waiting = command(&server, &key, &["connect", "calendar", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut printed = String::new();
    let mut output = waiting.stdout.take().unwrap();
    let mut link = None;
    while link.is_none() {
        let mut bytes = [0; 1024];
        let read = tokio::io::AsyncReadExt::read(&mut output, &mut bytes).await.unwrap();
        assert_ne!(read, 0, "{printed}");
        printed.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        link = serde_json::from_str::<Value>(&printed).ok().map(|made| made["url"].as_str().unwrap().to_owned());
    }
    connect(&server, &link.unwrap()).await;
    assert!(waiting.wait().await.unwrap().success());
    let listed = command(&server, &key, &["connect", "--list", "--json"]).output().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed["connections"][0]["server"], &listed["connections"][0]["state"]), (&json!("calendar"), &json!("connected")));
    assert!(command(&server, &key, &["connect", "--remove", "calendar"]).status().await.unwrap().success());
    assert_eq!(state(&server, 3).await, "needs_connection");
    let unknown = command(&server, &key, &["connect", "mail"]).output().await.unwrap();
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
}

#[tokio::test]
async fn the_link_comes_in_the_language_of_the_person() {
    let accounts = AccountServer::start().await;
    let server = open(&accounts).await;
    connect(&server, &link(&server, 1).await).await;
    server.model.script(vec![
        werkruf_bench::fake_model::Reply::calls(vec![werkruf_bench::fake_model::call("calendar_owner", json!({}))]),
        werkruf_bench::fake_model::Reply::text("Bitte verbinden."),
    ]);
    let answer = body(server.chat(3, json!({"message": "Was steht in meinem Kalender?", "context": {"locale": "de-DE"}})).await).await;
    let result = &answer["tool_results"][0];
    let message = result["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(message.starts_with("Verbinden Sie zuerst Ihr Konto mit calendar: http://"), "{message}");
    connect(&server, &link_in(result)).await;
    assert_eq!(state(&server, 3).await, "connected");
}
