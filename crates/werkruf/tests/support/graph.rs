//! A stub of Meta's Graph API: it gives each message an id, or answers as the test says. Also what Meta sends to the webhook.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode, Uri};
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{TestServer, body};

pub const NUMBER: &str = "55501";
pub const TOKEN: &str = "graph-token-of-the-tests";
pub const SECRET: &str = "app-secret-of-the-tests";
/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Shared {
    /// The accepted messages, with the number that sent each.
    messages: Arc<Mutex<Vec<(String, Value)>>>,
    /// Status and error code for the next messages.
    refusals: Arc<Mutex<VecDeque<(u16, i64)>>>,
}

pub struct Graph {
    pub url: String,
    shared: Shared,
}

impl Graph {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    pub async fn start() -> Self {
        let shared = Shared::default();
        let own = shared.clone();
        let answer = move |uri: Uri, headers: HeaderMap, body: String| {
            let answer = own.answer(uri.path(), &headers, &body);
            async move { answer }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, shared }
    }

    /// The next messages are refused with these statuses and error codes.
    pub fn refuse(&self, refusals: &[(u16, i64)]) {
        self.shared.refusals.lock().unwrap().extend(refusals);
    }

    /// The texts that an address got, each with the number that sent it.
    pub fn texts(&self, address: &str) -> Vec<(String, String)> {
        let messages = self.shared.messages.lock().unwrap();
        let to = |message: &Value| [&message["to"], &message["recipient"]].iter().any(|to| to.as_str() == Some(address));
        let text = |message: &Value| message["text"]["body"].as_str().unwrap_or_default().to_owned();
        messages.iter().filter(|(_, message)| to(message)).map(|(number, message)| (number.clone(), text(message))).collect()
    }

    /// The texts of an address, once there are so many.
    pub async fn answers(&self, address: &str, count: usize) -> Vec<String> {
        let work = async {
            loop {
                let texts = self.texts(address);
                if texts.len() >= count {
                    return texts.into_iter().map(|(_, text)| text).collect();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, work).await.unwrap()
    }

    /// A server that uses the stub, with its outbox running.
    pub async fn serve(&self, config: &str, variables: &[(&str, &str)]) -> TestServer {
        let usual = [
            ("WHATSAPP_BASE_URL", self.url.as_str()),
            ("WHATSAPP_ACCESS_TOKEN", TOKEN),
            ("WHATSAPP_APP_SECRET", SECRET),
            ("WHATSAPP_VERIFY_TOKEN", "verify-token-of-the-tests"),
        ];
        let variables: Vec<(&str, &str)> = usual.into_iter().chain(variables.iter().copied()).collect();
        let server = TestServer::open_in(config, &variables).await;
        let runtime = server.app.runtime.clone();
        server.app.tasks.spawn(async move { runtime.run_outbox().await });
        server
    }
}

impl Shared {
    fn answer(&self, path: &str, headers: &HeaderMap, body: &str) -> axum::response::Response {
        assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
        let message: Value = serde_json::from_str(body).unwrap();
        if message["status"] == "read" {
            return axum::Json(json!({"success": true})).into_response();
        }
        if let Some((status, code)) = self.refusals.lock().unwrap().pop_front() {
            let error = json!({"error": {"message": "scripted", "type": "OAuthException", "code": code}});
            return (StatusCode::from_u16(status).unwrap(), axum::Json(error)).into_response();
        }
        let number = path.split('/').nth(2).unwrap().to_owned();
        let mut messages = self.messages.lock().unwrap();
        messages.push((number, message));
        axum::Json(json!({"messages": [{"id": format!("wamid.out{}", messages.len())}]})).into_response()
    }
}

/// `[[whatsapp.numbers]]` with further lines.
pub fn number(id: &str, tenant: &str, more: &str) -> String {
    format!("[[whatsapp.numbers]]\nphone_number_id = '{id}'\ntenant = '{tenant}'\n{more}\n")
}

pub fn sign(raw: &[u8], secret: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), raw);
    format!("sha256={}", werkruf_contract::hex(tag.as_ref()))
}

/// A payload about a number.
pub fn payload(number: &str, value: &Value) -> Vec<u8> {
    let mut value = value.clone();
    value["metadata"] = json!({"phone_number_id": number});
    json!({"object": "whatsapp_business_account", "entry": [{"changes": [{"field": "messages", "value": value}]}]}).to_string().into_bytes()
}

/// A text message of now.
pub fn text(server: &TestServer, id: &str, from: &str, text: &str) -> Value {
    let at = server.app.clock.now().as_second().to_string();
    json!({"id": id, "from": from, "timestamp": at, "type": "text", "text": {"body": text}})
}

/// Delivers a payload signed with this secret; returns the status.
pub async fn post(server: &TestServer, raw: Vec<u8>, secret: &str) -> u16 {
    let signature = sign(&raw, secret);
    let request = server.bare(Method::POST, "/webhooks/whatsapp").header("x-hub-signature-256", signature).body(raw);
    request.send().await.unwrap().status().as_u16()
}

/// Delivers messages to the first number.
pub async fn deliver(server: &TestServer, messages: &[Value]) {
    assert_eq!(post(server, payload(NUMBER, &json!({"messages": messages})), SECRET).await, 200);
}

/// Adds or replaces users of the tenant: id, phone, business-scoped id and branch each.
pub async fn put_users(server: &TestServer, tenant: &str, users: &[(i64, Option<&str>, Option<&str>, i64)]) {
    let user = |(id, phone, scoped, branch): &(i64, Option<&str>, Option<&str>, i64)| {
        json!({"id": id, "first_name": format!("U{id}"), "last_name": "x", "email": format!("u{id}@x.example"), "phone": phone,
            "whatsapp_user_id": scoped, "locale": "en-US", "branch_id": branch, "role_ids": [1]})
    };
    let import = json!({"tenant": tenant, "branches": [{"id": 1, "name": "A", "time_zone": "UTC"}, {"id": 2, "name": "B", "time_zone": "UTC"}],
        "roles": [{"id": 1, "name": "admin", "permissions": []}], "users": users.iter().map(user).collect::<Vec<_>>()});
    let answer = server.operator(Method::POST, "/api/workspace/import").json(&import).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
}

/// The rows of the outbox, once this holds for them.
pub async fn rows(server: &TestServer, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let work = async {
        loop {
            let answer = server.operator(Method::GET, "/api/outbox").send().await.unwrap();
            let rows = body(answer).await["outbox"].as_array().unwrap().clone();
            if holds(&rows) {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap()
}
