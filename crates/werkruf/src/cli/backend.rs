//! How commands reach the HTTP API: over a socket or in their own process.
//!
//! The order of choice: the server named by `--server`, the running server that the lock file names, the database itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use http::request::Builder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tower::ServiceExt;
use werkruf_llm::{HttpLimits, http_client, pinned_client};

use super::error::CliError;
use super::{Outcome, Session, address};
use crate::api;
use crate::app::{App, StartError};
use crate::config::Variable;
use crate::lockfile::LockNote;
use crate::sample;

/// A tool call may last as long as a turn. A server that sends nothing for longer counts as gone.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// A running server on this machine answers within this time.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream begins within this time, however long it lasts.
const STREAM_START_TIMEOUT: Duration = Duration::from_secs(60);

/// No response of the API is larger.
const MAX_RESPONSE_BYTES: usize = 256 * 1024 * 1024;

enum Transport {
    Remote { client: Client, base: String },
    Local { router: Router, app: Arc<App> },
}

/// A response body as it arrives.
pub(super) type ByteStream = BoxStream<'static, Result<Bytes, CliError>>;

/// Why a stream could not be opened.
pub(super) enum StreamError {
    /// The server refused the request; `location` is the value of its Location header.
    Refused { status: u16, location: Option<String>, error: CliError },
    /// No response arrived. `sent` is true if the server may have received the request.
    Unreachable { sent: bool, error: CliError },
}

/// Where requests are sent, and for which tenant and user.
pub(super) struct Backend {
    transport: Transport,
    bearer: SecretString,
    /// Whether the bearer is the operator's. A key has its own tenant and user; the operator must name them.
    operator: bool,
    tenant: Option<String>,
    user: Option<String>,
    /// The lock file that named the server; a restarted server writes a new one.
    lock_file: Option<PathBuf>,
}

impl Backend {
    /// Finds the server of this session, or opens the database.
    pub(super) async fn open(session: &Session) -> Result<Self, CliError> {
        match Self::find(session).await? {
            Some(backend) => Ok(backend),
            None => Ok(Self::local(session, App::open_for_command(session.config()?).await?)),
        }
    }

    /// Opens the backend, runs a command with it and closes it, also after an error. A call that the command starts in this process runs
    /// to its end before the process exits.
    pub(super) async fn run(session: &Session, command: impl AsyncFnOnce(&Self) -> Result<(), CliError>) -> Outcome {
        let backend = Self::open(session).await?;
        let result = command(&backend).await;
        backend.close().await;
        result.map(|()| ExitCode::SUCCESS)
    }

    /// Like [`Self::open`], for commands that use the model. Without a server, this process first resumes the turns that an
    /// earlier process left unfinished.
    pub(super) async fn open_with_model(session: &Session) -> Result<Self, CliError> {
        if let Some(backend) = Self::find(session).await? {
            return Ok(backend);
        }
        let app = App::open(session.config()?).await?;
        app.runtime.recover().await.map_err(StartError::from)?;
        Ok(Self::local(session, app))
    }

