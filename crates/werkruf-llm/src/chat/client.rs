//! The connection to a Chat Completions server: one request, one answer, no retries.
//!
//! Deadlines: the first byte of the body within `first_byte` of sending, every later one within `idle` of the one before.
//! Dropping the stream closes the connection. No message of ours ever holds the key.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::timeout;
use werkruf_contract::{BoxFuture, Deadline};

use super::encode::{Dialect, ToolCache, encode};
use super::reader::{ChatReader, cut};
use crate::overdue::in_time;
use crate::retry_after::retry_after;
use crate::{AnswerStream, Delta, ModelError, ModelFault, ModelRequest, Provider};

/// The largest answer taken.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Of an error's body so much is read, and 512 bytes are told.
const MAX_ERROR_BYTES: usize = 16 * 1024;
const MAX_TOLD_BYTES: usize = 512;
/// How long the end of a body may lag behind `[DONE]` before the connection is given up instead of kept for the next request.
const LINGER: Duration = Duration::from_millis(10);

/// A server and how to talk to it.
#[derive(Debug, Clone)]
pub struct ChatConfig {
    /// For `api_usage.provider`.
    pub name: String,
    /// Ends in `/v1` as a rule; a query is kept.
    pub base_url: String,
    pub api_key: Option<SecretString>,
    /// The model where a request names none.
    pub model: String,
    /// Sent with every request; may hold keys, which are redacted like the key itself.
    pub headers: Vec<(String, String)>,
    /// The limit where a request names none.
    pub max_output_tokens: u32,
    pub first_byte: Duration,
    pub idle: Duration,
    pub client: Client,
}

/// Why a provider cannot be made. The operator acts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("the base URL {0:?} is not an http or https address")]
    BaseUrl(String),
    #[error("the header {0:?} cannot be sent")]
    Header(String),
    #[error("the API key holds characters that cannot be sent")]
    ApiKey,
}

/// A Chat Completions server.
#[derive(Debug)]
pub struct ChatProvider {
    config: ChatConfig,
    completions: Url,
    models: Url,
    headers: HeaderMap,
    dialect: Dialect,
    tools: ToolCache,
}

