//! Supabase tokens as credentials: the user of a token, and its permissions.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Method, RequestBuilder, Response};
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt;
use werkruf::api;
use werkruf::app::App;
use werkruf::config::{Config, Flags};
use werkruf_contract::Clock;
use werkruf_runtime::RecoveryCloser;
use werkruf_store::{SecretKeys, SqliteStore};

use crate::support::{TestServer, body, refusal};

const SECRET: &str = "a-secret-of-the-tests-with-enough-characters";
const SUBJECT: &str = "0b6e4f2c-58d1-4c1e-9d1f-3f6a5b7c8d9e";

fn token(metadata: &Value, change: impl FnOnce(&mut Value)) -> String {
    let mut claims = json!({
        "iss": "https://project.example/auth/v1", "aud": "authenticated", "role": "authenticated", "sub": SUBJECT,
        "exp": 4_102_444_800_i64, "app_metadata": metadata, "user_metadata": {"tenant_id": "other", "role": "admin"}
    });
    change(&mut claims);
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!("{}.{}", part(br#"{"alg":"HS256","typ":"JWT"}"#), part(claims.to_string().as_bytes()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", part(tag.as_ref()))
}

async fn server(file: &str) -> TestServer {
    let server = TestServer::open_in(file, &[("SUPABASE_JWT_SECRET", SECRET), ("SUPABASE_URL", "https://project.example/")]).await;
    let all = json!([{"entity": "table_requests", "entity_type": "table", "access": "read", "scope": "all"}]);
    let people = json!({
        "tenant": "acme",
        "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}],
        "roles": [{"id": 1, "name": "editor", "permissions": all}, {"id": 2, "name": "viewer", "permissions": []},
            {"id": 3, "name": "guest", "permissions": []}],
        "users": [{"id": 7, "first_name": "Uta", "last_name": "Kern", "email": "uta@example.org", "external_id": SUBJECT,
            "locale": "de-DE", "branch_id": 1, "role_ids": [2]}]
    });
    let imported = server.operator(Method::POST, "/api/workspace/import").json(&people).send().await.unwrap();
    assert_eq!(imported.status(), 200, "{}", imported.text().await.unwrap());
    server
}

async fn chat(request: RequestBuilder) -> Response {
    request.header("accept", "application/json").json(&json!({"message": "hello"})).send().await.unwrap()
}

#[tokio::test]
async fn a_token_is_mapped_to_its_user_and_tenant() {
    let server = server("").await;
    let token = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    let answered = chat(server.with_key(&token, Method::POST, "/functions/v1/chat-rag").header("apikey", "the-anon-key")).await;
    assert_eq!(answered.status(), 200);
    let conversation = body(answered).await["conversation_id"].as_str().unwrap().to_owned();
    let path = format!("/api/conversations/{conversation}");
    let stored = body(server.operator(Method::GET, &path).header("x-tenant-id", "acme").send().await.unwrap()).await;
    assert_eq!(stored["user_id"], "7");
    let own = body(server.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(own["conversations"][0]["id"], json!(conversation));
    let bare = server.bare(Method::GET, "/api/conversations").header("apikey", &token).send().await.unwrap();
    assert_eq!(bare.status(), 200, "without Authorization the apikey counts");

    let with_header =
        |name: &'static str, value: &'static str| server.with_key(&token, Method::GET, "/api/conversations").header(name, value).send();
    assert_eq!(with_header("x-tenant-id", "acme").await.unwrap().status(), 200);
    assert_eq!(with_header("x-user-id", "7").await.unwrap().status(), 200);
    assert_eq!(refusal(with_header("x-tenant-id", "demo").await.unwrap()).await, (404, "unknown_tenant".to_owned()));
    assert_eq!(refusal(with_header("x-user-id", "1").await.unwrap()).await, (403, "forbidden".to_owned()));
    let admin = server.with_key(&token, Method::GET, "/api/keys").send().await.unwrap();
    assert_eq!(refusal(admin).await, (403, "forbidden".to_owned()), "no role of a token gives the operator's scope");
}

#[tokio::test]
async fn the_roles_of_a_token_apply_to_calls() {
    let server = server("").await;
    let invoke = async |token: &str| {
        let request = server.with_key(token, Method::POST, "/api/tools/get_requests/invoke");
        body(request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()).await
    };
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    assert_eq!(invoke(&editor).await["status"], "ok");
    let viewer = token(&json!({"tenant_id": "acme", "roles": ["viewer"]}), |_| ());
    assert_eq!(invoke(&viewer).await["error"]["code"], "permission_denied");
    assert_eq!(invoke(&editor).await["status"], "ok");
    let without_roles = token(&json!({"tenant_id": "acme"}), |_| ());
    assert_eq!(invoke(&without_roles).await["error"]["code"], "permission_denied", "without roles in the token the stored roles apply");
    let anonymous = token(&json!({"tenant_id": "acme", "role": "editor"}), |claims| claims["is_anonymous"] = json!(true));
    assert_eq!(invoke(&anonymous).await["error"]["code"], "permission_denied", "an anonymous user is a guest");
}

#[tokio::test]
async fn a_role_of_a_token_is_named_and_a_deactivated_user_is_refused() {
    let server = server("").await;
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    let invoke = async || {
        let request = server.with_key(&editor, Method::POST, "/api/tools/get_requests/invoke");
        request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()
    };
    let people = |method, path: &str| server.operator(method, &format!("/api/people/users/{path}")).header("x-tenant-id", "acme");
    let may = async || body(people(Method::GET, "7/may/get_requests").send().await.unwrap()).await;
    assert_eq!(may().await["reason"], "The role viewer does not have table_requests:table:read.");
    assert_eq!(body(invoke().await).await["status"], "ok");
    let decided = json!({"allowed": true, "needs": "table_requests:table:read", "role": "editor", "permission": "table_requests:table:read",
        "scope": "all", "reason": "The role editor of the user's token has table_requests:table:read with scope all."});
    assert_eq!(may().await, decided);
    let calls = body(server.with_key(&editor, Method::GET, "/api/tool-calls?order=desc&limit=1").send().await.unwrap()).await;
    let row = json!({"needs": "table_requests:table:read", "granted": true, "role": "editor", "permission": "table_requests:table:read",
        "scope": "all"});
    assert_eq!(calls["tool_calls"][0]["permission"], row);

    assert_eq!(people(Method::DELETE, "7").send().await.unwrap().status(), 204);
    assert_eq!(refusal(invoke().await).await, (403, "unknown_user".to_owned()));
    assert_eq!(
        people(Method::PATCH, "ext:0b6e4f2c-58d1-4c1e-9d1f-3f6a5b7c8d9e").json(&json!({"active": true})).send().await.unwrap().status(),
        200
    );
    assert_eq!(body(invoke().await).await["status"], "ok");
}

/// A key of user 7.
async fn key(server: &TestServer) -> String {
    let request = json!({"tenant": "acme", "user_id": "7", "scopes": ["chat", "read", "tools"]});
    let made = server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap();
    body(made).await["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn writing_the_user_replaces_the_roles_of_a_token() {
    let server = server("").await;
    let key = key(&server).await;
    let invoke = async |credential: &str| {
        let request = server.with_key(credential, Method::POST, "/api/tools/get_requests/invoke");
        body(request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()).await
    };
    assert_eq!(invoke(&key).await["error"]["code"], "permission_denied");
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    assert_eq!(invoke(&editor).await["status"], "ok");
    assert_eq!(invoke(&key).await["status"], "ok", "the user has the issuer's roles while the token is valid");
    let person = json!({"tenant": "acme", "users": [{"id": 7, "first_name": "Uta", "last_name": "Kern", "external_id": SUBJECT,
        "locale": "de-DE", "branch_id": 1, "role_ids": [3]}]});
    assert_eq!(server.operator(Method::POST, "/api/workspace/import").json(&person).send().await.unwrap().status(), 200);
    assert_eq!(invoke(&key).await["error"]["code"], "permission_denied");
    assert_eq!(invoke(&editor).await["status"], "ok", "a valid token sets its roles again");
    let nothing = token(&json!({"tenant_id": "acme", "roles": [], "role": "editor"}), |_| ());
    assert_eq!(invoke(&nothing).await["error"]["code"], "permission_denied", "an empty list means no roles");
}

/// Opens a copy of the database with a clock that is an hour ahead.
#[tokio::test]
async fn the_roles_of_a_token_expire_with_it_for_every_credential() {
    let server = server("").await;
    let key = key(&server).await;
    let soon = Clock::system(0).now().as_second() + 60;
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |claims| claims["exp"] = json!(soon));
    let input = json!({"input": {"userId": 7}});
    for credential in [&editor, &key] {
        let request = server.with_key(credential, Method::POST, "/api/tools/get_requests/invoke").json(&input);
        assert_eq!(body(request.send().await.unwrap()).await["status"], "ok");
    }
    let copy = server.folder.path().join("copy.db");
    let made = server.operator(Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(made.status(), 200);
    for (offset, expected) in [(0, json!("ok")), (3600, json!("permission_denied"))] {
        let fresh = server.folder.path().join(format!("{offset}.db"));
        let clock = Clock::system(0);
        SqliteStore::restore(
            &copy,
            &fresh,
            false,
            &RecoveryCloser::new(clock.clone()),
            &clock,
            werkruf::modules::MODULES,
            &SecretKeys::default(),
        )
        .unwrap();
        let flags = Flags { database: Some(format!("sqlite:{}", fresh.display())), ..server.app.config.flags.clone() };
        let mut config = Config::load(&flags, &server.app.config.environment).unwrap();
        config.clock_offset_s = offset;
        let app = App::open(config).await.unwrap();
        let request = http::Request::post("/api/tools/get_requests/invoke")
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(input.to_string()))
            .unwrap();
        let answer = api::router(app).oneshot(request).await.unwrap();
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        let result = answer["error"].get("code").unwrap_or(&answer["status"]);
        assert_eq!(*result, expected, "{offset}: {answer}");
    }
}

#[tokio::test]
async fn unknown_users_and_tokens_without_a_user_are_refused() {
    let server = server("").await;
    let metadata = json!({"tenant_id": "acme"});
    let send = async |token: String| refusal(chat(server.with_key(&token, Method::POST, "/api/chat")).await).await;
    let unknown = token(&metadata, |claims| claims["sub"] = json!("6ab8c7d2-0000-4000-8000-000000000000"));
    assert_eq!(send(unknown).await, (403, "unknown_user".to_owned()));
    assert_eq!(send(token(&json!({}), |_| ())).await, (403, "unknown_user".to_owned()), "the subject does not exist in demo");
    assert_eq!(send(token(&json!({"tenant_id": "nowhere"}), |_| ())).await, (403, "unknown_tenant".to_owned()));
    for (role, audience) in [("anon", "authenticated"), ("service_role", "authenticated"), ("authenticated", "anon")] {
        let key = token(&metadata, |claims| (claims["role"], claims["aud"]) = (json!(role), json!(audience)));
        assert_eq!(send(key).await, (401, "unauthorized".to_owned()), "{role}");
    }
    assert_eq!(send(token(&json!({"tenant_id": 42}), |_| ())).await, (401, "unauthorized".to_owned()), "not the default tenant");
    let expired = token(&metadata, |claims| claims["exp"] = json!(1));
    assert_eq!(send(expired).await, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn an_unknown_subject_becomes_a_guest_if_configured() {
    let server = server("[auth]\nunknown_users = 'guest'\n").await;
    let metadata = json!({"tenant_id": "acme"});
    let unknown = token(&metadata, |claims| claims["sub"] = json!("6ab8c7d2-0000-4000-8000-000000000000"));
    for _ in 0..2 {
        assert_eq!(chat(server.with_key(&unknown, Method::POST, "/api/chat")).await.status(), 200);
    }
    let list = body(server.operator(Method::GET, "/api/conversations").header("x-tenant-id", "acme").send().await.unwrap()).await;
    assert_eq!((&list["conversations"][0]["user_id"], &list["conversations"][1]["user_id"]), (&json!("8"), &json!("8")));
}

#[tokio::test]
async fn without_an_issuer_every_token_is_refused() {
    let server = TestServer::open().await;
    let token = token(&json!({"tenant_id": "demo"}), |_| ());
    let refused = server.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(refusal(refused).await, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn unreachable_issuer_keys_are_a_503() {
    let issuer = json!({"alg": "ES256", "kid": "k1"}).to_string();
    let file = "[auth.jwt]\nissuer = 'https://login.example'\naudience = 'werkruf'\njwks_url = 'http://127.0.0.1:1/jwks'\n";
    let server = TestServer::open_with(file).await;
    let claims = json!({"iss": "https://login.example", "aud": "werkruf", "sub": "x", "exp": 4_102_444_800_i64}).to_string();
    let token = format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(issuer), URL_SAFE_NO_PAD.encode(claims));
    let refused = server.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refusal(refused).await, (503, "token_keys_unavailable".to_owned()));
}

#[tokio::test]
async fn a_token_with_an_unknown_role_is_refused_unless_the_configuration_ignores_it() {
    let ghost = token(&json!({"tenant_id": "acme", "roles": ["editor", "ghost"]}), |_| ());
    let stranger =
        token(&json!({"tenant_id": "acme", "roles": ["ghost"]}), |claims| claims["sub"] = json!("6ab8c7d2-0000-4000-8000-000000000000"));
    let denying = server("[auth]\nunknown_users = 'guest'\n").await;
    for token in [&ghost, &ghost, &stranger] {
        let refused = denying.with_key(token, Method::GET, "/api/conversations").send().await.unwrap();
        assert_eq!(refusal(refused).await, (403, "unknown_role".to_owned()));
    }
    let acme = denying.app.people().tenant("acme".to_owned()).await.unwrap().unwrap().id;
    let known = denying.app.identity_store.user_by_external_id(acme, SUBJECT.to_owned()).await.unwrap().unwrap();
    assert_eq!(known.token_roles, None, "nothing of a refused token is stored");
    let made = denying.app.identity_store.user_by_external_id(acme, "6ab8c7d2-0000-4000-8000-000000000000".to_owned()).await.unwrap();
    assert_eq!(made, None, "no guest is made for it");
    let file = "[auth.jwt]\nissuer = 'https://project.example/auth/v1'\naudience = 'authenticated'\nunknown_roles = 'ignore'\n";
    let ignoring = server(file).await;
    let request = ignoring.with_key(&ghost, Method::POST, "/api/tools/get_requests/invoke");
    assert_eq!(body(request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()).await["status"], "ok", "the editor counts");
}