    /// Opens the API on the database in this process.
    fn local(session: &Session, app: Arc<App>) -> Self {
        if app.store.lease_ttl().is_some() {
            // With a shared database this process must renew its leases and follow what other processes write.
            let runtime = app.runtime.clone();
            app.tasks.spawn(async move { runtime.run_background().await });
        }
        let bearer = app.operator_token.clone();
        let router = api::router(Arc::clone(&app));
        let globals = &session.globals;
        let (tenant, user) = (Some(globals.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned())), globals.user.clone());
        Self { transport: Transport::Local { router, app }, bearer, operator: true, tenant, user, lock_file: None }
    }

    /// Finds a running server.
    async fn find(session: &Session) -> Result<Option<Self>, CliError> {
        let globals = &session.globals;
        let environment = &session.environment;
        let server = globals.server.clone().or_else(|| environment.get(Variable::WERKRUF_SERVER).map(str::to_owned));
        if let Some(server) = server {
            let key = globals.key.clone().or_else(|| environment.get(Variable::WERKRUF_KEY).map(str::to_owned));
            let key = key.ok_or_else(|| CliError::Usage(format!("{server} asks for a key; set WERKRUF_KEY or give --key")))?;
            let transport = Transport::Remote { client: client()?, base: address(&server) };
            let (tenant, user) = (globals.tenant.clone(), globals.user.clone());
            return Ok(Some(Self { transport, bearer: key.into(), operator: false, tenant, user, lock_file: None }));
        }
        let tenant = Some(globals.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned()));
        let user = globals.user.clone();
        let config = session.config()?;
        if let Some(path) = config.lock_path()
            && let Some(note) = LockNote::read(&path)
        {
            let client = client_of(&note)?;
            let base = address(&note.address);
            if is_healthy(&client, &base).await {
                let transport = Transport::Remote { client, base };
                return Ok(Some(Self { transport, bearer: note.token.into(), operator: true, tenant, user, lock_file: Some(path) }));
            }
        }
        Ok(None)
    }

    /// Whether the server was found by its lock file, so that it can be found again after a restart.
    pub(super) const fn found_by_lock_file(&self) -> bool {
        self.lock_file.is_some()
    }

    /// Reads the lock file again: a restarted server has a new token and possibly a new address.
    pub(super) fn reread_lock_file(&mut self) {
        if let (Transport::Remote { base, client }, Some(note)) = (&mut self.transport, self.lock_file.as_deref().and_then(LockNote::read))
        {
            if let Ok(new) = client_of(&note) {
                *client = new;
            }
            *base = address(&note.address);
            self.bearer = note.token.into();
        }
    }

    /// The user for whom requests are made, if one is named.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// For commands that act for a user: without `--user` the operator acts for user 1 of `demo`.
    pub(super) fn for_user(mut self) -> Result<Self, CliError> {
        if self.user.is_some() || !self.operator {
            return Ok(self);
        }
        let demo = self.tenant.as_deref().is_some_and(|tenant| tenant == sample::DEMO || tenant == sample::DEMO_ID.to_string());
        if demo {
            self.user = Some(sample::DEMO_USER.to_string());
        } else {
            return Err(CliError::Usage("a call needs a user; name one with --user".to_owned()));
        }
        Ok(self)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::DELETE, path, None).await
    }

    /// Waits for running turns in this process before the process exits.
    pub(super) async fn close(self) {
        if let Transport::Local { app, .. } = self.transport {
            app.runtime.drain().await;
        }
    }

    /// Opens an event stream. `key` is the idempotency key: a repeated request with the same key starts no second turn.
    pub(super) async fn stream(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<ByteStream, StreamError> {
        let never_sent = |error| StreamError::Unreachable { sent: false, error };
        let mut request = self.request(method, body).map_err(never_sent)?.header(header::ACCEPT, "text/event-stream");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let unusable = |error: http::Error| never_sent(unusable(&error));
        match &self.transport {
            Transport::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(text).map_err(unusable)?;
                stream_over_socket(client, base, request).await
            }
            Transport::Local { router, .. } => {
                let request = request.uri(path).body(Body::from(text)).map_err(unusable)?;
                stream_in_process(router.clone(), request).await
            }
        }
    }

    fn request(&self, method: Method, body: Option<&Value>) -> Result<Builder, CliError> {
        let mut request = Request::builder().method(method);
        for (name, value) in self.headers()? {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        Ok(request)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let request = self.request(method, body)?;
        let text = body.map(Value::to_string).unwrap_or_default();
        let (status, response) = match &self.transport {
            Transport::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(text).map_err(|error| unusable(&error))?;
                over_socket(client, base, request).await?
            }
            Transport::Local { router, .. } => {
                let request = request.uri(path).body(Body::from(text)).map_err(|error| unusable(&error))?;
                in_process(router.clone(), request).await?
            }
        };
        if (200..300).contains(&status) { Ok(response) } else { Err(refusal(status, &response)) }
    }

    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, CliError> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| CliError::Usage(format!("`{text}` cannot be sent in a header")));
        let bearer = HeaderValue::from_str(&format!("Bearer {}", self.bearer.expose_secret()));
        let mut bearer = bearer.map_err(|_| CliError::Usage("the key contains a character that no key has".to_owned()))?;
        bearer.set_sensitive(true);
        let mut headers = vec![(header::AUTHORIZATION, bearer)];
        if let Some(tenant) = &self.tenant {
            headers.push((HeaderName::from_static("x-tenant-id"), value(tenant)?));
        }
        if let Some(user) = &self.user {
            headers.push((HeaderName::from_static("x-user-id"), value(user)?));
        }
        Ok(headers)
    }
}