impl ChatProvider {
    /// Checks the configuration; connects nowhere.
    pub fn new(config: ChatConfig) -> Result<Self, ConfigError> {
        let completions = endpoint(&config.base_url, &["chat", "completions"])?;
        let models = endpoint(&config.base_url, &["models"])?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret())).map_err(|_| ConfigError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (name, value) in &config.headers {
            let header = HeaderName::try_from(name).map_err(|_| ConfigError::Header(name.clone()))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| ConfigError::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let dialect = Dialect { at_openai: completions.host_str() == Some("api.openai.com") };
        Ok(Self { config, completions, models, headers, dialect, tools: ToolCache::default() })
    }

    /// The models the server offers, as it names them.
    pub async fn models(&self) -> Result<Vec<String>, ModelError> {
        let deadline = Deadline::after(self.config.first_byte);
        let response = self.send(self.config.client.get(self.models.clone()), deadline).await?;
        let body = self.read_some(response, MAX_ANSWER_BYTES, deadline).await?;
        let list: ModelList =
            serde_json::from_slice(&body).map_err(|error| ModelError::new(ModelFault::Protocol, format!("the list of models: {error}")))?;
        Ok(list.into_ids())
    }

    /// Sends and waits for a head that says yes.
    async fn send(&self, request: RequestBuilder, deadline: Deadline) -> Result<Response, ModelError> {
        let sent = in_time(deadline, request.headers(self.headers.clone()).send()).await;
        let response = match sent {
            None => return Err(ModelError::new(ModelFault::FirstByte, "no answer began in time")),
            Some(Err(error)) => {
                let fault = if error.is_connect() || error.is_builder() { ModelFault::Connect } else { ModelFault::Incomplete };
                return Err(ModelError::new(fault, self.told(&describe(error))));
            }
            Some(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let wait = retry_after(response.headers());
        // What of the body does not come in time is not worth waiting for: the status is the answer.
        let deadline = deadline.earlier(Deadline::after(self.config.idle));
        let body = self.read_some(response, MAX_ERROR_BYTES, deadline).await.unwrap_or_default();
        let message = self.told(&String::from_utf8_lossy(&body));
        Err(ModelError { retry_after: wait, ..ModelError::new(ModelFault::Refused { status }, message) })
    }

    async fn read_some(&self, mut response: Response, limit: usize, deadline: Deadline) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while body.len() < limit {
            match timeout(deadline.left(), response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(ModelError::new(ModelFault::Incomplete, self.told(&describe(error)))),
                Err(_) => return Err(ModelError::new(ModelFault::Idle, "the answer did not end in time")),
            }
        }
        Ok(body)
    }

    /// Words for the log: keys taken out first, then cut, so that no half key stays at the edge.
    fn told(&self, words: &str) -> String {
        self.secrets().told(words)
    }

    fn secrets(&self) -> Secrets {
        let key = self.config.api_key.as_ref().map(|key| key.expose_secret().to_owned());
        let values = self.config.headers.iter().map(|(_, value)| value.strip_prefix("Bearer ").unwrap_or(value).to_owned());
        Secrets(
            key.into_iter()
                .chain(values.filter(|value| value.len() >= 8))
                .filter(|value| !value.is_empty())
                .map(SecretString::from)
                .collect(),
        )
    }

    async fn begin(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        let model = request.model.as_deref().unwrap_or(&self.config.model);
        let body = encode(&request, model, self.config.max_output_tokens, self.dialect, &self.tools)
            .map_err(|error| ModelError::new(ModelFault::Protocol, format!("the request: {error}")))?;
        drop(request);
        let deadline = Deadline::after(self.config.first_byte);
        let post = self.config.client.post(self.completions.clone()).header(CONTENT_TYPE, "application/json").body(body);
        let response = self.send(post, deadline).await?;
        let flow = Flow {
            response,
            reader: ChatReader::default(),
            first_byte: Some(deadline),
            idle: self.config.idle,
            taken: 0,
            secrets: self.secrets(),
        };
        Ok(flow.into_stream())
    }
}

impl Provider for ChatProvider {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn default_model(&self) -> &str {
        &self.config.model
    }

    fn ask(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        Box::pin(self.begin(request))
    }
}

/// What must not be told.
struct Secrets(Vec<SecretString>);

impl Secrets {
    fn told(&self, words: &str) -> String {
        let mut words = words.to_owned();
        for secret in &self.0 {
            if words.contains(secret.expose_secret()) {
                words = words.replace(secret.expose_secret(), "[redacted]");
            }
        }
        words.truncate(cut(&words, MAX_TOLD_BYTES).len());
        words
    }
}

/// An answer on its way in.
struct Flow {
    response: Response,
    reader: ChatReader,
    /// Until the first byte, its deadline.
    first_byte: Option<Deadline>,
    idle: Duration,
    taken: usize,
    secrets: Secrets,
}

/// What one wait for bytes brought.
enum Step {
    More(Vec<String>),
    End,
    Lost(ModelFault, String),
}

impl Flow {
    fn into_stream(self) -> AnswerStream {
        let steps: BoxStream<'static, Vec<Result<Delta, ModelError>>> =
            stream::unfold(Some(self), |flow| async move { Some(flow?.advance().await) }).boxed();
        steps.flat_map(stream::iter).boxed()
    }

    /// The next deltas, and the flow unless they are the last.
    async fn advance(mut self) -> (Vec<Result<Delta, ModelError>>, Option<Self>) {
        loop {
            match self.step().await {
                Step::More(texts) if self.reader.is_over() => return (self.end(texts).await, None),
                Step::More(texts) if texts.is_empty() => {}
                // What came in one piece is shown in one piece: a server that sends all at once must not flood its readers.
                Step::More(texts) => return (vec![Ok(Delta::Text(texts.concat()))], Some(self)),
                Step::End => return (self.end(Vec::new()).await, None),
                // The answer was there; what the line lost is at most the usage.
                Step::Lost(_, words) if self.reader.is_whole() => {
                    self.reader.note(words);
                    return (self.end(Vec::new()).await, None);
                }
                Step::Lost(fault, words) => {
                    let received = self.reader.text().to_owned();
                    return (vec![Err(ModelError { received, ..ModelError::new(fault, words) })], None);
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let wait = self.first_byte.unwrap_or_else(|| Deadline::after(self.idle));
        match in_time(wait, self.response.chunk()).await {
            None if self.first_byte.is_some() => Step::Lost(ModelFault::FirstByte, "the first byte did not come in time".to_owned()),
            None => Step::Lost(ModelFault::Idle, "the stream stopped talking".to_owned()),
            Some(Err(error)) => Step::Lost(ModelFault::Incomplete, self.secrets.told(&describe(error))),
            Some(Ok(None)) => Step::End,
            Some(Ok(Some(bytes))) => {
                self.first_byte = None;
                self.taken += bytes.len();
                if self.taken > MAX_ANSWER_BYTES {
                    return Step::Lost(ModelFault::Protocol, format!("the answer is larger than {MAX_ANSWER_BYTES} bytes"));
                }
                Step::More(self.reader.push(&bytes))
            }
        }
    }

    async fn end(mut self, texts: Vec<String>) -> Vec<Result<Delta, ModelError>> {
        // Read to its end, the connection can be used again.
        let _ = timeout(LINGER, self.response.chunk()).await;
        let (late, verdict) = self.reader.finish();
        let mut deltas: Vec<_> = texts.into_iter().chain(late).map(|text| Ok(Delta::Text(text))).collect();
        deltas.push(match verdict.into_result() {
            Ok(answer) => Ok(Delta::Done(Box::new(answer))),
            Err(error) => Err(ModelError { message: self.secrets.told(&error.message), ..error }),
        });
        deltas
    }
}

fn endpoint(base: &str, path: &[&str]) -> Result<Url, ConfigError> {
    let refused = || ConfigError::BaseUrl(base.to_owned());
    let mut url = Url::parse(base).map_err(|_| refused())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused());
    }
    url.path_segments_mut().map_err(|()| refused())?.pop_if_empty().extend(path);
    Ok(url)
}

/// An HTTP error with its causes; the outer words alone only say that something failed.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ModelList {
    OpenAi { data: Vec<ListedModel> },
    Other { models: Vec<ListedModel> },
    Bare(Vec<ListedModel>),
}

#[derive(Deserialize)]
struct ListedModel {
    #[serde(alias = "name")]
    id: String,
}

impl ModelList {
    fn into_ids(self) -> Vec<String> {
        let (Self::OpenAi { data: list } | Self::Other { models: list } | Self::Bare(list)) = self;
        list.into_iter().map(|model| model.id).collect()
    }
}
