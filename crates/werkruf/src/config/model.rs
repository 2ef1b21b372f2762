//! Which model answers.

use secrecy::SecretString;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::violation::ConfigViolation;

const OPENAI: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-5";
const MAX_OUTPUT_TOKENS: u32 = 16_384;

/// The model in use.
#[derive(Debug, Clone)]
pub enum ModelConfig {
    /// No language model.
    Offline,
    /// A server that speaks Chat Completions.
    Chat(ChatModel),
}

/// A Chat Completions server.
#[derive(Debug, Clone)]
pub struct ChatModel {
    /// Without a slash at the end.
    pub base_url: String,
    pub api_key: Option<SecretString>,
    /// `None`: not at OpenAI, and nobody named one; the start error lists what the server offers.
    pub model: Option<String>,
    pub max_output_tokens: u32,
}

impl ChatModel {
    /// Whether this is OpenAI itself, where every request is paid for.
    pub fn is_openai(&self) -> bool {
        host(&self.base_url).is_some_and(|host| host == "api.openai.com" || host.ends_with(".api.openai.com"))
    }

    /// Whether a request costs money, as far as the address tells: a model on this machine does not.
    pub fn is_paid(&self) -> bool {
        self.api_key.is_some() && !host(&self.base_url).is_some_and(is_loopback)
    }
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
    check_api(document, environment, violations);
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
    let mut chat = ChatModel { base_url, api_key, model, max_output_tokens };
    if chat.model.is_none() && chat.is_openai() {
        chat.model = Some(OPENAI_MODEL.to_owned());
    }
    ModelConfig::Chat(chat)
}

/// What keeps an address from being one we can send to.
pub(super) fn address_fault(url: &str) -> Option<&'static str> {
    let known = url.starts_with("http://") || url.starts_with("https://");
    let named = host(url).is_some_and(|host| !host.is_empty());
    (!(known && named)).then_some("must start with http:// or https:// and name a host, such as http://127.0.0.1:11434/v1")
}

fn check_api(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) {
    let (place, api) = match environment.get(Variable::OPENAI_API) {
        Some(api) => (Variable::OPENAI_API.name(), Some(api)),
        None => ("/model/api", document.file.model.api.as_deref()),
    };
    match api {
        None | Some("chat") => {}
        Some("responses") => {
            violations.push(document.violation(place, "this release speaks Chat Completions only; write `chat` or leave it out"))
        }
        Some(other) => violations.push(document.violation(place, format!("`{other}` is unknown; write `chat` or leave it out"))),
    }
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
