//! Requests to authorization servers, with bounds. The client follows no redirect, so an address that was checked is the one that answers.

use std::time::Duration;

use http::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};

use super::challenge::Challenge;
use super::fault::ConnectFault;

const TIMEOUT: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 64 * 1024;
const JSON: &str = "application/json";

/// An answer: its status, and its body where that is JSON.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Option<Value>,
}

impl Answer {
    /// A field of the body that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.body.as_ref()?.get(name)?.as_str()
    }
}

/// The HTTP client of the tools: its resolver keeps to the rules for addresses.
#[derive(Clone)]
pub(super) struct Http(Client);

impl Http {
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    pub(super) async fn get(&self, url: Url) -> Result<Answer, ConnectFault> {
        read(send(self.0.get(url).header(ACCEPT, JSON)).await?).await
    }

    pub(super) async fn post_json(&self, url: Url, body: &Value) -> Result<Answer, ConnectFault> {
        read(send(self.0.post(url).header(ACCEPT, JSON).json(body)).await?).await
    }

    /// Sends a form; `basic` is the name and secret of the client.
    pub(super) async fn post_form(&self, url: Url, fields: &[(&str, &str)], basic: Option<(&str, &str)>) -> Result<Answer, ConnectFault> {
        let form = form(fields);
        let mut request = self.0.post(url).header(ACCEPT, JSON).header("content-type", "application/x-www-form-urlencoded").body(form);
        if let Some((name, secret)) = basic {
            // RFC 6749: both are encoded like a form first.
            request = request.basic_auth(encoded(name), Some(encoded(secret)));
        }
        read(send(request).await?).await
    }

    /// What the server says to a request without a credential. Some servers open a session for everybody, and ask for a credential later.
    pub(super) async fn challenge(&self, server: &Url) -> Result<Challenge, ConnectFault> {
        let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "werkruf", "version": env!("CARGO_PKG_VERSION")}});
        for (method, params) in [("initialize", opening), ("tools/list", json!({}))] {
            let question = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
            let request = self.0.post(server.clone()).header(ACCEPT, "application/json, text/event-stream").json(&question);
            let response = send(request).await?;
            if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
                return Ok(Challenge::read(header.unwrap_or_default()));
            }
        }
        Ok(Challenge::default())
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&")
}

/// A text as a form has it.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

async fn send(request: RequestBuilder) -> Result<Response, ConnectFault> {
    let failed = |error: reqwest::Error| ConnectFault::refused(format!("The server did not answer: {}.", werkruf_llm::cause(&error)));
    request.timeout(TIMEOUT).send().await.map_err(failed)
}

async fn read(mut response: Response) -> Result<Answer, ConnectFault> {
    let status = response.status();
    let mut body = Vec::new();
    let failed = |error: reqwest::Error| ConnectFault::refused(format!("The server broke off: {}.", werkruf_llm::cause(&error)));
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MOST_BYTES {
            return Err(ConnectFault::refused("The server answered with more than 64 KiB."));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body: serde_json::from_slice(&body).ok() })
}
