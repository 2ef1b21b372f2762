//! The secrets that the configuration names, in every form in which a service may echo them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::config::{Config, ModelConfig, Variable};

/// A shorter value is no secret worth the name, and redacting it would damage results.
const SHORTEST: usize = 8;
const VARIABLES: [Variable; 10] = [
    Variable::OPENAI_API_KEY,
    Variable::OPENAI_EMBEDDING_API_KEY,
    Variable::WERKRUF_ADMIN_KEY,
    Variable::WERKRUF_SECRET_KEY,
    Variable::WERKRUF_KEY,
    Variable::SUPABASE_JWT_SECRET,
    Variable::SEATSAERO_API_KEY,
    Variable::AMADEUS_API_KEY,
    Variable::AMADEUS_API_SECRET,
    Variable::DUFFEL_API_KEY,
];

/// All forms of all secrets.
pub(crate) fn forms(config: &Config) -> Vec<String> {
    let of_tools =
        config.tools.iter().flat_map(|tool| tool.headers.values().flat_map(|text| variables(text)).chain(tool.secret_env.as_deref()));
    let names = VARIABLES.iter().map(|variable| variable.name()).chain(of_tools);
    let of_model = match &config.model {
        ModelConfig::Server(server) => server.headers.as_slice(),
        ModelConfig::Offline => &[],
    };
    let of_model = of_model.iter().map(|(_, value)| value.expose_secret()).map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    let values = names.filter_map(|name| config.environment.lookup(name)).chain(of_model).filter(|value| value.len() >= SHORTEST);
    let mut forms: Vec<String> = values.flat_map(written).collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// The names in `${NAME}`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// A value as it is, inside JSON that is a text itself, in an address, and in Base64 (padding may follow).
fn written(value: &str) -> [String; 5] {
    let json = Value::from(value).to_string();
    [
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
    ]
}

#[cfg(test)]
mod tests {
    use super::{variables, written};

    #[test]
    fn names_are_found_and_values_have_their_forms() {
        assert_eq!(variables("Basic ${A} and ${B_2}, ${open").collect::<Vec<_>>(), ["A", "B_2"]);
        assert_eq!(written("a\"b+c/d?e"), ["a\"b+c/d?e", "a\\\"b+c/d?e", "a%22b%2Bc%2Fd%3Fe", "YSJiK2MvZD9l", "YSJiK2MvZD9l"]);
    }
}
