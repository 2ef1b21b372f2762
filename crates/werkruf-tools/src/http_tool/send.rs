//! Sends one request and reads one bounded response.
//!
//! Invariants: the model's arguments affect only the query or the body, never the host or the path; each call of `send` sends at
//! most one request; the response is bounded in size (after decompression) and in time.

use std::io::ErrorKind;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use serde_json::{Value, json};
use sha2::Sha256;
use werkruf_contract::{Clock, Deadline, ErrorCode, Failure, Invocation, Reply, TRACEPARENT, ToolErrorType};
use werkruf_llm::in_time;

use super::config::{HttpToolConfig, has_parameter};
use super::response::{self, ResponseHead};
use crate::declared_fields::{ConfigFault, Variables};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SIGNATURE: HeaderName = HeaderName::from_static("x-werkruf-signature-256");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-werkruf-timestamp");
const NONCE: HeaderName = HeaderName::from_static("x-werkruf-nonce");
const USER: HeaderName = HeaderName::from_static("x-werkruf-user");
const TENANT: HeaderName = HeaderName::from_static("x-werkruf-tenant");
const JOB: HeaderName = HeaderName::from_static("x-werkruf-job");
/// How long the body of an error response is awaited; its status is already known.
const EXCERPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The address, headers and limits of a tool's requests.
pub(super) struct Target {
    client: Client,
    url: Url,
    /// The address without query and credentials, for errors.
    endpoint: String,
    method: Method,
    headers: HeaderMap,
    key: Option<Hmac<Sha256>>,
    /// The service gets the span of the call.
    traceparent: bool,
    max_response_bytes: u64,
    clock: Clock,
}

impl Target {
    pub(super) fn new(config: &HttpToolConfig, client: Client, clock: &Clock, env: Variables<'_>) -> Result<Self, ConfigFault> {
        let url = config.url()?;
        let key = match config.secret(env)? {
            None => None,
            Some(secret) => {
                let key = Hmac::new_from_slice(secret.as_bytes()).map_err(|_| ConfigFault::new("/secret_env", "holds no usable key"))?;
                Some(key)
            }
        };
        Ok(Self {
            client,
            endpoint: endpoint(&url),
            url,
            method: config.method()?,
            headers: config.header_map(env)?,
            key,
            traceparent: config.traceparent,
            max_response_bytes: config.max_response_bytes,
            clock: clock.clone(),
        })
    }

    /// Sends the request once. Waits until the earlier of the two deadlines, or until the call is canceled.
    pub(super) async fn send(&self, args: &Value, invocation: &Invocation, timeout: Duration) -> Result<Reply, Failure> {
        let deadline = Deadline::after(timeout).earlier(invocation.deadline);
        if invocation.cancel.is_raised() {
            return Err(self.with_endpoint(canceled().nothing_happened()));
        }
        if deadline.passed() {
            return Err(self.with_endpoint(timed_out().nothing_happened()));
        }
        let request = self.request(args, invocation)?;
        let exchange = in_time(deadline, self.exchange(request, invocation));
        // A response that has already arrived takes precedence over a cancel request, because its outcome is known.
        tokio::select! {
            biased;
            outcome = exchange => outcome.unwrap_or_else(|| Err(self.with_endpoint(timed_out()))),
            () = invocation.cancel.raised() => Err(self.with_endpoint(canceled())),
        }
    }

    fn request(&self, args: &Value, invocation: &Invocation) -> Result<Request, Failure> {
        let mut url = self.url.clone();
        let mut body = None;
        let signed = if self.method == Method::GET {
            add_query(&mut url, args)?;
            url.query().unwrap_or_default().as_bytes().to_vec()
        } else {
            let bytes = payload(args, invocation).map_err(|error| unsendable(error.to_string()))?;
            body = Some(bytes.clone());
            bytes
        };
        let mut request = Request::new(self.method.clone(), url);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(self.headers.clone());
        let mut set = |name: HeaderName, value: &str| -> Result<(), Failure> {
            headers.insert(name, HeaderValue::try_from(value).map_err(|error| unsendable(error.to_string()))?);
            Ok(())
        };
        set(IDEMPOTENCY_KEY, &invocation.idempotency_key)?;
        if self.method == Method::GET {
            // A request with a body has the caller in its context.
            set(USER, &invocation.principal.user_id)?;
            set(TENANT, &invocation.principal.tenant_id.to_string())?;
            set(JOB, &invocation.job_id.to_string())?;
        }
        if let Some(span) = invocation.context.extra.get(TRACEPARENT).and_then(Value::as_str).filter(|_| self.traceparent) {
            set(HeaderName::from_static(TRACEPARENT), span)?;
        }
        if let Some(key) = &self.key {
            let (timestamp, nonce) = (self.clock.now().as_second().to_string(), self.clock.new_id().simple().to_string());
            let signature = key.clone().chain_update(format!("{timestamp}.{nonce}.")).chain_update(&signed).finalize();
            set(SIGNATURE, &format!("sha256={}", werkruf_contract::hex(&signature.into_bytes())))?;
            set(TIMESTAMP, &timestamp)?;
            set(NONCE, &nonce)?;
        }
        *request.body_mut() = body.map(Into::into);
        Ok(request)
    }

