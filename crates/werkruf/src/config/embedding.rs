//! The server that makes embedding vectors, if any.

use secrecy::SecretString;

use super::environment::{Environment, Variable};
use super::file::Document;
use super::model::{ModelConfig, OPENAI, address_fault, is_openai};
use super::violation::ConfigViolation;

const OPENAI_MODEL: &str = "text-embedding-3-small";
/// The model name that turns vectors off.
const NONE: &str = "none";

/// A server that makes embedding vectors.
#[derive(Debug, Clone)]
pub struct EmbeddingServer {
    /// Without a slash at the end.
    pub base_url: String,
    pub api_key: Option<SecretString>,
    pub model: String,
    /// Codes of the languages that the model supports.
    pub languages: Vec<String>,
}

pub(super) fn merge(
    document: &Document,
    environment: &Environment,
    model: &ModelConfig,
    violations: &mut Vec<ConfigViolation>,
) -> Option<EmbeddingServer> {
    let section = &document.file.embedding;
    if environment.get(Variable::WERKRUF_EMBEDDING_DIR).is_some() {
        let message = "this release loads no model from a directory; unset it, and name a server in OPENAI_EMBEDDING_BASE_URL";
        violations.push(ConfigViolation::new(Variable::WERKRUF_EMBEDDING_DIR.name(), message));
    }
    let (place, own) = match environment.get(Variable::OPENAI_EMBEDDING_BASE_URL) {
        Some(url) => (Variable::OPENAI_EMBEDDING_BASE_URL.name(), Some(url)),
        None => ("/embedding/base_url", section.base_url.as_deref()),
    };
    if let Some(fault) = own.and_then(address_fault) {
        violations.push(document.violation(place, fault));
        return None;
    }
    let chat = match model {
        ModelConfig::Server(server) => Some(server),
        ModelConfig::Offline => None,
    };
    let own_key = environment.get(Variable::OPENAI_EMBEDDING_API_KEY).map(SecretString::from);
    // A key alone means OpenAI itself.
    let openai = own_key.is_some().then_some(OPENAI);
    let base_url = own.or_else(|| chat.map(|server| server.base_url.as_str())).or(openai)?.trim_end_matches('/').to_owned();
    let named = environment.get(Variable::OPENAI_EMBEDDING_MODEL).map(str::to_owned).or_else(|| section.model.clone());
    let model = named.or_else(|| is_openai(&base_url).then(|| OPENAI_MODEL.to_owned())).filter(|model| model != NONE)?;
    // The key of one server is never sent to another.
    let shared = chat.filter(|server| server.base_url == base_url).and_then(|server| server.api_key.clone());
    let languages = languages(environment, &section.languages, &model);
    Some(EmbeddingServer { base_url, api_key: own_key.or(shared), model, languages })
}

fn languages(environment: &Environment, file: &[String], model: &str) -> Vec<String> {
    let list = |text: &str| text.split(',').map(str::trim).filter(|code| !code.is_empty()).map(str::to_owned).collect();
    match environment.get(Variable::OPENAI_EMBEDDING_LANGUAGES) {
        Some(text) => list(text),
        None if !file.is_empty() => file.to_vec(),
        None if model.starts_with("text-embedding-3-") => list("de,en,es"),
        None => list("en"),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use crate::config::{Config, Environment, Flags};

    fn of(pairs: &[(&str, &str)]) -> Option<super::EmbeddingServer> {
        Config::load(&Flags::default(), &Environment::of(pairs.iter().copied())).unwrap().embedding
    }

    #[test]
    fn openai_has_vectors_by_default_and_others_need_a_model() {
        let openai = of(&[("OPENAI_API_KEY", "k")]).unwrap();
        assert_eq!((openai.model.as_str(), openai.languages.join(",")), ("text-embedding-3-small", "de,en,es".to_owned()));
        assert_eq!(openai.api_key.unwrap().expose_secret(), "k");
        assert!(of(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_MODEL", "m")]).is_none());
        assert!(of(&[("OPENAI_API_KEY", "k"), ("OPENAI_EMBEDDING_MODEL", "none")]).is_none());
        assert!(of(&[]).is_none());
        let other = of(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_MODEL", "m"), ("OPENAI_EMBEDDING_MODEL", "e")]).unwrap();
        assert_eq!((other.base_url.as_str(), other.languages.join(",")), ("http://127.0.0.1:1/v1", "en".to_owned()));
    }

    #[test]
    fn a_key_stays_with_its_server() {
        let apart = of(&[
            ("OPENAI_API_KEY", "k"),
            ("OPENAI_EMBEDDING_BASE_URL", "http://127.0.0.1:2/v1/"),
            ("OPENAI_EMBEDDING_MODEL", "e"),
            ("OPENAI_EMBEDDING_LANGUAGES", "en, de"),
        ])
        .unwrap();
        assert!(apart.api_key.is_none());
        assert_eq!((apart.base_url.as_str(), apart.languages.len()), ("http://127.0.0.1:2/v1", 2));
        let offline =
            of(&[("WERKRUF_MODEL", "offline"), ("OPENAI_EMBEDDING_BASE_URL", "http://127.0.0.1:2/v1"), ("OPENAI_EMBEDDING_MODEL", "e")]);
        assert!(offline.is_some(), "vectors need no language model");
    }
}
