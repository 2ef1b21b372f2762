//! The program behind a webhook: it records what comes and answers as the test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use ring::hmac;
use serde_json::Value;
use tokio::net::TcpListener;

/// The key of all webhooks of the tests.
pub const SECRET: &str = "webhook-secret-of-the-tests";

/// One request.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub body: Bytes,
    /// Whether the signature fits the bytes.
    pub signed: bool,
}

impl Received {
    pub fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone, Default)]
struct Shared {
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Mutex<VecDeque<u16>>>,
}

pub struct Receiver {
    url: String,
    shared: Shared,
}

impl Receiver {
    /// Starts a receiver that accepts everything.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    pub async fn start() -> Self {
        let shared = Shared::default();
        let own = shared.clone();
        let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let header = headers.get("x-werkruf-signature-256").and_then(|value| value.to_str().ok()).unwrap_or_default();
            let signature: Vec<u8> = header.strip_prefix("sha256=").map(unhex).unwrap_or_default();
            let signed = hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &body, &signature).is_ok();
            own.received.lock().unwrap().push(Received { path: uri.path().to_owned(), body, signed });
            let status = own.answers.lock().unwrap().pop_front().unwrap_or(204);
            async move { StatusCode::from_u16(status).unwrap() }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, shared }
    }

    /// The next requests are answered with these statuses; later ones are accepted.
    pub fn answer(&self, statuses: &[u16]) {
        self.shared.answers.lock().unwrap().extend(statuses);
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// A webhook of this receiver.
    pub fn webhook(&self, name: &str, events: &str) -> String {
        format!("[[webhooks]]\nname = '{name}'\nurl = '{}/{name}'\nevents = [{events}]\nsecret_env = 'HOOK_SECRET'\n", self.url)
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).filter_map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