    async fn exchange(&self, request: Request, invocation: &Invocation) -> Result<Reply, Failure> {
        let response = self.client.execute(request).await.map_err(|error| self.transport_failure(error, None))?;
        let head = ResponseHead::new(&response, invocation.context.now_iso);
        if !response.status().is_success() {
            let body_excerpt = tokio::time::timeout(EXCERPT_TIMEOUT, excerpt(response)).await.unwrap_or_default();
            return Err(self.with_endpoint(head.refusal(&body_excerpt)));
        }
        let body = self.body(response).await?;
        head.reply(&body).map_err(|failure| self.with_endpoint(failure))
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let status = response.status().as_u16();
        let max_bytes = usize::try_from(self.max_response_bytes).unwrap_or(usize::MAX);
        if response.content_length().is_some_and(|length| length > self.max_response_bytes) {
            return Err(self.with_endpoint(response::too_large(status, max_bytes)));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport_failure(error, Some(status)))? {
            if body.len() + chunk.len() > max_bytes {
                return Err(self.with_endpoint(response::too_large(status, max_bytes)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The failure for a transport error, before or after the request was sent.
    fn transport_failure(&self, error: reqwest::Error, status: Option<u16>) -> Failure {
        let failure = if error.is_connect() {
            Failure::upstream(ErrorCode::UpstreamUnreachable, "The service behind this tool could not be reached.").nothing_happened()
        } else if error.is_timeout() {
            timed_out()
        } else if error.is_builder() {
            unsendable(String::new())
        } else if is_undecodable(&error) {
            response::bad_response("The service behind this tool sent an answer that could not be read.")
        } else {
            Failure::upstream(
                ErrorCode::UpstreamError,
                "The connection to the service behind this tool was lost before its answer was complete.",
            )
            .may_have_happened()
        };
        failure.because(chain(error)).from_upstream(status, &self.endpoint)
    }

    fn with_endpoint(&self, mut failure: Failure) -> Failure {
        failure.endpoint = Some(self.endpoint.clone());
        failure
    }
}

fn timed_out() -> Failure {
    Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "The service behind this tool did not answer in time.")
}

fn canceled() -> Failure {
    Failure::fatal(ErrorCode::Canceled, "The call was canceled.")
}

fn unsendable(cause: String) -> Failure {
    Failure::fatal("internal", "The request to the service behind this tool could not be written.").because(cause).nothing_happened()
}

/// The address without query and credentials.
fn endpoint(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    // Both fail only on addresses without a host, which the validation of the declaration refuses.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.into()
}

fn payload(args: &Value, invocation: &Invocation) -> Result<Vec<u8>, serde_json::Error> {
    let principal = &invocation.principal;
    // `auth` never serialises.
    let mut context = serde_json::to_value(&*invocation.context)?;
    if let Some(fields) = context.as_object_mut() {
        // Who may have it gets a header.
        fields.remove(TRACEPARENT);
    }
    context["user_id"] = json!(principal.user_id);
    context["roles"] = principal.roles.iter().map(|role| role.name.as_str()).collect();
    context["branch_id"] = json!(principal.branch_id);
    serde_json::to_vec(&json!({
        "arguments": args,
        "context": context,
        "job_id": invocation.job_id,
        "attempt": invocation.attempt,
        "turn_id": invocation.turn_id,
        "conversation_id": invocation.conversation_id,
    }))
}

/// Adds the arguments to the query: strings, numbers and booleans as text, lists and objects as JSON; nulls are left out. An argument
/// cannot give a parameter of the configured address a second value.
fn add_query(url: &mut Url, args: &Value) -> Result<(), Failure> {
    let pairs: Vec<(&String, String)> = args
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    if let Some((name, _)) = pairs.iter().find(|(name, _)| has_parameter(url, name)) {
        let message = format!("The argument \"{name}\" is set by the operator. Leave it out.");
        return Err(Failure::validation(ErrorCode::InvalidArguments, message).nothing_happened());
    }
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    Ok(())
}

/// The first bytes of an error response, for the cause.
async fn excerpt(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < response::EXCERPT_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    response::cut(&bytes)
}

/// Whether the bytes arrived but could not be decompressed. The client reports a lost connection as a decoding error too, hence the check.
fn is_undecodable(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput);
        }
        source = cause.source();
    }
    false
}

/// The error and its causes, without the address, because the query contains arguments.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    response::cut(text.as_bytes())
}
