//! Authentication, and the user and tenant of a request.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_store::{KeyDigest, NewKey, Scopes};

use crate::support::{ADMIN, TestServer, body, refusal};

/// Every operation of the API document as method and path, with ids that do not exist.
fn operations() -> Vec<(Method, String)> {
    let document: Value = serde_json::from_str(&werkruf::api::openapi()).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{id}", "00000000-0000-7000-8000-00000000ffff").replace("{name}", "test_echo");
            operations.push((method.to_ascii_uppercase().parse().unwrap(), path));
        }
    }
    operations
}

const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];
/// Routes without a key whose requests are signed, or have the key in their body: they refuse what is not.
const SIGNED: [(&str, &str, u16); 3] =
    [("GET", "/webhooks/whatsapp", 403), ("POST", "/webhooks/whatsapp", 401), ("POST", "/api/console/sessions", 401)];
/// What every credential may ask about itself, with the answer.
const OWN: [(&str, &str, u16); 2] = [("GET", "/api/console/session", 200), ("DELETE", "/api/console/session", 204)];

#[tokio::test]
async fn only_public_routes_answer_without_a_key_and_every_other_route_needs_a_scope() {
    let server = TestServer::open().await;
    let scopeless = server.key(Some(3), &["act_as"]).await;
    let operations = operations();
    assert!(operations.len() > 20);
    for (method, path) in operations {
        let response = server.bare(method.clone(), &path).send().await.unwrap();
        if PUBLIC.contains(&path.as_str()) {
            assert_eq!(response.status(), 200, "{path}");
            continue;
        }
        if let Some((_, _, status)) = SIGNED.iter().find(|(own, at, _)| (*own, *at) == (method.as_str(), path.as_str())) {
            assert_eq!(refusal(response).await.0, *status, "{method} {path}");
            continue;
        }
        assert_eq!(refusal(response).await, (401, "unauthorized".to_owned()), "{method} {path}");
        let response = server.with_key(&scopeless, method.clone(), &path).send().await.unwrap();
        if let Some((_, _, status)) = OWN.iter().find(|(own, at, _)| (*own, *at) == (method.as_str(), path.as_str())) {
            assert_eq!(response.status(), *status, "{method} {path}");
            continue;
        }
        assert_eq!(refusal(response).await, (403, "forbidden".to_owned()), "{method} {path}");
    }
    let unknown = server.bare(Method::GET, "/api/nothing").send().await.unwrap();
    assert_eq!(refusal(unknown).await.0, 401);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_json() {
    let server = TestServer::open().await;
    let unknown = server.operator(Method::GET, "/api/nothing").send().await.unwrap();
    assert_eq!(refusal(unknown).await, (404, "unknown_route".to_owned()));
    let wrong = server.operator(Method::DELETE, "/api/chat").send().await.unwrap();
    assert_eq!(refusal(wrong).await, (405, "method_not_allowed".to_owned()));
    let wrong = server.bare(Method::POST, "/healthz").send().await.unwrap();
    assert_eq!(refusal(wrong).await.0, 405);
    let echoed = server.operator(Method::GET, "/api/tools").header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!(echoed.headers()["x-request-id"], "mine-1");
    let bad = server.operator(Method::GET, "/api/tools").header("x-request-id", "a b\"c").send().await.unwrap();
    assert_ne!(bad.headers()["x-request-id"], "a b\"c");
}

#[tokio::test]
async fn the_operator_names_tenant_and_user() {
    let server = TestServer::open().await;
    let chat = |request: reqwest::RequestBuilder| async move { request.json(&json!({"message": "x"})).send().await.unwrap() };
    let without_user = chat(server.operator(Method::POST, "/api/chat")).await;
    assert_eq!(refusal(without_user).await, (403, "user_required".to_owned()));
    let unknown = chat(server.as_user(999, Method::POST, "/api/chat")).await;
    assert_eq!(refusal(unknown).await, (403, "unknown_user".to_owned()));
    let external = chat(server.operator(Method::POST, "/api/chat").header("x-user-id", "ext:stranger")).await;
    assert_eq!(refusal(external).await, (403, "unknown_user".to_owned()));
    let nonsense = chat(server.operator(Method::POST, "/api/chat").header("x-user-id", "three")).await;
    assert_eq!(refusal(nonsense).await, (400, "invalid_request".to_owned()));
    let nowhere = chat(server.as_user(1, Method::POST, "/api/chat").header("x-tenant-id", "nowhere")).await;
    assert_eq!(refusal(nowhere).await, (404, "unknown_tenant".to_owned()));
    let by_id = chat(server.as_user(1, Method::POST, "/api/chat").header("x-tenant-id", "00000000-0000-7000-8000-000000000001")).await;
    assert_eq!(by_id.status(), 200);
    let apikey = server.bare(Method::GET, "/api/tools").header("apikey", ADMIN).send().await.unwrap();
    assert_eq!(apikey.status(), 200);
}

#[tokio::test]
async fn a_key_is_its_user_unless_it_may_act_as_others() {
    let server = TestServer::open().await;
    let own = server.key(Some(3), &["chat", "read"]).await;
    let other = server.with_key(&own, Method::GET, "/api/conversations").header("x-user-id", "1").send().await.unwrap();
    assert_eq!(refusal(other).await, (403, "forbidden".to_owned()));
    let same = server.with_key(&own, Method::GET, "/api/conversations").header("x-user-id", "3").send().await.unwrap();
    assert_eq!(same.status(), 200);
    let backend = server.key(None, &["chat", "read", "act_as"]).await;
    let without_user = server.with_key(&backend, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(refusal(without_user).await, (403, "user_required".to_owned()));
    let request = server.with_key(&backend, Method::POST, "/api/chat").header("x-user-id", "4").header("accept", "application/json");
    assert_eq!(request.json(&json!({"message": "x"})).send().await.unwrap().status(), 200);
    let four = server.with_key(&backend, Method::GET, "/api/conversations").header("x-user-id", "4").send().await.unwrap();
    let four = body(four).await;
    assert_eq!(four["conversations"].as_array().unwrap().len(), 1);
    assert_eq!(four["conversations"][0]["user_id"], "4");
    let reader = server.key(Some(3), &["read"]).await;
    let chat = server.with_key(&reader, Method::POST, "/api/chat").json(&json!({"message": "x"})).send().await.unwrap();
    assert_eq!(refusal(chat).await, (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn rows_of_other_users_are_not_found() {
    let server = TestServer::open().await;
    let foreign = server.conversation(1).await;
    let key = server.key(Some(3), &["chat", "read", "tools"]).await;
    let turn = {
        let events = server.operator(Method::GET, &format!("/api/conversations/{foreign}/events")).send().await.unwrap();
        body(events).await["events"][0]["turn_id"].as_str().unwrap().to_owned()
    };
    let nowhere = "00000000-0000-7000-8000-00000000ffff";
    for (method, path) in [
        (Method::GET, "/api/conversations/ID"),
        (Method::GET, "/api/conversations/ID/messages"),
        (Method::GET, "/api/conversations/ID/state"),
        (Method::GET, "/api/conversations/ID/events"),
        (Method::PATCH, "/api/conversations/ID/state"),
        (Method::DELETE, "/api/conversations/ID"),
        (Method::GET, "/api/turns/TURN"),
        (Method::POST, "/api/turns/TURN/cancel"),
    ] {
        let send = async |id: &str, turn: &str| {
            let path = path.replace("ID", id).replace("TURN", turn);
            let request = server.with_key(&key, method.clone(), &path).header("x-request-id", "same");
            let response = request.json(&json!({"a": 1})).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let hidden = send(&foreign, &turn).await;
        assert_eq!(hidden.0, 404, "{method} {path}");
        assert_eq!(hidden, send(nowhere, nowhere).await, "{method} {path}");
    }
    let chat = server.with_key(&key, Method::POST, "/api/chat").json(&json!({"message": "x", "conversation_id": foreign})).send().await;
    assert_eq!(refusal(chat.unwrap()).await, (404, "not_found".to_owned()));
    let visible = server.as_user(3, Method::GET, &format!("/api/conversations/{foreign}")).send().await.unwrap();
    assert_eq!(visible.status(), 200, "scope admin can read every row");
}

#[tokio::test]
async fn keys_are_made_listed_deleted_and_expire() {
    let server = TestServer::open().await;
    let make = async |request: Value| server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap();
    let made =
        body(make(json!({"user_id": 3, "scopes": ["chat", "read"], "name": "laptop", "expires_at": "2999-01-01T00:00:00Z"})).await).await;
    let key = made["key"].as_str().unwrap();
    assert_eq!((key.len(), &key[..3]), (46, "wk_"));
    assert_eq!((&made["user_id"], &made["scopes"]), (&json!("3"), &json!(["chat", "read"])));
    let listed = body(server.operator(Method::GET, "/api/keys").send().await.unwrap()).await;
    assert_eq!(listed["keys"][0]["id"], made["id"]);
    assert!(!listed.to_string().contains(key), "a key is shown once");
    assert_eq!(refusal(make(json!({"scopes": ["chef"]})).await).await, (400, "invalid_request".to_owned()));
    assert_eq!(refusal(make(json!({"scopes": []})).await).await, (400, "invalid_request".to_owned()));
    assert_eq!(refusal(make(json!({"scopes": ["read"], "tenant": "nowhere"})).await).await, (404, "unknown_tenant".to_owned()));
    assert_eq!(refusal(make(json!({"scopes": ["read"], "user_id": 999})).await).await, (404, "unknown_user".to_owned()));
    assert_eq!(refusal(make(json!({"scopes": ["read"], "expires_at": "1999-01-01T00:00:00Z"})).await).await.0, 400);
    let path = format!("/api/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(server.with_key(key, Method::GET, "/api/conversations").send().await.unwrap().status(), 200);
    assert_eq!(server.operator(Method::DELETE, &path).send().await.unwrap().status(), 204);
    assert_eq!(refusal(server.operator(Method::DELETE, &path).send().await.unwrap()).await.0, 404);
    assert_eq!(refusal(server.with_key(key, Method::GET, "/api/conversations").send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn an_expired_key_is_refused() {
    let server = TestServer::open().await;
    let demo = server.app.people().tenant("demo".to_owned()).await.unwrap().unwrap().id;
    let now = server.app.clock.now();
    for (secret, seconds, status) in [("wk_old", -1, 401), ("wk_new", 3600, 200)] {
        let key = NewKey {
            id: server.app.clock.new_id(),
            tenant_id: demo,
            digest: KeyDigest::of(secret),
            user_id: Some("3".to_owned()),
            scopes: Scopes { read: true, ..Scopes::default() },
            name: None,
            expires_at: Some(now + jiff::SignedDuration::from_secs(seconds)),
            created_at: now,
            allow_ips: Vec::new(),
            safety_mode: None,
            collection: None,
            root_id: None,
        };
        server.app.administration_store.create_key(key, werkruf_store::Author::server()).await.unwrap();
        assert_eq!(server.with_key(secret, Method::GET, "/api/conversations").send().await.unwrap().status(), status, "{secret}");
    }
}

#[tokio::test]
async fn rows_of_another_tenant_are_not_found_even_by_the_operator() {
    let server = TestServer::open().await;
    let conversation = server.conversation(1).await;
    let id = server.app.clock.new_id();
    server.app.administration_store.ensure_tenant(id, "other".to_owned(), server.app.clock.now()).await.unwrap();
    let path = format!("/api/conversations/{conversation}");
    let other = server.operator(Method::GET, &path).header("x-tenant-id", "other").send().await.unwrap();
    assert_eq!(refusal(other).await, (404, "not_found".to_owned()));
    let made =
        server.operator(Method::POST, "/api/keys").json(&json!({"tenant": "other", "scopes": ["admin", "read"]})).send().await.unwrap();
    let made = body(made).await;
    assert_eq!(made["tenant_id"], id.to_string());
    let key = made["key"].as_str().unwrap();
    assert_eq!(refusal(server.with_key(key, Method::GET, &path).send().await.unwrap()).await.0, 404);
    let across = server.with_key(key, Method::GET, &path).header("x-tenant-id", "demo").send().await.unwrap();
    assert_eq!(refusal(across).await, (404, "unknown_tenant".to_owned()));
    let other_tenant =
        server.with_key(key, Method::POST, "/api/keys").json(&json!({"tenant": "demo", "scopes": ["read"]})).send().await.unwrap();
    assert_eq!(refusal(other_tenant).await, (404, "unknown_tenant".to_owned()));
}

#[tokio::test]
async fn an_unknown_user_becomes_a_guest_if_configured() {
    let server = TestServer::open_with("[auth]\nunknown_users = 'guest'\nguest_role = 'guest'\n").await;
    let chat = async |user: &str| {
        let request = server.operator(Method::POST, "/api/chat").header("x-user-id", user).header("accept", "application/json");
        request.json(&json!({"message": "hi"})).send().await.unwrap()
    };
    for user in ["ext:visitor-1", "ext:visitor-1", "77"] {
        assert_eq!(chat(user).await.status(), 200, "{user}");
    }
    let list = body(server.operator(Method::GET, "/api/conversations").send().await.unwrap()).await;
    let users: Vec<&str> = list["conversations"].as_array().unwrap().iter().map(|row| row["user_id"].as_str().unwrap()).collect();
    assert_eq!((users[0], users[2]), (users[1], "77"), "the same visitor is the same guest");
}

#[tokio::test]
async fn a_preflight_needs_no_key_and_allows_only_configured_origins() {
    let server = TestServer::open().await;
    let preflight = async |path: &str, origin: &str| {
        let request = server.bare(Method::OPTIONS, path).header("origin", origin);
        request
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,idempotency-key")
            .send()
            .await
            .unwrap()
    };
    let origin = http::HeaderValue::from_static("https://app.example");
    let allowed = preflight("/api/chat", "https://app.example").await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    let headers = allowed.headers()["access-control-allow-headers"].to_str().unwrap();
    assert!(
        ["authorization", "apikey", "x-client-info", "last-event-id", "x-trace-id"].iter().all(|name| headers.contains(name)),
        "{headers}"
    );
    for path in ["/functions/v1/chat-rag", "/v1/chat/completions", "/v1/responses"] {
        let allowed = preflight(path, "https://app.example").await;
        assert_eq!((allowed.status().as_u16(), &allowed.headers()["access-control-allow-origin"]), (200, &origin), "{path}");
    }
    assert!(preflight("/api/chat", "https://evil.example").await.headers().get("access-control-allow-origin").is_none());
    let real = server.operator(Method::GET, "/api/tools").header("origin", "https://app.example").send().await.unwrap();
    let exposed = real.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("x-conversation-id") && exposed.contains("x-tool-call-id"));
}

#[tokio::test]
async fn the_server_is_ready_until_it_drains() {
    let server = TestServer::open().await;
    let ready = body(server.bare(Method::GET, "/readyz").send().await.unwrap()).await;
    assert_eq!((&ready["ready"], &ready["loops"]["writer"]["ok"]), (&json!(true), &json!(true)));
    assert_eq!(ready["loops"]["writer"]["last_progress_ms"], 0);
    server.app.runtime.drain().await;
    let draining = server.bare(Method::GET, "/readyz").send().await.unwrap();
    assert_eq!(draining.status(), 503);
    assert_eq!(body(draining).await["ready"], false);
    let refused = server.chat(1, json!({"message": "x"})).await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refusal(refused).await, (503, "server_busy".to_owned()));
}

#[tokio::test]
async fn a_reload_applies_the_file_or_reports_its_faults() {
    let server = TestServer::open().await;
    let good = server.operator(Method::POST, "/api/admin/reload").send().await.unwrap();
    assert_eq!(body(good).await, json!({"reloaded": true}));
    std::fs::write(server.folder.path().join("werkruf.toml"), "[limits]\nsteps = 'many'\n").unwrap();
    let bad = server.operator(Method::POST, "/api/admin/reload").send().await.unwrap();
    assert_eq!(bad.status(), 422);
    let bad = body(bad).await;
    assert_eq!(bad["error"]["code"], "invalid_config");
    assert!(bad["error"]["details"][0]["path"].is_string());
}
