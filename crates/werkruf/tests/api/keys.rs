//! The life of API keys: rotation, last use, maximum age, networks, and the end of their streams.

use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_store::{KeyDigest, NewKey, Scopes};

use crate::support::{Stream, TestServer, body, refusal};

async fn create(server: &TestServer, request: Value) -> Value {
    let made = server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap();
    assert_eq!(made.status(), 201);
    body(made).await
}

async fn listed(server: &TestServer, id: &Value) -> Value {
    let list = body(server.operator(Method::GET, "/api/keys").send().await.unwrap()).await;
    list["keys"].as_array().unwrap().iter().find(|key| key["id"] == *id).unwrap().clone()
}

async fn conversations(server: &TestServer, key: &Value) -> Response {
    server.with_key(key.as_str().unwrap(), Method::GET, "/api/conversations").send().await.unwrap()
}

#[tokio::test]
async fn a_key_keeps_its_pins_and_shows_its_last_use() {
    let server = TestServer::open().await;
    let request = json!({"user_id": 3, "scopes": ["read", "approve"], "name": "phone", "allow_ips": ["127.0.0.0/8", "2001:db8::1"],
        "safety_mode": "careful", "collection": "handbook"});
    let made = create(&server, request).await;
    let expected = json!({"id": made["id"], "tenant_id": made["tenant_id"], "user_id": "3", "scopes": ["read", "approve"],
        "name": "phone", "expires_at": null, "created_at": made["created_at"], "last_used_at": null,
        "allow_ips": ["127.0.0.0/8", "2001:db8::1/128"], "safety_mode": "careful", "collection": "handbook", "replaced_by": null});
    let mut without_secret = made.clone();
    assert!(without_secret.as_object_mut().unwrap().remove("key").unwrap().as_str().unwrap().starts_with("wk_"));
    assert_eq!(without_secret, expected);
    assert_eq!(listed(&server, &made["id"]).await, expected);
    assert_eq!(conversations(&server, &made["key"]).await.status(), 200);
    let used = listed(&server, &made["id"]).await["last_used_at"].clone();
    assert!(used.is_string());
    assert_eq!(conversations(&server, &made["key"]).await.status(), 200);
    assert_eq!(listed(&server, &made["id"]).await["last_used_at"], used, "written once a minute");
    for wrong in [json!({"allow_ips": ["10.0.0.0/33"]}), json!({"safety_mode": "unknown"}), json!({"collection": " "})] {
        let mut request = wrong.clone();
        request["scopes"] = json!(["read"]);
        let refused = server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap();
        assert_eq!(refusal(refused).await, (400, "invalid_request".to_owned()), "{wrong}");
    }
}

#[tokio::test]
async fn a_key_is_used_from_its_networks_only() {
    let server = TestServer::open_in("trusted_proxies = ['127.0.0.1']", &[]).await;
    let made = create(&server, json!({"user_id": 3, "scopes": ["read"], "allow_ips": ["10.0.0.0/8"]})).await;
    assert_eq!(refusal(conversations(&server, &made["key"]).await).await, (401, "unauthorized".to_owned()));
    for (forwarded, status) in [("10.1.2.3", 200), ("192.0.2.1", 401), ("10.1.2.3, 192.0.2.1", 401)] {
        let request = server.with_key(made["key"].as_str().unwrap(), Method::GET, "/api/conversations");
        let answer = request.header("x-forwarded-for", forwarded).send().await.unwrap();
        assert_eq!(answer.status(), status, "{forwarded}");
    }
}