fn client() -> Result<Client, CliError> {
    http_client(&HttpLimits::default()).map_err(|error| CliError::refused("http_client", error.to_string()))
}

/// The client for the server of a lock file. It trusts the certificate that the file names, and no other.
fn client_of(note: &LockNote) -> Result<Client, CliError> {
    let Some(certificate) = &note.certificate else { return client() };
    pinned_client(&HttpLimits::default(), certificate).map_err(|error| CliError::refused("http_client", error.to_string()))
}

async fn is_healthy(client: &Client, base: &str) -> bool {
    client.get(format!("{base}/healthz")).timeout(HEALTH_TIMEOUT).send().await.is_ok_and(|response| response.status().is_success())
}

fn unusable(error: &http::Error) -> CliError {
    CliError::Usage(format!("this cannot be sent as a request: {error}"))
}

async fn over_socket(client: &Client, base: &str, request: Request<String>) -> Result<(u16, Value), CliError> {
    let unreachable = |error: reqwest::Error| CliError::refused("server_unavailable", format!("{base} does not answer: {error}"));
    let mut request = reqwest::Request::try_from(request).map_err(unreachable)?;
    *request.timeout_mut() = Some(REQUEST_TIMEOUT);
    let response = client.execute(request).await.map_err(unreachable)?;
    let status = response.status().as_u16();
    Ok((status, parse(&response.bytes().await.map_err(unreachable)?)))
}

async fn stream_over_socket(client: &Client, base: &str, request: Request<String>) -> Result<ByteStream, StreamError> {
    let unreachable = |why: String| CliError::refused("server_unavailable", format!("{base} does not answer: {why}"));
    let request = reqwest::Request::try_from(request)
        .map_err(|error| StreamError::Unreachable { sent: false, error: unreachable(error.to_string()) })?;
    let response = match tokio::time::timeout(STREAM_START_TIMEOUT, client.execute(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(StreamError::Unreachable { sent: !error.is_connect(), error: unreachable(error.to_string()) }),
        Err(_) => {
            return Err(StreamError::Unreachable {
                sent: true,
                error: unreachable(format!("no response within {} s", STREAM_START_TIMEOUT.as_secs())),
            });
        }
    };
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(response.bytes_stream().map_err(|error| CliError::refused("server_unavailable", error.to_string())).boxed());
    }
    let location = location(response.headers());
    let body = response.bytes().await.map_err(|error| StreamError::Unreachable { sent: true, error: unreachable(error.to_string()) })?;
    Err(StreamError::Refused { status, location, error: refusal(status, &parse(&body)) })
}

async fn stream_in_process(router: Router, request: Request<Body>) -> Result<ByteStream, StreamError> {
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let broken = |error: axum::Error| CliError::refused("bad_answer", format!("the response broke off: {error}"));
    if (200..300).contains(&status) {
        return Ok(response.into_body().into_data_stream().map_err(broken).boxed());
    }
    let location = location(response.headers());
    let body = to_bytes(response.into_body(), MAX_RESPONSE_BYTES)
        .await
        .map_err(|error| StreamError::Unreachable { sent: true, error: broken(error) })?;
    Err(StreamError::Refused { status, location, error: refusal(status, &parse(&body)) })
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn in_process(router: Router, request: Request<Body>) -> Result<(u16, Value), CliError> {
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), MAX_RESPONSE_BYTES)
        .await
        .map_err(|error| CliError::refused("bad_answer", format!("the response broke off: {error}")))?;
    Ok((status, parse(&bytes)))
}

/// Parses a body: JSON as JSON, an empty body as null, anything else as text.
fn parse(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

fn refusal(status: u16, response: &Value) -> CliError {
    let error = &response["error"];
    let code = error["code"].as_str().map_or_else(|| format!("http_{status}"), str::to_owned);
    let message = error["message"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned);
    CliError::Refused { code, message, details: error.get("details").cloned() }
}
