//! A token of Supabase as the credential: which person it is, and what it may not do.

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
use werkruf_store::SqliteStore;

use crate::support::{House, body, refusal};

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

async fn house(file: &str) -> House {
    let house = House::open_in(file, &[("SUPABASE_JWT_SECRET", SECRET), ("SUPABASE_URL", "https://project.example/")]).await;
    let all = json!([{"entity": "table_requests", "entity_type": "table", "access": "read", "scope": "all"}]);
    let people = json!({
        "tenant": "acme",
        "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}],
        "roles": [{"id": 1, "name": "editor", "permissions": all}, {"id": 2, "name": "viewer", "permissions": []},
            {"id": 3, "name": "guest", "permissions": []}],
        "users": [{"id": 7, "first_name": "Uta", "last_name": "Kern", "email": "uta@example.org", "external_id": SUBJECT,
            "locale": "de-DE", "branch_id": 1, "role_ids": [2]}]
    });
    let imported = house.operator(Method::POST, "/api/workspace/import").json(&people).send().await.unwrap();
    assert_eq!(imported.status(), 200, "{}", imported.text().await.unwrap());
    house
}

async fn chat(request: RequestBuilder) -> Response {
    request.header("accept", "application/json").json(&json!({"message": "hello"})).send().await.unwrap()
}