#[tokio::test]
async fn a_rotated_key_is_replaced_after_its_overlap() {
    let server = TestServer::open().await;
    let request = json!({"user_id": 3, "scopes": ["read"], "name": "phone", "allow_ips": ["127.0.0.1"], "collection": "handbook"});
    let old = create(&server, request).await;
    let path = format!("/api/keys/{}/rotate", old["id"].as_str().unwrap());
    let rotate = async |path: &str, request: Value| server.operator(Method::POST, path).json(&request).send().await.unwrap();
    let made = server.operator(Method::POST, &path).send().await.unwrap();
    assert_eq!((made.status().as_u16(), made.headers()["cache-control"].to_str().unwrap()), (201, "no-store"));
    let new = body(made).await;
    for field in ["tenant_id", "user_id", "scopes", "name", "expires_at", "allow_ips", "safety_mode", "collection"] {
        assert_eq!(new[field], old[field], "{field}");
    }
    assert_eq!(new["replaces"], old["id"]);
    let ends = listed(&server, &old["id"]).await["expires_at"].clone();
    assert_eq!(ends, new["replaced_until"]);
    let left = ends.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().duration_since(server.app.clock.now());
    assert!((SignedDuration::from_mins(50)..=SignedDuration::from_mins(60)).contains(&left), "{left}");
    for key in [&old, &new] {
        assert_eq!(conversations(&server, &key["key"]).await.status(), 200, "both count in the overlap");
    }
    let again = rotate(&path, json!({"overlap_s": 0})).await;
    assert_eq!(again.status(), 409);
    let error = body(again).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]["replaced_by"]), (&json!("already_rotated"), &new["id"]));
    assert_eq!(listed(&server, &old["id"]).await["replaced_by"], new["id"]);
    let path_of_new = format!("/api/keys/{}/rotate", new["id"].as_str().unwrap());
    assert_eq!(rotate(&path_of_new, json!({"overlap_s": 0})).await.status(), 201);
    assert_eq!(conversations(&server, &new["key"]).await.status(), 401);
    assert_eq!(refusal(rotate(&path, json!({"overlap_s": 2_592_001})).await).await, (400, "invalid_request".to_owned()));
    let unknown = "/api/keys/00000000-0000-7000-8000-00000000ffff/rotate";
    assert_eq!(refusal(rotate(unknown, json!({})).await).await, (404, "not_found".to_owned()));
    let id = server.app.clock.new_id();
    server.app.administration_store.ensure_tenant(id, "other".to_owned(), server.app.clock.now()).await.unwrap();
    let foreign = server.operator(Method::POST, &path).header("x-tenant-id", "other").send().await.unwrap();
    assert_eq!(refusal(foreign).await, (404, "not_found".to_owned()));
}

/// A key of user 3 that was made and expires so many seconds from now.
async fn stored_key(server: &TestServer, secret: &str, made: i64, expires: Option<i64>) -> NewKey {
    let at = |seconds| server.app.clock.now() + SignedDuration::from_secs(seconds);
    let key = NewKey {
        id: server.app.clock.new_id(),
        tenant_id: werkruf::sample::DEMO_ID,
        digest: KeyDigest::of(secret),
        user_id: Some("3".to_owned()),
        scopes: Scopes { read: true, chat: true, ..Scopes::default() },
        name: None,
        expires_at: expires.map(at),
        created_at: at(made),
        allow_ips: Vec::new(),
        safety_mode: None,
        collection: None,
        root_id: None,
    };
    server.app.administration_store.create_key(key.clone(), werkruf_store::Author::server()).await.unwrap();
    key
}

#[tokio::test]
async fn a_key_has_a_maximum_age() {
    let server = TestServer::open_in("[auth]\nkey_max_age_days = 2", &[]).await;
    for (secret, made, status) in [("wk_old", -3 * 86_400, 401), ("wk_new", -86_400, 200)] {
        stored_key(&server, secret, made, None).await;
        assert_eq!(conversations(&server, &json!(secret)).await.status(), status, "{secret}");
    }
    let dying = stored_key(&server, "wk_dying", 60 - 2 * 86_400, None).await;
    let rotated = server.operator(Method::POST, &format!("/api/keys/{}/rotate", dying.id)).send().await.unwrap();
    let until: jiff::Timestamp = body(rotated).await["replaced_until"].as_str().unwrap().parse().unwrap();
    assert!(until <= server.app.clock.now() + SignedDuration::from_secs(60), "not the whole overlap: {until}");
    let made = create(&server, json!({"user_id": 3, "scopes": ["read"]})).await;
    assert!(made["expires_at"].is_string(), "the list shows when it ends: {made}");
}

#[tokio::test]
async fn the_demo_key_and_expired_keys_protect_no_public_address() {
    let server = TestServer::open_in("", &[("WERKRUF_ADMIN_KEY", "")]).await;
    assert!(!server.app.has_protecting_key().await.unwrap());
    assert!(server.app.make_demo_key().await.unwrap().is_some());
    stored_key(&server, "wk_old", -60, Some(-1)).await;
    assert!(server.app.has_key().await.unwrap() && !server.app.has_protecting_key().await.unwrap());
    stored_key(&server, "wk_new", -60, Some(3600)).await;
    assert!(server.app.has_protecting_key().await.unwrap());
}

