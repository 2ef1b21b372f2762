//! The channel of webhooks: one signed request per notification.
//!
//! Invariants: the address comes from the configuration alone; a redirect is not followed; of a response no more than its beginning is read. The body
//! and its id are the same at every attempt.

use std::collections::HashMap;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};
use ring::hmac;
use secrecy::ExposeSecret;
use werkruf_contract::{BoxFuture, hex};
use werkruf_llm::{cause, retry_after};
use werkruf_runtime::{Channel, OutboxBody, SendResult, WEBHOOK, Webhook};
use werkruf_store::OutboxRow;

use crate::config::WebhookConfig;

const SIGNATURE: HeaderName = HeaderName::from_static("x-werkruf-signature-256");
/// Shorter than the time that the outbox gives a sending, so that the cause is known.
const TIMEOUT: Duration = Duration::from_secs(9);
/// How much of a refusal is kept, for the operator.
const EXCERPT_BYTES: usize = 500;
/// How long a row waits whose webhook was removed from the configuration: an operator has to act.
const REMOVED_PAUSE: Duration = Duration::from_secs(3600);

/// Sends notifications to the configured programs.
pub(crate) struct WebhookChannel {
    client: Client,
    targets: HashMap<String, Target>,
}

struct Target {
    url: Url,
    key: hmac::Key,
}

impl WebhookChannel {
    /// The client must not follow redirects.
    pub(crate) fn new(webhooks: &[WebhookConfig], client: Client) -> Self {
        let target = |webhook: &WebhookConfig| Target {
            url: webhook.url.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, webhook.secret.expose_secret().as_bytes()),
        };
        Self { client, targets: webhooks.iter().map(|webhook| (webhook.name.clone(), target(webhook))).collect() }
    }
}

/// What the runtime knows of a webhook.
pub(crate) fn subscription(webhook: &WebhookConfig) -> Webhook {
    Webhook { name: webhook.name.clone(), tenant: webhook.tenant.clone(), events: webhook.events.clone() }
}

impl std::fmt::Debug for WebhookChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookChannel").field("webhooks", &self.targets.keys()).finish_non_exhaustive()
    }
}

impl Channel for WebhookChannel {
    fn name(&self) -> &'static str {
        WEBHOOK
    }

    fn parts(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    fn send<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, SendResult> {
        Box::pin(async move {
            let Some(target) = self.targets.get(&row.recipient.account) else {
                let message = format!("the webhook {} is not in the configuration", row.recipient.account);
                return SendResult::Retry { after: Some(REMOVED_PAUSE), code: "not_configured".to_owned(), message };
            };
            match serde_json::from_str(&row.body) {
                Ok(OutboxBody::Notification { event }) => target.post(&self.client, event.to_string().into_bytes()).await,
                Ok(_) | Err(_) => SendResult::Dead { code: "internal".to_owned(), message: "the row holds no notification".to_owned() },
            }
        })
    }

    fn reconcile_after(&self) -> Duration {
        Duration::ZERO
    }

    fn has_account(&self, account: &str) -> bool {
        self.targets.contains_key(account)
    }
}

impl Target {
    async fn post(&self, client: &Client, body: Vec<u8>) -> SendResult {
        let signature = format!("sha256={}", hex(hmac::sign(&self.key, &body).as_ref()));
        let request = client
            .post(self.url.clone())
            .timeout(TIMEOUT)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(SIGNATURE, signature)
            .body(body);
        match request.send().await {
            Ok(response) => result_of(response).await,
            Err(error) => {
                let code = if error.is_connect() { "upstream_unreachable" } else { "no_answer" };
                SendResult::Retry { after: None, code: code.to_owned(), message: cause(&error) }
            }
        }
    }
}

/// A receiver that refuses a notification for good is not asked again; one that is busy or broken is.
async fn result_of(response: Response) -> SendResult {
    let status = response.status();
    if status.is_success() {
        return SendResult::Sent { external_id: None };
    }
    let after = retry_after(response.headers());
    let message = format!("HTTP {}: {}", status.as_u16(), excerpt(response).await);
    let again = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_client_error() && !again.contains(&status) {
        return SendResult::Dead { code: "webhook_refused".to_owned(), message };
    }
    SendResult::Retry { after, code: "upstream_error".to_owned(), message }
}

async fn excerpt(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    bytes.truncate(EXCERPT_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}
