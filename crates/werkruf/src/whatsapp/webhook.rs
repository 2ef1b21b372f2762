//! `GET/POST /webhooks/whatsapp`: Meta's handshake, and messages and delivery reports.
//!
//! Invariants: a request without a signature is refused before its body is read, a wrong one before anything is parsed. The answer 200
//! means that everything in the request is stored; the work follows.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use werkruf_store::crash;

use super::handshake::challenge;
use super::payload::{self, PayloadFault};
use super::receive::Receiver;
use super::settings::{Number, WhatsAppSettings};
use super::signature::{self, Signature};
use crate::api::{ApiError, ApiState, body};
use crate::routing::{self, ApiRouter, routes};

/// Meta's payloads have at most 3 MB.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(routes!(verify, receive))
}

/// Meta's handshake: the right verify token is answered with the challenge.
#[routing::path(get, path = "/webhooks/whatsapp", operation_id = "verify_whatsapp", tag = "webhooks", security(()),
    params(("hub.mode" = String, Query), ("hub.verify_token" = String, Query), ("hub.challenge" = String, Query)),
    responses((status = 200, description = "The challenge as text.", content_type = "text/plain", body = String),
        (status = 403, body = ref("#/components/schemas/Error"))))]
async fn verify(
    State(api): State<Arc<ApiState>>,
    RawQuery(query): RawQuery,
) -> Result<([(HeaderName, &'static str); 2], String), ApiError> {
    let settings = api.app.whatsapp().settings();
    let tokens = settings.numbers.iter().map(|number| &number.verify_token).chain(&settings.verify_token);
    let challenge = challenge(query.as_deref().unwrap_or_default(), tokens).ok_or_else(|| {
        ApiError::forbidden("forbidden", "The verify token is wrong; register the webhook with the one of this server's configuration.")
    })?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8"), (X_CONTENT_TYPE_OPTIONS, "nosniff")], challenge))
}

/// Messages and delivery reports of Meta. The body is signed with the app's secret.
#[routing::path(post, path = "/webhooks/whatsapp", operation_id = "receive_whatsapp", tag = "webhooks", security(()),
    request_body(content = Object, description = "A payload of Meta's webhook, at most 3 MiB."),
    params(("X-Hub-Signature-256" = String, Header, description = "`sha256=` and the HMAC-SHA256 of the body.")),
    responses((status = 200, description = "Everything is stored."), (status = 401, body = ref("#/components/schemas/Error")),
        (status = 413, body = ref("#/components/schemas/Error")),
        (status = 503, body = ref("#/components/schemas/Error"), description = "Nothing is lost: Meta sends it again.")))]
async fn receive(State(api): State<Arc<ApiState>>, headers: HeaderMap, body: body::RequestBody) -> Result<StatusCode, ApiError> {
    let header = headers.get(signature::HEADER).and_then(|value| value.to_str().ok());
    let signature = header.and_then(Signature::read).ok_or_else(unsigned)?;
    let raw = body::bytes_up_to(body, BODY_LIMIT).await?;
    let settings = api.app.whatsapp().settings();
    let numbers = signed_numbers(&settings, &signature, &raw);
    let of_app = |secret: &SecretString| signature.is_of(&raw, secret);
    // The app may have numbers that the configuration does not name. Their messages are counted.
    if numbers.is_empty() && !settings.app_secret.as_ref().is_some_and(of_app) {
        return Err(unsigned());
    }
    raw.reserve_all_values()?;
    let events = match payload::parse(&raw) {
        Ok(events) => events,
        Err(fault @ PayloadFault::NotJson(_)) => return Err(ApiError::invalid(format!("The body {fault}."))),
        // Meta signed it and would send it again for a week, with the same end.
        Err(fault) => {
            tracing::warn!(%fault, bytes = raw.len(), "a signed payload of the webhook was left out");
            return Ok(StatusCode::OK);
        }
    };
    crash::point("whatsapp_received");
    let receiver = Receiver { app: Arc::clone(&api.app), settings, numbers, digest: werkruf_contract::hex(&Sha256::digest(&raw[..])) };
    // Detached: what is stored must be whole, also when Meta closes the connection.
    api.run_detached(async move { receiver.receive(events).await }).await??;
    crash::point("whatsapp_recorded");
    Ok(StatusCode::OK)
}

fn unsigned() -> ApiError {
    ApiError::unauthorized("The header X-Hub-Signature-256 is missing or wrong; only Meta may send to this address.")
}

/// The numbers whose app has signed the body. A payload may speak for these only.
fn signed_numbers(settings: &WhatsAppSettings, signature: &Signature, body: &[u8]) -> Vec<Number> {
    // Numbers of one app share its secret, and the body may be large.
    let mut verdicts: HashMap<&str, bool> = HashMap::new();
    let mut signed = Vec::new();
    for number in &settings.numbers {
        let secret = &number.app_secret;
        if *verdicts.entry(secret.expose_secret()).or_insert_with(|| signature.is_of(body, secret)) {
            signed.push(number.clone());
        }
    }
    signed
}