/// Opens the three kinds of streams with a key, each in the middle of its turn.
async fn open_streams(server: &TestServer, key: &str) -> Vec<Stream> {
    use werkruf_bench::fake_model::{Reply, call};
    let sleep = || Reply::calls(vec![call("test_sleep", json!({"ms": 25_000}))]);
    server.model.script(vec![sleep(), sleep()]);
    let chat = server.with_key(key, Method::POST, "/api/chat").json(&json!({"message": "sleep"}));
    let mut chat = Stream::new(chat.send().await.unwrap());
    let init = chat.until("tool_started").await[0].data.clone();
    let events = format!("/api/conversations/{}/events", init["conversation_id"].as_str().unwrap());
    let events = server.with_key(key, Method::GET, &events).header("accept", "text/event-stream").send().await.unwrap();
    let completion = json!({"model": "default", "stream": true, "messages": [{"role": "user", "content": "sleep"}]});
    let completion = server.with_key(key, Method::POST, "/v1/chat/completions").json(&completion).send().await.unwrap();
    vec![chat, Stream::new(events), Stream::new(completion)]
}

/// Waits until every stream has ended; their turns must still be running, so that only the check of the key can have ended them.
async fn all_end(server: &TestServer, streams: Vec<Stream>) {
    // Five seconds, as documented, and a margin for a busy machine. Without the check the streams stay open as long as their turns.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(15), async {
        for stream in streams {
            let mut response = stream.response;
            while response.chunk().await.unwrap().is_some() {}
        }
    });
    ended.await.unwrap();
    let calls = body(server.as_user(3, Method::GET, "/api/tool-calls").send().await.unwrap()).await;
    let states: Vec<&str> = calls["tool_calls"].as_array().unwrap().iter().map(|call| call["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["running", "running"], "the turns go on");
}

#[tokio::test]
async fn the_streams_of_a_revoked_key_end_and_their_turns_go_on() {
    let server = TestServer::open().await;
    let made = create(&server, json!({"user_id": 3, "scopes": ["chat", "read"]})).await;
    let other = create(&server, json!({"user_id": 3, "scopes": ["chat", "read"]})).await;
    let streams = open_streams(&server, made["key"].as_str().unwrap()).await;
    let id = made["id"].as_str().unwrap();
    let list = body(conversations(&server, &other["key"]).await).await;
    let path = format!("/api/conversations/{}/events", list["conversations"][0]["id"].as_str().unwrap());
    let kept = server.with_key(other["key"].as_str().unwrap(), Method::GET, &path).header("accept", "text/event-stream");
    let mut kept = Stream::new(kept.send().await.unwrap());
    assert_eq!(server.operator(Method::DELETE, &format!("/api/keys/{id}")).send().await.unwrap().status(), 204);
    all_end(&server, streams).await;
    assert!(kept.next().await.is_some(), "the stream of another key is open");
}

#[tokio::test]
async fn the_streams_of_an_expired_key_end() {
    let server = TestServer::open().await;
    stored_key(&server, "wk_short", -60, Some(3600)).await;
    let streams = open_streams(&server, "wk_short").await;
    let row = server.app.store.key_by_digest(KeyDigest::of("wk_short")).await.unwrap().unwrap();
    let path = format!("/api/keys/{}/rotate", row.id);
    assert_eq!(server.operator(Method::POST, &path).json(&json!({"overlap_s": 1})).send().await.unwrap().status(), 201);
    all_end(&server, streams).await;
}

#[tokio::test]
async fn only_the_operator_reloads_the_server() {
    let server = TestServer::open().await;
    let admin = server.key(Some(1), &["admin"]).await;
    let refused = server.with_key(&admin, Method::POST, "/api/admin/reload").send().await.unwrap();
    assert_eq!(refusal(refused).await, (403, "forbidden".to_owned()));
    assert_eq!(server.operator(Method::POST, "/api/admin/reload").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_pinned_key_makes_only_keys_with_the_same_pins() {
    let server = TestServer::open_with("[safety.careful]\ntools_denied = ['ask_gpt']\n[safety.other]\n").await;
    let made = create(&server, json!({"scopes": ["admin"], "safety_mode": "careful", "collection": "handbook"})).await;
    let post = async |body: Value| {
        let request = server.with_key(made["key"].as_str().unwrap(), Method::POST, "/api/keys").json(&body);
        request.send().await.unwrap()
    };
    let child = body(post(json!({"scopes": ["admin", "chat"]})).await).await;
    assert_eq!((&child["safety_mode"], &child["collection"]), (&json!("careful"), &json!("handbook")), "{child}");
    for other in [json!({"safety_mode": "other"}), json!({"collection": "hr"})] {
        let mut request = json!({"scopes": ["chat"]});
        request.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        assert_eq!(refusal(post(request).await).await, (403, "forbidden".to_owned()), "{other}");
    }
}
