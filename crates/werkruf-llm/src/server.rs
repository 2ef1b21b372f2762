//! HTTP requests to a model server, for all APIs: one request, one response, no retries.
//!
//! No error or log message contains a key.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::timeout;
use werkruf_contract::Deadline;

use crate::answer_stream::request_id;
use crate::carry::Origin;
use crate::http::cause;
use crate::overdue::in_time;
use crate::reader::{Reader, Wire};
use crate::record::Recordings;
use crate::refusal::short_error;
use crate::response_stream::{MAX_ANSWER_BYTES, ResponseStream};
use crate::retry_after::retry_after;
use crate::secrets::Secrets;
use crate::{AnswerStream, ModelError, ModelFault};

/// How much of an error's body is read.
const MAX_ERROR_BYTES: usize = 16 * 1024;

/// The address, credentials and limits of a model server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The value for `api_usage.provider`.
    pub name: String,
    /// Usually ends in `/v1`; a query is kept.
    pub base_url: String,
    pub api_key: Option<SecretString>,
    /// The model for requests that do not name one.
    pub model: String,
    /// Sent with every request; values may be keys and are redacted like the API key.
    pub headers: Vec<(String, SecretString)>,
    /// The limit for requests that do not set one.
    pub max_output_tokens: u32,
    /// The time limit for the first byte of the response.
    pub first_byte: Duration,
    /// The time limit between two chunks of the response.
    pub idle: Duration,
    /// The folder for recordings of responses, for `wire inspect`.
    pub record: Option<PathBuf>,
    pub client: Client,
}

/// Why a provider cannot be created. The operator must fix the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("the base URL {0:?} is not an http or https address")]
    BaseUrl(String),
    #[error("the header {0:?} cannot be sent")]
    Header(String),
    #[error("the API key contains characters that cannot be sent")]
    ApiKey,
}

/// A server with a checked configuration.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    api: &'static str,
    endpoint_url: Url,
    models: Url,
    headers: HeaderMap,
    secrets: Secrets,
    recordings: Option<Recordings>,
}

impl Server {
    /// Checks the configuration; does not connect. `path` is the API's path after the base URL.
    pub(crate) fn new(config: ServerConfig, api: &'static str, path: &[&str]) -> Result<Self, ConfigError> {
        let endpoint_url = endpoint(&config.base_url, path)?;
        let models = endpoint(&config.base_url, &["models"])?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret())).map_err(|_| ConfigError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (name, value) in &config.headers {
            let header = HeaderName::try_from(name).map_err(|_| ConfigError::Header(name.clone()))?;
            let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| ConfigError::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let secrets = Secrets::new(config.api_key.as_ref(), &config.headers);
        let recordings = config.record.clone().map(|folder| Recordings::new(folder, api));
        Ok(Self { config, api, endpoint_url, models, headers, secrets, recordings })
    }

    /// The host of the endpoint.
    pub(crate) fn host(&self) -> &str {
        self.endpoint_url.host_str().unwrap_or_default()
    }

    /// The origin of carried data for this model.
    pub(crate) fn origin(&self, model: &str) -> Origin {
        Origin { api: self.api, provider: self.config.name.clone(), model: model.to_owned() }
    }

    /// The ids of the models that the server offers.
    pub(crate) async fn models(&self) -> Result<Vec<String>, ModelError> {
        let deadline = Deadline::after(self.config.first_byte);
        let response = self.send(self.config.client.get(self.models.clone()), deadline).await?;
        let body = self.read_some(response, MAX_ANSWER_BYTES, deadline).await?;
        let list: ModelList =
            serde_json::from_slice(&body).map_err(|error| ModelError::new(ModelFault::Protocol, format!("the list of models: {error}")))?;
        Ok(list.into_ids())
    }

    /// Sends a body once. Resolves when the response head has arrived with a success status.
    pub(crate) async fn stream<W: Wire + Send + 'static>(
        &self,
        body: serde_json::Result<Vec<u8>>,
        origin: Origin,
    ) -> Result<AnswerStream, ModelError> {
        let invalid = |error: &dyn std::fmt::Display| ModelError::new(ModelFault::Protocol, format!("the request: {error}"));
        let body = String::from_utf8(body.map_err(|error| invalid(&error))?).map_err(|error| invalid(&error))?;
        let deadline = Deadline::after(self.config.first_byte);
        // A wrapped body is freed once it is sent. The HTTP client keeps a plain body until the response starts, for retries that it never makes.
        let post = self.config.client.post(self.endpoint_url.clone()).header(CONTENT_TYPE, "application/json").body(Body::wrap(body));
        let response = self.send(post, deadline).await?;
        let id = request_id(response.headers());
        let stream = ResponseStream {
            response,
            reader: Reader::<W>::default(),
            first_byte: Some(deadline),
            idle: self.config.idle,
            received: 0,
            secrets: self.secrets.clone(),
            origin,
            recording: self.recordings.as_ref().and_then(|recordings| recordings.start(&self.secrets)),
        };
        Ok(stream.into_stream().with_request_id(id))
    }

    /// Posts a body once and reads the whole response with `read`, within one deadline. Also returns the id of the request.
    pub(crate) async fn post<T>(
        &self,
        body: Vec<u8>,
        deadline: Deadline,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(T, Option<String>), ModelError> {
        let post = self.config.client.post(self.endpoint_url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        let response = self.send(post, deadline).await?;
        let id = request_id(response.headers());
        let body = self.read_some(response, MAX_ANSWER_BYTES, deadline).await;
        let answer = body.and_then(|body| read(&body).map_err(|message| ModelError::new(ModelFault::Protocol, message)));
        match answer {
            Ok(answer) => Ok((answer, id)),
            Err(error) => Err(ModelError { request_id: id, ..error }),
        }
    }

    /// Sends the request and waits for a response head with a success status.
    async fn send(&self, request: RequestBuilder, deadline: Deadline) -> Result<Response, ModelError> {
        let sent = in_time(deadline, request.headers(self.headers.clone()).send()).await;
        let response = match sent {
            None => return Err(ModelError::new(ModelFault::FirstByte, "no response started in time")),
            Some(Err(error)) => {
                let fault = if error.is_connect() || error.is_builder() { ModelFault::Connect } else { ModelFault::Incomplete };
                return Err(ModelError::new(fault, self.secrets.redact(&cause(&error))));
            }
            Some(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let (wait, request_id) = (retry_after(response.headers()), request_id(response.headers()));
        // The status is what matters, so there is no long wait for the rest of the error body.
        let deadline = deadline.earlier(Deadline::after(self.config.idle));
        let mut body = self.read_some(response, MAX_ERROR_BYTES, deadline).await.unwrap_or_default();
        self.secrets.redact_bytes(&mut body);
        let message = self.secrets.redact(&short_error(&String::from_utf8_lossy(&body)));
        Err(ModelError { retry_after: wait, request_id, ..ModelError::new(ModelFault::Refused { status }, message) })
    }

    async fn read_some(&self, mut response: Response, limit: usize, deadline: Deadline) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while body.len() < limit {
            match timeout(deadline.left(), response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(ModelError::new(ModelFault::Incomplete, self.secrets.redact(&cause(&error)))),
                Err(_) => return Err(ModelError::new(ModelFault::Idle, "the response did not end in time")),
            }
        }
        Ok(body)
    }
}

fn endpoint(base: &str, path: &[&str]) -> Result<Url, ConfigError> {
    let invalid = || ConfigError::BaseUrl(base.to_owned());
    let mut url = Url::parse(base).map_err(|_| invalid())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid());
    }
    url.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(path);
    Ok(url)
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
