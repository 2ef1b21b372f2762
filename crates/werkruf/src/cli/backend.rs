//! The one seam between commands and the house: its HTTP API, spoken over a socket or in this process.
//!
//! Chosen in this order: a server named by `--server`, the running server the lock file tells of, the database itself.

use std::path::PathBuf;
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
use werkruf_llm::{HttpLimits, http_client};

use super::error::CliError;
use super::{Session, address};
use crate::api;
use crate::app::{App, StartError};
use crate::config::Variable;
use crate::lockfile::LockNote;
use crate::sample;

/// A tool may take its whole turn; a server that says nothing for longer is gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server on this machine that lives answers within this.
const ALIVE: Duration = Duration::from_secs(2);

/// A stream begins within this, however long it then lasts.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// No answer of the API is larger.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

enum Way {
    Remote { client: Client, base: String },
    Local { router: Router, app: Arc<App> },
}

/// A body as it comes.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, CliError>>;

/// Why there is no stream.
pub(super) enum Broken {
    /// The server said no; `place` is where it points to instead.
    Refused { status: u16, place: Option<String>, error: CliError },
    /// Nobody answered. `sent` when the request may have arrived all the same.
    Gone { sent: bool, error: CliError },
}

/// Where requests go, and for whom.
pub(super) struct Backend {
    way: Way,
    bearer: SecretString,
    /// A key of another server knows its own tenant and user; the operator must say for whom it acts.
    operator: bool,
    tenant: Option<String>,
    user: Option<String>,
    /// The note that told of the server; a restarted one writes another.
    note: Option<PathBuf>,
}

impl Backend {
    /// Finds the house this session means.
    pub(super) async fn open(session: &Session) -> Result<Self, CliError> {
        match Self::find(session).await? {
            Some(found) => Ok(found),
            None => Ok(Self::alone(session, App::open_for_command(session.config()?).await?)),
        }
    }

    /// The same for commands that ask the model. Without a server this process is one: what an earlier one left goes on first.
    pub(super) async fn open_with_model(session: &Session) -> Result<Self, CliError> {
        if let Some(found) = Self::find(session).await? {
            return Ok(found);
        }
        let app = App::open(session.config()?).await?;
        app.runtime.recover().await.map_err(StartError::from)?;
        Ok(Self::alone(session, app))
    }

    /// The database itself, in this process.
    fn alone(session: &Session, app: Arc<App>) -> Self {
        if app.store.lease_ttl().is_some() {
            // Beside other processes this one keeps its leases, and hears what they write.
            let watcher = app.runtime.clone();
            app.tasks.spawn(async move { watcher.run_background().await });
        }
        let bearer = app.operator_token.clone();
        let router = api::router(Arc::clone(&app));
        let globals = &session.globals;
        let (tenant, user) = (Some(globals.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned())), globals.user.clone());
        Self { way: Way::Local { router, app }, bearer, operator: true, tenant, user, note: None }
    }

    /// A running server.
    async fn find(session: &Session) -> Result<Option<Self>, CliError> {
        let globals = &session.globals;
        let environment = &session.environment;
        let server = globals.server.clone().or_else(|| environment.get(Variable::WERKRUF_SERVER).map(str::to_owned));
        if let Some(server) = server {
            let key = globals.key.clone().or_else(|| environment.get(Variable::WERKRUF_KEY).map(str::to_owned));
            let key = key.ok_or_else(|| CliError::Usage(format!("{server} asks for a key; set WERKRUF_KEY or give --key")))?;
            let way = Way::Remote { client: client()?, base: address(&server) };
            let (tenant, user) = (globals.tenant.clone(), globals.user.clone());
            return Ok(Some(Self { way, bearer: key.into(), operator: false, tenant, user, note: None }));
        }
        let tenant = Some(globals.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned()));
        let user = globals.user.clone();
        let config = session.config()?;
        if let Some(path) = config.lock_path()
            && let Some(note) = LockNote::read(&path)
        {
            let client = client()?;
            let base = address(&note.address);
            if lives(&client, &base).await {
                let way = Way::Remote { client, base };
                return Ok(Some(Self { way, bearer: note.token.into(), operator: true, tenant, user, note: Some(path) }));
            }
        }
        Ok(None)
    }

    /// Whether the server was found by its note, so that a restarted one can be found again.
    pub(super) const fn is_beside_server(&self) -> bool {
        self.note.is_some()
    }

    /// Reads the note again: a restarted server has another token, and maybe another address.
    pub(super) fn renew(&mut self) {
        if let (Way::Remote { base, .. }, Some(note)) = (&mut self.way, self.note.as_deref().and_then(LockNote::read)) {
            *base = address(&note.address);
            self.bearer = note.token.into();
        }
    }

    /// The user requests are made for, where one is named.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// For commands that act for a person: without `--user` the operator speaks for user 1 of `demo`.
    pub(super) fn for_a_person(mut self) -> Result<Self, CliError> {
        if self.user.is_some() || !self.operator {
            return Ok(self);
        }
        let demo = self.tenant.as_deref().is_some_and(|tenant| tenant == sample::DEMO || tenant == sample::DEMO_ID.to_string());
        if demo {
            self.user = Some(sample::DEMO_USER.to_string());
        } else {
            return Err(CliError::Usage("a call is made for a person; say for whom with --user".to_owned()));
        }
        Ok(self)
    }

    /// Reads.
    pub(super) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::GET, path, None).await
    }

    /// Asks for something to be done.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Removes.
    pub(super) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.send(Method::DELETE, path, None).await
    }

    /// Lets work that a request began come to its end before the process leaves.
    pub(super) async fn close(self) {
        if let Way::Local { app, .. } = self.way {
            app.runtime.drain().await;
        }
    }

    /// Asks for events as they happen; `key` makes a second copy of the request the same request.
    pub(super) async fn stream(&self, method: Method, path: &str, body: Option<&Value>, key: Option<&str>) -> Result<Pieces, Broken> {
        let never_sent = |error| Broken::Gone { sent: false, error };
        let mut request = self.request(method, body).map_err(never_sent)?.header(header::ACCEPT, "text/event-stream");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let unusable = |error: http::Error| never_sent(unusable(&error));
        match &self.way {
            Way::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(text).map_err(unusable)?;
                stream_over_socket(client, base, request).await
            }
            Way::Local { router, .. } => {
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
        let (status, answer) = match &self.way {
            Way::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(text).map_err(|error| unusable(&error))?;
                over_socket(client, base, request).await?
            }
            Way::Local { router, .. } => {
                let request = request.uri(path).body(Body::from(text)).map_err(|error| unusable(&error))?;
                in_process(router.clone(), request).await?
            }
        };
        if (200..300).contains(&status) { Ok(answer) } else { Err(refusal(status, &answer)) }
    }

    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, CliError> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| CliError::Usage(format!("`{text}` cannot be sent in a header")));
        let bearer = HeaderValue::from_str(&format!("Bearer {}", self.bearer.expose_secret()));
        let mut bearer = bearer.map_err(|_| CliError::Usage("the key holds a character no key has".to_owned()))?;
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