#[tokio::test]
async fn a_token_is_its_person_in_its_tenant() {
    let house = house("").await;
    let token = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    let answered = chat(house.with_key(&token, Method::POST, "/functions/v1/chat-rag").header("apikey", "the-anon-key")).await;
    assert_eq!(answered.status(), 200);
    let conversation = body(answered).await["conversation_id"].as_str().unwrap().to_owned();
    let path = format!("/api/conversations/{conversation}");
    let seen = body(house.operator(Method::GET, &path).header("x-tenant-id", "acme").send().await.unwrap()).await;
    assert_eq!(seen["user_id"], "7");
    let own = body(house.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(own["conversations"][0]["id"], json!(conversation));
    let bare = house.bare(Method::GET, "/api/conversations").header("apikey", &token).send().await.unwrap();
    assert_eq!(bare.status(), 200, "without Authorization the apikey counts");

    let say =
        |name: &'static str, value: &'static str| house.with_key(&token, Method::GET, "/api/conversations").header(name, value).send();
    assert_eq!(say("x-tenant-id", "acme").await.unwrap().status(), 200);
    assert_eq!(say("x-user-id", "7").await.unwrap().status(), 200);
    assert_eq!(refusal(say("x-tenant-id", "demo").await.unwrap()).await, (404, "unknown_tenant".to_owned()));
    assert_eq!(refusal(say("x-user-id", "1").await.unwrap()).await, (403, "forbidden".to_owned()));
    let admin = house.with_key(&token, Method::GET, "/api/keys").send().await.unwrap();
    assert_eq!(refusal(admin).await, (403, "forbidden".to_owned()), "no role of a token is the operator's scope");
}

#[tokio::test]
async fn the_tokens_roles_count_when_a_call_runs() {
    let house = house("").await;
    let invoke = async |token: &str| {
        let request = house.with_key(token, Method::POST, "/api/tools/get_requests/invoke");
        body(request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()).await
    };
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    assert_eq!(invoke(&editor).await["status"], "ok");
    let viewer = token(&json!({"tenant_id": "acme", "roles": ["viewer"]}), |_| ());
    assert_eq!(invoke(&viewer).await["error"]["code"], "permission_denied");
    assert_eq!(invoke(&editor).await["status"], "ok");
    let silent = token(&json!({"tenant_id": "acme"}), |_| ());
    assert_eq!(invoke(&silent).await["error"]["code"], "permission_denied", "without a word the roles given here stand");
    let anonymous = token(&json!({"tenant_id": "acme", "role": "editor"}), |claims| claims["is_anonymous"] = json!(true));
    assert_eq!(invoke(&anonymous).await["error"]["code"], "permission_denied", "somebody anonymous is a guest");
}

/// A key of user 7.
async fn key(house: &House) -> String {
    let wish = json!({"tenant": "acme", "user_id": "7", "scopes": ["chat", "read", "tools"]});
    let made = house.operator(Method::POST, "/api/keys").json(&wish).send().await.unwrap();
    body(made).await["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn writing_the_person_ends_what_a_token_said() {
    let house = house("").await;
    let key = key(&house).await;
    let invoke = async |credential: &str| {
        let request = house.with_key(credential, Method::POST, "/api/tools/get_requests/invoke");
        body(request.json(&json!({"input": {"userId": 7}})).send().await.unwrap()).await
    };
    assert_eq!(invoke(&key).await["error"]["code"], "permission_denied");
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |_| ());
    assert_eq!(invoke(&editor).await["status"], "ok");
    assert_eq!(invoke(&key).await["status"], "ok", "the person's rights are what the issuer said, while the token lives");
    let person = json!({"tenant": "acme", "users": [{"id": 7, "first_name": "Uta", "last_name": "Kern", "external_id": SUBJECT,
        "locale": "de-DE", "branch_id": 1, "role_ids": [3]}]});
    assert_eq!(house.operator(Method::POST, "/api/workspace/import").json(&person).send().await.unwrap().status(), 200);
    assert_eq!(invoke(&key).await["error"]["code"], "permission_denied");
    assert_eq!(invoke(&editor).await["status"], "ok", "a token that lives says it again");
    let nothing = token(&json!({"tenant_id": "acme", "roles": [], "role": "editor"}), |_| ());
    assert_eq!(invoke(&nothing).await["error"]["code"], "permission_denied", "an empty list is no roles");
}

/// The same database an hour later, by this server's clock.
#[tokio::test]
async fn a_tokens_roles_end_with_it_for_every_credential() {
    let house = house("").await;
    let key = key(&house).await;
    let soon = Clock::system(0).now().as_second() + 60;
    let editor = token(&json!({"tenant_id": "acme", "role": "editor"}), |claims| claims["exp"] = json!(soon));
    let input = json!({"input": {"userId": 7}});
    for credential in [&editor, &key] {
        let request = house.with_key(credential, Method::POST, "/api/tools/get_requests/invoke").json(&input);
        assert_eq!(body(request.send().await.unwrap()).await["status"], "ok");
    }
    let copy = house.folder.path().join("copy.db");
    let made = house.operator(Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(made.status(), 200);
    for (offset, expected) in [(0, json!("ok")), (3600, json!("permission_denied"))] {
        let fresh = house.folder.path().join(format!("{offset}.db"));
        SqliteStore::restore(&copy, &fresh, false, &Clock::system(0)).unwrap();
        let flags = Flags { database: Some(format!("sqlite:{}", fresh.display())), ..house.app.config.flags.clone() };
        let mut config = Config::load(&flags, &house.app.config.environment).unwrap();
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
        let said = answer["error"].get("code").unwrap_or(&answer["status"]);
        assert_eq!(*said, expected, "{offset}: {answer}");
    }
}

#[tokio::test]
async fn who_is_not_known_or_no_person_stays_out() {
    let house = house("").await;
    let metadata = json!({"tenant_id": "acme"});
    let ask = async |token: String| refusal(chat(house.with_key(&token, Method::POST, "/api/chat")).await).await;
    let stranger = token(&metadata, |claims| claims["sub"] = json!("6ab8c7d2-0000-4000-8000-000000000000"));
    assert_eq!(ask(stranger).await, (403, "unknown_user".to_owned()));
    assert_eq!(ask(token(&json!({}), |_| ())).await, (403, "unknown_user".to_owned()), "demo does not know the subject");
    assert_eq!(ask(token(&json!({"tenant_id": "nowhere"}), |_| ())).await, (403, "unknown_tenant".to_owned()));
    for (role, audience) in [("anon", "authenticated"), ("service_role", "authenticated"), ("authenticated", "anon")] {
        let key = token(&metadata, |claims| (claims["role"], claims["aud"]) = (json!(role), json!(audience)));
        assert_eq!(ask(key).await, (401, "unauthorized".to_owned()), "{role}");
    }
    assert_eq!(ask(token(&json!({"tenant_id": 42}), |_| ())).await, (401, "unauthorized".to_owned()), "not the default tenant");
    let expired = token(&metadata, |claims| claims["exp"] = json!(1));
    assert_eq!(ask(expired).await, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn a_stranger_becomes_a_guest_where_the_house_says_so() {
    let house = house("[auth]\nunknown_users = 'guest'\n").await;
    let metadata = json!({"tenant_id": "acme"});
    let stranger = token(&metadata, |claims| claims["sub"] = json!("6ab8c7d2-0000-4000-8000-000000000000"));
    for _ in 0..2 {
        assert_eq!(chat(house.with_key(&stranger, Method::POST, "/api/chat")).await.status(), 200);
    }
    let list = body(house.operator(Method::GET, "/api/conversations").header("x-tenant-id", "acme").send().await.unwrap()).await;
    assert_eq!((&list["conversations"][0]["user_id"], &list["conversations"][1]["user_id"]), (&json!("8"), &json!("8")));
}

#[tokio::test]
async fn without_an_issuer_no_token_is_taken() {
    let house = House::open().await;
    let token = token(&json!({"tenant_id": "demo"}), |_| ());
    let refused = house.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(refusal(refused).await, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn keys_that_cannot_be_read_are_no_refusal() {
    let issuer = json!({"alg": "ES256", "kid": "k1"}).to_string();
    let file = "[auth.jwt]\nissuer = 'https://login.example'\naudience = 'werkruf'\njwks_url = 'http://127.0.0.1:1/jwks'\n";
    let house = House::open_with(file).await;
    let claims = json!({"iss": "https://login.example", "aud": "werkruf", "sub": "x", "exp": 4_102_444_800_i64}).to_string();
    let token = format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(issuer), URL_SAFE_NO_PAD.encode(claims));
    let refused = house.with_key(&token, Method::GET, "/api/conversations").send().await.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refusal(refused).await, (503, "token_keys_unavailable".to_owned()));
}
