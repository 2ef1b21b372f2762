//! How commands reach the HTTP API: over a socket or in their own process.
//!
//! The order of choice: the server named by `--server`, the running server that the lock file names, the database itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::request::Builder;
use http::{HeaderName, HeaderValue, Method, Request, header};
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use werkruf_llm::{HttpLimits, http_client, pinned_client};

use super::error::CliError;
use super::transport::{ByteStream, StreamError, in_process, over_socket, refusal, stream_in_process, stream_over_socket, unusable};
use super::{Outcome, Session, address, database};
use crate::api;
use crate::app::App;
use crate::config::Variable;
use crate::lockfile::LockNote;
use crate::sample;
use crate::start_error::StartError;

/// A running server on this machine answers within this time.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

enum Transport {
    Remote { client: Client, base: String },
    Local { router: Router, app: Arc<App> },
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
            None => {
                let config = session.config()?;
                if !session.makes_database {
                    database::must_exist(&config).await?;
                }
                Ok(Self::local(session, App::open_for_command(config).await?))
            }
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
    pub(super) async fn find(session: &Session) -> Result<Option<Self>, CliError> {
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

    /// The address of the server; of this process if there is none.
    pub(super) fn address(&self) -> &str {
        match &self.transport {
            Transport::Remote { base, .. } => base,
            Transport::Local { .. } => "this process",
        }
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
    pub(super) async fn for_user(mut self) -> Result<Self, CliError> {
        if self.user.is_some() || !self.operator {
            return Ok(self);
        }
        let tenant = self.tenant.as_deref().unwrap_or(sample::DEMO);
        if tenant == sample::DEMO || tenant == sample::DEMO_ID.to_string() {
            self.user = Some(sample::DEMO_USER.to_string());
            return Ok(self);
        }
        // A misspelt tenant is the likelier mistake.
        let missing = CliError::Usage(format!("say for which user of tenant {tenant} with --user"));
        let known = self.get("/api/tools").await;
        self.close().await;
        Err(known.err().unwrap_or(missing))
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::GET, path, None).await
    }

    /// The answer of `/readyz`. A server that is not ready says why with status 503.
    pub(super) async fn readiness(&self) -> Result<Value, CliError> {
        self.answer(Method::GET, "/readyz", None).await.map(|(_, response)| response)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::PUT, path, Some(body)).await
    }

    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::PATCH, path, Some(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::DELETE, path, None).await
    }

    /// Waits for running turns in this process before the process exits.
    pub(super) async fn close(self) {
        if let Transport::Local { app, .. } = self.transport {
            app.runtime.drain().await;
            app.modules.mcp.tokens_settled().await;
            app.traces.flush().await;
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
        let (status, response) = self.answer(method, path, body).await?;
        if (200..300).contains(&status) { Ok(response) } else { Err(refusal(status, &response)) }
    }

    /// Status and body of a response of this program.
    async fn answer(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value), CliError> {
        let request = self.request(method, body)?;
        let text = body.map(Value::to_string).unwrap_or_default();
        match &self.transport {
            Transport::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(text).map_err(|error| unusable(&error))?;
                over_socket(client, base, request).await
            }
            Transport::Local { router, .. } => {
                let request = request.uri(path).body(Body::from(text)).map_err(|error| unusable(&error))?;
                in_process(router.clone(), request).await
            }
        }
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
