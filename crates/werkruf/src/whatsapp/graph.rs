//! The client of Meta's Graph API: sends rows of the outbox, marks messages as read.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use werkruf_contract::{BoxFuture, Uuid};
use werkruf_llm::{HttpLimits, cause, retry_after};
use werkruf_runtime::{Channel, OutboxBody, SendResult};
use werkruf_store::{OutboxRow, PersonAddress, canonical_phone};

use super::answer::{self, Answer};
use super::settings::{Number, WhatsAppSettings};
use super::{CHANNEL, markup, outgoing, split};

/// The time limit for opening a connection. It is shorter than the one of a request, so that a message that surely did not leave is known as such.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// The time limit of all requests for one row, which ends before the outbox gives the row up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// With less time left no request is sent, because its outcome would only be in doubt.
const SHORTEST_REQUEST: Duration = Duration::from_secs(1);
/// The time limit of a request that nothing depends on.
const MARK_TIMEOUT: Duration = Duration::from_secs(5);
/// How many messages are being marked as read at once; further ones are not marked.
const MARKS: usize = 32;
/// How long a row waits whose number is not in the configuration: the operator may add it again.
const REMOVED_PAUSE: Duration = Duration::from_secs(600);
const MAX_RESPONSE: usize = 64 * 1024;
/// Meta accepts 80 messages per second and number.
const PACE: Duration = Duration::from_micros(12_500);

/// The channel `whatsapp`.
pub(crate) struct WhatsApp {
    client: Client,
    settings: RwLock<Arc<WhatsAppSettings>>,
    /// When the next message of a number may leave.
    next: Mutex<HashMap<String, Instant>>,
    marks: Semaphore,
    /// How many messages came for numbers that the settings do not name.
    unknown_numbers: AtomicU64,
}

impl fmt::Debug for WhatsApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhatsApp").field("settings", &self.settings()).finish_non_exhaustive()
    }
}

impl WhatsApp {
    /// The limits of its HTTP client.
    pub(crate) fn http_limits() -> HttpLimits {
        HttpLimits { connect: CONNECT_TIMEOUT, ..HttpLimits::default() }
    }

