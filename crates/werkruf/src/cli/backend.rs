//! The one seam between commands and the house: its HTTP API, spoken over a socket or in this process.
//!
//! Chosen in this order: a server named by `--server`, the running server the lock file tells of, the database itself.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderName, HeaderValue, Method, Request, header};
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tower::ServiceExt;
use werkruf_llm::{HttpLimits, http_client};

use super::error::CliError;
use super::{Session, address};
use crate::api;
use crate::app::App;
use crate::config::Variable;
use crate::lockfile::LockNote;
use crate::sample;

/// A tool may take its whole turn; a server that says nothing for longer is gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server on this machine that lives answers within this.
const ALIVE: Duration = Duration::from_secs(2);

/// No answer of the API is larger.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

enum Way {
    Remote { client: Client, base: String },
    Local { router: Router, app: Arc<App> },
}

/// Where requests go, and for whom.
pub(super) struct Backend {
    way: Way,
    bearer: SecretString,
    /// A key of another server knows its own tenant and user; the operator must say for whom it acts.
    operator: bool,
    tenant: Option<String>,
    user: Option<String>,
}

impl Backend {
    /// Finds the house this session means.
    pub(super) async fn open(session: &Session) -> Result<Self, CliError> {
        let globals = &session.globals;
        let environment = &session.environment;
        let server = globals.server.clone().or_else(|| environment.get(Variable::WERKRUF_SERVER).map(str::to_owned));
        if let Some(server) = server {
            let key = globals.key.clone().or_else(|| environment.get(Variable::WERKRUF_KEY).map(str::to_owned));
            let key = key.ok_or_else(|| CliError::Usage(format!("{server} asks for a key; set WERKRUF_KEY or give --key")))?;
            let way = Way::Remote { client: client()?, base: address(&server) };
            return Ok(Self { way, bearer: key.into(), operator: false, tenant: globals.tenant.clone(), user: globals.user.clone() });
        }
        let tenant = Some(globals.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned()));
        let user = globals.user.clone();
        let config = session.config()?;
        if let Some(note) = LockNote::read(&config.lock_path()) {
            let client = client()?;
            let base = address(&note.address);
            if lives(&client, &base).await {
                return Ok(Self { way: Way::Remote { client, base }, bearer: note.token.into(), operator: true, tenant, user });
            }
        }
        let app = App::open_for_command(config).await?;
        let bearer = app.operator_token.clone();
        let router = api::router(Arc::clone(&app));
        Ok(Self { way: Way::Local { router, app }, bearer, operator: true, tenant, user })
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

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let mut request = Request::builder().method(method);
        for (name, value) in self.headers()? {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
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