async fn lives(client: &Client, base: &str) -> bool {
    client.get(format!("{base}/healthz")).timeout(ALIVE).send().await.is_ok_and(|answer| answer.status().is_success())
}

fn unusable(error: &http::Error) -> CliError {
    CliError::Usage(format!("this cannot be sent as a request: {error}"))
}

async fn over_socket(client: &Client, base: &str, request: Request<String>) -> Result<(u16, Value), CliError> {
    let gone = |error: reqwest::Error| CliError::refused("server_unavailable", format!("{base} does not answer: {error}"));
    let mut request = reqwest::Request::try_from(request).map_err(gone)?;
    *request.timeout_mut() = Some(PATIENCE);
    let answer = client.execute(request).await.map_err(gone)?;
    let status = answer.status().as_u16();
    Ok((status, parse(&answer.bytes().await.map_err(gone)?)))
}

async fn stream_over_socket(client: &Client, base: &str, request: Request<String>) -> Result<Pieces, Broken> {
    let gone = |why: String| CliError::refused("server_unavailable", format!("{base} does not answer: {why}"));
    let request = reqwest::Request::try_from(request).map_err(|error| Broken::Gone { sent: false, error: gone(error.to_string()) })?;
    let answer = match tokio::time::timeout(FIRST_WORD, client.execute(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(Broken::Gone { sent: !error.is_connect(), error: gone(error.to_string()) }),
        Err(_) => return Err(Broken::Gone { sent: true, error: gone(format!("nothing came in {} s", FIRST_WORD.as_secs())) }),
    };
    let status = answer.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(answer.bytes_stream().map_err(|error| CliError::refused("server_unavailable", error.to_string())).boxed());
    }
    let place = location(answer.headers());
    let told = answer.bytes().await.map_err(|error| Broken::Gone { sent: true, error: gone(error.to_string()) })?;
    Err(Broken::Refused { status, place, error: refusal(status, &parse(&told)) })
}

async fn stream_in_process(router: Router, request: Request<Body>) -> Result<Pieces, Broken> {
    let answer = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = answer.status().as_u16();
    let broken = |error: axum::Error| CliError::refused("bad_answer", format!("the answer broke off: {error}"));
    if (200..300).contains(&status) {
        return Ok(answer.into_body().into_data_stream().map_err(broken).boxed());
    }
    let place = location(answer.headers());
    let told = to_bytes(answer.into_body(), LARGEST_ANSWER).await.map_err(|error| Broken::Gone { sent: true, error: broken(error) })?;
    Err(Broken::Refused { status, place, error: refusal(status, &parse(&told)) })
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(header::LOCATION).and_then(|place| place.to_str().ok()).map(str::to_owned)
}

async fn in_process(router: Router, request: Request<Body>) -> Result<(u16, Value), CliError> {
    let answer = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = answer.status().as_u16();
    let bytes = to_bytes(answer.into_body(), LARGEST_ANSWER)
        .await
        .map_err(|error| CliError::refused("bad_answer", format!("the answer broke off: {error}")))?;
    Ok((status, parse(&bytes)))
}

/// JSON as JSON, no body as null, anything else as text.
fn parse(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

fn refusal(status: u16, answer: &Value) -> CliError {
    let error = &answer["error"];
    let code = error["code"].as_str().map_or_else(|| format!("http_{status}"), str::to_owned);
    let message = error["message"].as_str().map_or_else(|| format!("the server answered {status}"), str::to_owned);
    CliError::Refused { code, message, details: error.get("details").cloned() }
}