    pub(crate) fn new(client: Client, settings: WhatsAppSettings) -> Self {
        let (settings, next, marks) = (RwLock::new(Arc::new(settings)), Mutex::default(), Semaphore::new(MARKS));
        Self { client, settings, next, marks, unknown_numbers: AtomicU64::default() }
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Arc<WhatsAppSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Messages from now on use these settings.
    pub(crate) fn reload(&self, settings: WhatsAppSettings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// How many events came for numbers that the settings do not name.
    pub(crate) fn unknown_numbers(&self) -> u64 {
        self.unknown_numbers.load(Ordering::Relaxed)
    }

    /// Counts an event for a number that the settings do not name; returns how many there were.
    pub(super) fn count_unknown_number(&self) -> u64 {
        self.unknown_numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Marks a message as read and shows that an answer is being written. Nothing depends on it, so a failure is only logged.
    pub(crate) async fn mark_read(&self, phone_number_id: &str, message_id: &str) {
        let settings = self.settings();
        let Some(number) = settings.number(phone_number_id) else { return };
        let Ok(_place) = self.marks.try_acquire() else { return };
        let request = self.post(&settings, number, &outgoing::read_and_typing(message_id)).timeout(MARK_TIMEOUT);
        match request.send().await {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => tracing::debug!(status = response.status().as_u16(), phone_number_id, "a message was not marked as read"),
            Err(error) => tracing::debug!(why = cause(&error), phone_number_id, "a message was not marked as read"),
        }
    }

    fn post(&self, settings: &WhatsAppSettings, number: &Number, body: &Value) -> RequestBuilder {
        let WhatsAppSettings { base_url, api_version, .. } = settings;
        let url = format!("{base_url}/{api_version}/{}/messages", number.phone_number_id);
        self.client.post(url).bearer_auth(number.access_token.expose_secret()).json(body)
    }

    async fn send_row(&self, row: &OutboxRow) -> SendResult {
        let dead = |code: &str, message: &str| SendResult::Dead { code: code.to_owned(), message: message.to_owned() };
        let settings = self.settings();
        let Some(number) = settings.number(&row.recipient.account) else {
            let message = format!("the number {} is not in the configuration", row.recipient.account);
            return SendResult::Retry { after: Some(REMOVED_PAUSE), code: "not_configured".to_owned(), message };
        };
        let Ok(body) = serde_json::from_str::<OutboxBody>(&row.body) else {
            return dead("internal", "the row has a body that this release cannot read");
        };
        let Some(message) = outgoing::message(row, &body, number) else {
            return dead("internal", "the row carries nothing that can be sent by WhatsApp");
        };
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let closed = match self.request(&settings, number, &message, row.attempts, deadline).await {
            Answer::Settled(result) => return hidden(result, number),
            Answer::WindowClosed { message } => message,
        };
        let is_template = matches!(body, OutboxBody::Template { .. });
        let Some(template) = outgoing::template(row, &body, number).filter(|_| !is_template) else {
            return dead(&answer::WINDOW_CLOSED.to_string(), &closed);
        };
        match self.request(&settings, number, &template, row.attempts, deadline).await {
            Answer::Settled(result) => hidden(result, number),
            Answer::WindowClosed { message } => dead(&answer::WINDOW_CLOSED.to_string(), &message),
        }
    }

    /// One request, to be answered before `deadline`.
    async fn request(&self, settings: &WhatsAppSettings, number: &Number, body: &Value, attempts: u32, deadline: Instant) -> Answer {
        self.wait_for_turn(&number.phone_number_id).await;
        let left = deadline.saturating_duration_since(Instant::now());
        if left < SHORTEST_REQUEST {
            let message = "no time was left for the request".to_owned();
            return Answer::Settled(SendResult::Retry { after: None, code: "upstream_unreachable".to_owned(), message });
        }
        let response = match self.post(settings, number, body).timeout(left).send().await {
            Ok(response) => response,
            Err(error) => return Answer::Settled(not_answered(&error)),
        };
        let (status, wait) = (response.status().as_u16(), retry_after(response.headers()));
        match bounded(response).await {
            // The message was accepted, but its id is not known.
            Err(error) if status < 300 => Answer::Settled(not_answered(&error)),
            Err(_) => answer::read(status, wait, b"", attempts),
            Ok(body) => answer::read(status, wait, &body, attempts),
        }
    }

    /// Spaces the messages of a number out.
    async fn wait_for_turn(&self, phone_number_id: &str) {
        let now = Instant::now();
        let slot = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = next.get(phone_number_id).copied().unwrap_or(now).max(now);
            next.insert(phone_number_id.to_owned(), slot + PACE);
            slot
        };
        tokio::time::sleep_until(slot).await;
    }
}

/// A request without an answer: surely not sent if there was no connection, else perhaps.
fn not_answered(error: &reqwest::Error) -> SendResult {
    let message = cause(error);
    if error.is_connect() || error.is_builder() {
        return SendResult::Retry { after: None, code: "upstream_unreachable".to_owned(), message };
    }
    SendResult::Unknown { code: answer::NO_ANSWER.to_owned(), message }
}

/// The body of a response. What exceeds the limit is not read; such a body is no answer of Meta.
async fn bounded(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_RESPONSE {
            return Ok(Vec::new());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The digits of a phone number with its country code, as Meta wants them; `None` for a number without one.
fn dialed(phone: &str) -> Option<String> {
    let phone = phone.trim();
    let has_country = phone.starts_with('+') || phone.starts_with("00") || !phone.starts_with('0');
    // The canonical form says whether it is a phone number; digits that it leaves out are dialed.
    canonical_phone(phone).filter(|_| has_country)?;
    let digits: String = phone.replace("(0)", "").chars().filter(char::is_ascii_digit).collect();
    Some(digits.strip_prefix("00").map_or(digits.clone(), str::to_owned))
}

/// Meta repeats a malformed token in its message.
fn hidden(result: SendResult, number: &Number) -> SendResult {
    let clean = |message: String| message.replace(number.access_token.expose_secret(), "[redacted]");
    match result {
        SendResult::Retry { after, code, message } => SendResult::Retry { after, code, message: clean(message) },
        SendResult::Unknown { code, message } => SendResult::Unknown { code, message: clean(message) },
        SendResult::Dead { code, message } => SendResult::Dead { code, message: clean(message) },
        sent @ SendResult::Sent { .. } => sent,
    }
}

impl Channel for WhatsApp {
    fn name(&self) -> &'static str {
        CHANNEL
    }

    fn parts(&self, text: &str) -> Vec<String> {
        let parts = split::split(&markup::to_whatsapp(text), split::PART_UNITS);
        // An answer of marks only is sent as it is: without a part nobody would get an answer.
        if parts.is_empty() { split::split(text, split::PART_UNITS) } else { parts }
    }

    fn send<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, SendResult> {
        Box::pin(self.send_row(row))
    }

    fn reconcile_after(&self) -> Duration {
        self.settings().reconcile
    }

    fn has_account(&self, account: &str) -> bool {
        self.settings().number(account).is_some()
    }

    fn sends_for(&self, tenant_id: Uuid, account: &str) -> bool {
        self.settings().number(account).is_some_and(|number| number.tenant_id == tenant_id)
    }

    /// A number of the tenant, that of the person's branch first. Whoever has not written may get a template only.
    fn address_of(&self, tenant_id: Uuid, person: &PersonAddress) -> Option<(String, String)> {
        let settings = self.settings();
        let mut own = settings.numbers.iter().filter(|number| number.tenant_id == tenant_id);
        let of_branch = own.clone().find(|number| number.branch_id.is_some() && number.branch_id == person.branch_id);
        let number = of_branch.or_else(|| own.next())?;
        let phone = person.phone.as_deref().and_then(dialed);
        Some((number.phone_number_id.clone(), phone.or_else(|| person.whatsapp_user_id.clone())?))
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
