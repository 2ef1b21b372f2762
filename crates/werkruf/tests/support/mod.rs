//! A complete server on a free port, with a scripted model and its own database.

mod described;

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use werkruf::api;
use werkruf::app::App;
use werkruf::config::{Config, Environment, Flags};
use werkruf::identity;
use werkruf::listen::{Bounds, Listener};
use werkruf_bench::fake_model::FakeModel;
use werkruf_contract::Clock;
use werkruf_llm::{HttpLimits, http_client};
use werkruf_store::{Sweep, Sweepable};

/// The operator's key.
pub const ADMIN: &str = "operator-key-for-tests-0123456789";

const FILE: &str = "[safety.careful]\ntools_denied = ['test_sleep']\n";

/// A running server. Its tasks end with the runtime of the test.
pub struct TestServer {
    pub app: Arc<App>,
    pub model: FakeModel,
    address: SocketAddr,
    client: reqwest::Client,
    /// Keeps the files until the test ends.
    pub folder: TempDir,
}

impl TestServer {
    /// Starts a server with the sample data.
    pub async fn open() -> Self {
        Self::open_with(FILE).await
    }

    /// Starts a server with this configuration file.
    pub async fn open_with(text: &str) -> Self {
        Self::open_in(text, &[]).await
    }

    /// Starts a server with this configuration file and these additional environment variables. All modules are on.
    pub async fn open_in(text: &str, variables: &[(&str, &str)]) -> Self {
        Self::open_in_folder(text, variables, tempfile::tempdir().unwrap()).await
    }

    /// Like [`Self::open_in`], in a folder that may already have a database.
    pub async fn open_in_folder(text: &str, variables: &[(&str, &str)], folder: TempDir) -> Self {
        let flights = if cfg!(feature = "flights") { "[flights]\n" } else { "" };
        Self::open_as_written(&format!("{text}\n[workspace]\n{flights}[knowledge]\n[ask_gpt]\n"), variables, folder).await
    }

    /// Like [`Self::open_in_folder`], with only the modules that the file names.
    pub async fn open_as_written(text: &str, variables: &[(&str, &str)], folder: TempDir) -> Self {
        Self::open_at(text, variables, folder, None).await
    }

    /// Like [`Self::open_as_written`], with this wall clock.
    pub async fn open_at(text: &str, variables: &[(&str, &str)], folder: TempDir, clock: Option<Clock>) -> Self {
        let model = FakeModel::start().await;
        let file = folder.path().join("werkruf.toml");
        std::fs::write(&file, text).unwrap();
        let flags = Flags {
            config: Some(file),
            listen: Some("127.0.0.1:0".to_owned()),
            database: Some(format!("sqlite:{}", folder.path().join("werkruf.db").display())),
        };
        let base_url = model.base_url();
        let usual = [
            ("OPENAI_BASE_URL", base_url.as_str()),
            ("OPENAI_MODEL", "fake-1"),
            ("WERKRUF_ADMIN_KEY", ADMIN),
            ("WERKRUF_SAMPLE_DATA", "on"),
            ("WERKRUF_TEST_TOOLS", "1"),
            ("WERKRUF_CORS_ORIGINS", "https://app.example"),
            ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "0"),
            ("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER", "0"),
            ("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY", "0"),
        ];
        let environment = Environment::of(usual.into_iter().chain(variables.iter().copied()));
        let config = Config::load(&flags, &environment).unwrap();
        let app = match clock {
            Some(clock) => App::open_at(config, clock).await,
            None => App::open(config).await,
        };
        let app = app.unwrap();
        let listener = Listener::bind(app.config.listen, Bounds::default(), app.tasks.clone()).await.unwrap();
        let address = listener.address().unwrap();
        app.listens_at(format!("http://{address}"));
        if text.contains("kind = 'mcp'") {
            werkruf::mcp_tools::start(&app, &CancellationToken::new()).await;
        }
        let router = api::router(Arc::clone(&app)).layer(axum::middleware::from_fn(described::check));
        app.tasks.spawn(listener.serve(router, CancellationToken::new()));
        app.tasks.spawn(identity::watch(Arc::clone(&app)));
        let client = http_client(&HttpLimits::default()).unwrap();
        Self { app, model, address, client, folder }
    }

    /// Where the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request without a credential.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A request of the operator without a user.
    pub fn operator(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(ADMIN)
    }

    /// A request of the operator for this user.
    pub fn as_user(&self, user: i64, method: Method, path: &str) -> RequestBuilder {
        self.operator(method, path).header("x-user-id", user)
    }

    /// A request with a key.
    pub fn with_key(&self, key: &str, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(key)
    }

    /// A new key.
    pub async fn key(&self, user: Option<i64>, scopes: &[&str]) -> String {
        let made = self.operator(Method::POST, "/api/keys").json(&json!({"user_id": user, "scopes": scopes})).send().await.unwrap();
        assert_eq!(made.status(), 201);
        body(made).await["key"].as_str().unwrap().to_owned()
    }

    /// A chat with a JSON response.
    pub async fn chat(&self, user: i64, request: Value) -> Response {
        self.as_user(user, Method::POST, "/api/chat").header("accept", "application/json").json(&request).send().await.unwrap()
    }

    /// A chat with an event stream as the response.
    pub async fn stream(&self, user: i64, request: Value) -> Stream {
        Stream::new(self.as_user(user, Method::POST, "/api/chat").json(&request).send().await.unwrap())
    }

    /// Deletes the events of ended turns before this time; returns how many.
    pub async fn delete_events(&self, before: jiff::Timestamp) -> u64 {
        let sweep = Sweep { rows: Sweepable::Events, before, now: self.app.clock.now(), dry_run: false };
        self.app.store.sweep(sweep, None).await.unwrap().rows
    }

    /// Makes a conversation of this user with one turn; returns its id.
    pub async fn conversation(&self, user: i64) -> String {
        let answered = self.chat(user, json!({"message": "hello"})).await;
        assert_eq!(answered.status(), 200);
        body(answered).await["conversation_id"].as_str().unwrap().to_owned()
    }
}

/// The body as JSON.
pub async fn body(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// Status and error code.
pub async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let error = body(response).await;
    // OpenAI's error format has no field for the request id; every response has it in a header.
    if error["error"].get("param").is_none() {
        assert_eq!(error["error"]["request_id"], id);
    }
    assert!(error["error"]["type"].is_string() && error["error"]["message"].is_string());
    (status, error["error"]["code"].as_str().unwrap().to_owned())
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: Option<i64>,
    pub name: String,
    pub data: Value,
}

/// A stream being read.
pub struct Stream {
    pub response: Response,
    text: String,
}

impl Stream {
    pub fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..end + 2).collect();
                if let Some(event) = parse(&frame) {
                    return Some(event);
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Events up to and including the first with this name.
    pub async fn until(&mut self, name: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
            if events.last().unwrap().name == name {
                return events;
            }
        }
        panic!("the stream ended without {name}: {events:?}");
    }

    /// All events to the end of the stream.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn parse(frame: &str) -> Option<Event> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some(Event {
        id: field("id:").map(|id| id.parse().unwrap()),
        name: field("event:").unwrap_or("message").to_owned(),
        data: serde_json::from_str(field("data:")?).unwrap(),
    })
}
