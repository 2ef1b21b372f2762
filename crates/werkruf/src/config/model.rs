//! The model server.

use std::path::PathBuf;

use secrecy::SecretString;
use werkruf_tools::expand;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::violation::ConfigViolation;

pub(super) const OPENAI: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-5";
const MAX_OUTPUT_TOKENS: u32 = 16_384;

/// The model in use.
#[derive(Debug, Clone)]
pub enum ModelConfig {
    /// No language model.
    Offline,
    /// A server with one of OpenAI's APIs.
    Server(ModelServer),
}

/// The API of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    Chat,
    Responses,
}

/// A model server.
#[derive(Debug, Clone)]
pub struct ModelServer {
    pub api: ModelApi,
    /// Without a slash at the end.
    pub base_url: String,
    pub api_key: Option<SecretString>,
    /// `None`: no name is configured and the server is not OpenAI; the start error lists the server's models.
    pub model: Option<String>,
    pub max_output_tokens: u32,
    /// Sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// The folder in which responses are recorded.
    pub record: Option<PathBuf>,
}

impl ModelServer {
    /// Whether this is OpenAI itself, where every request is paid for.
    pub fn is_openai(&self) -> bool {
        is_openai(&self.base_url)
    }

    /// Whether a request costs money, judged by the address: a model on this machine is free.
    pub fn is_paid(&self) -> bool {
        self.api_key.is_some() && !host(&self.base_url).is_some_and(is_loopback)
    }
}

/// Whether this address is OpenAI's.
pub(super) fn is_openai(url: &str) -> bool {
    host(url).is_some_and(|host| host == "api.openai.com" || host.ends_with(".api.openai.com"))
}

fn host(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next(),
        None => authority.split(':').next(),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> ModelConfig {
    let section = &document.file.model;
    let api = api(document, environment, violations);
    let headers = headers(document, environment, violations);
    let max_output_tokens = max_output_tokens(document, environment, violations);
    let forced = match environment.get(Variable::WERKRUF_MODEL) {
        None => section.offline,
        Some("offline") => true,
        Some(other) => {
            let message = format!("`{other}` is unknown; the only value is `offline`. A model's name goes into OPENAI_MODEL");
            violations.push(ConfigViolation::new(Variable::WERKRUF_MODEL.name(), message));
            true
        }
    };
    let api_key = environment.get(Variable::OPENAI_API_KEY).map(SecretString::from);
    let (place, base_url) = match environment.get(Variable::OPENAI_BASE_URL) {
        Some(url) => (Variable::OPENAI_BASE_URL.name(), Some(url)),
        None => ("/model/base_url", section.base_url.as_deref()),
    };
    if let Some(fault) = base_url.and_then(address_fault) {
        violations.push(document.violation(place, fault));
    }
    if forced || (api_key.is_none() && base_url.is_none()) {
        return ModelConfig::Offline;
    }
    let base_url = base_url.unwrap_or(OPENAI).trim_end_matches('/').to_owned();
    let model = environment.get(Variable::OPENAI_MODEL).map(str::to_owned).or_else(|| section.name.clone());
    let record = environment.get(Variable::WERKRUF_RECORD_WIRE).map(PathBuf::from);
    let mut server = ModelServer { api: ModelApi::Chat, base_url, api_key, model, max_output_tokens, headers, record };
    server.api = api.unwrap_or(if server.is_openai() { ModelApi::Responses } else { ModelApi::Chat });
    if server.model.is_none() && server.is_openai() {
        server.model = Some(OPENAI_MODEL.to_owned());
    }
    ModelConfig::Server(server)
}

/// Why requests cannot be sent to this address.
pub(super) fn address_fault(url: &str) -> Option<&'static str> {
    let known = url.starts_with("http://") || url.starts_with("https://");
    let named = host(url).is_some_and(|host| !host.is_empty());
    (!(known && named)).then_some("must start with http:// or https:// and name a host, such as http://127.0.0.1:11434/v1")
}

/// The configured API.
fn api(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<ModelApi> {
    let (place, api) = match environment.get(Variable::OPENAI_API) {
        Some(api) => (Variable::OPENAI_API.name(), Some(api)),
        None => ("/model/api", document.file.model.api.as_deref()),
    };
    match api? {
        "chat" => Some(ModelApi::Chat),
        "responses" => Some(ModelApi::Responses),
        other => {
            violations.push(document.violation(place, format!("`{other}` is unknown; write `chat` or `responses`, or leave it out")));
            None
        }
    }
}

fn headers(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Vec<(String, SecretString)> {
    let variable = |name: &str| environment.lookup(name).map(str::to_owned);
    let mut headers = Vec::new();
    for (name, value) in &document.file.model.headers {
        match expand(value, &variable) {
            Ok(value) => headers.push((name.clone(), SecretString::from(value))),
            Err(fault) => violations.push(document.violation(&format!("/model/headers/{name}"), fault)),
        }
    }
    headers
}

fn max_output_tokens(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> u32 {
    let (place, value) = match environment.get(Variable::OPENAI_MAX_OUTPUT_TOKENS) {
        Some(text) => (Variable::OPENAI_MAX_OUTPUT_TOKENS.name(), text.trim().parse().ok()),
        None => ("/model/max_output_tokens", Some(document.file.model.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS))),
    };
    match value {
        Some(tokens) if tokens > 0 => tokens,
        Some(_) | None => {
            violations.push(document.violation(place, "must be a whole number of tokens, at least 1"));
            MAX_OUTPUT_TOKENS
        }
    }
}
