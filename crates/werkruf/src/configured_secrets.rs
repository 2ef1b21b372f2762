//! The secrets that the configuration names, in every form in which a service may echo them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::config::{Config, Database, ModelConfig, Variable};
use crate::secret_key;

/// A shorter value is no secret worth the name, and redacting it would damage results.
const SHORTEST: usize = 8;

/// What an address may contain as it is.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The name of a header or parameter with one of these words has a secret as its value.
const SECRET_NAMES: [&str; 9] = ["auth", "cookie", "credential", "key", "passw", "pwd", "secret", "signature", "token"];

/// All forms of all secrets. `own` are those that the server made itself.
pub(crate) fn forms(config: &Config, own: &[&str]) -> Vec<String> {
    let of_tools = config.tools.iter().flat_map(|tool| {
        let named = tool.secret_env.as_deref().into_iter().chain(tool.client_secret_env.as_deref());
        tool.texts_with_variables().into_iter().flat_map(|(_, text)| variables(text)).chain(named)
    });
    let literal = config.tools.iter().flat_map(|tool| {
        let named = tool.headers.iter().chain(&tool.env).flatten();
        let named = named.filter(|(name, value)| is_secret_name(name) && !value.contains("${"));
        let named = named.map(|(_, value)| without_scheme(value).to_owned());
        named.chain(tool.url.iter().chain(&tool.database).flat_map(|address| in_address(address)))
    });
    // A whole address in a variable has its password inside.
    let of_databases = config.tools.iter().filter_map(|tool| {
        let lookup = |name: &str| config.environment.lookup(name).map(str::to_owned);
        werkruf_tools::expand(tool.database.as_deref()?, &lookup).ok()
    });
    let of_databases: Vec<String> = of_databases.flat_map(|address| in_address(&address)).collect();
    let of_database = match &config.database {
        Database::Postgres(address) => in_address(address.expose_secret()),
        Database::Sqlite(_) => Vec::new(),
    };
    let own = own.iter().map(|&text| text.to_owned()).chain(secret_key::stored_texts(config));
    let of_webhooks = config
        .webhooks
        .iter()
        .flat_map(|webhook| std::iter::once(webhook.secret.expose_secret().to_owned()).chain(in_address(webhook.url.as_str())));
    let of_traces = config.traces.iter().flat_map(|traces| {
        let headers = traces.headers.iter().filter(|(name, _)| is_secret_name(name.as_str()));
        headers.map(|(_, value)| without_scheme(value.expose_secret()).to_owned()).chain(in_address(traces.url.as_str()))
    });
    let literal: Vec<String> = literal.chain(of_databases).chain(of_database).chain(own).chain(of_webhooks).chain(of_traces).collect();
    let of_numbers = config.whatsapp_secrets.iter().map(String::as_str);
    let names = Variable::SECRETS.iter().map(|variable| variable.name()).chain(of_tools).chain(of_numbers);
    let of_model = match &config.model {
        ModelConfig::Server(server) => server.headers.as_slice(),
        ModelConfig::Offline => &[],
    };
    let of_model = of_model.iter().map(|(_, value)| value.expose_secret()).map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    let values = names.filter_map(|name| config.environment.lookup(name)).chain(of_model).chain(literal.iter().map(String::as_str));
    let values = values.filter(|value| value.len() >= SHORTEST);
    let mut forms: Vec<String> = values.flat_map(written).collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| name.contains(word))
}

/// The value of a header without a word such as `Bearer`.
fn without_scheme(value: &str) -> &str {
    match value.trim().split_once(' ') {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => rest.trim(),
        _ => value.trim(),
    }
}

/// The password of an address, and the parameters whose names say that they are secret. The others may be ordinary words.
fn in_address(address: &str) -> Vec<String> {
    let Ok(url) = Url::parse(address) else { return Vec::new() };
    let password = url.password().map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    let parameters = url.query_pairs().filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value.into_owned());
    password.into_iter().chain(parameters).collect()
}

/// The names in `${NAME}`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// A value as it is, inside JSON that is a text itself, in an address (with every sign encoded or only those that must be, in either case), and in
/// Base64 (padding may follow).
fn written(value: &str) -> [String; 8] {
    let json = Value::from(value).to_string();
    let (every, needed) = (encoded(value, NON_ALPHANUMERIC), encoded(value, &UNRESERVED));
    [
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        lower_hex(&every),
        every,
        lower_hex(&needed),
        needed,
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
    ]
}

fn encoded(value: &str, signs: &'static AsciiSet) -> String {
    utf8_percent_encode(value, signs).to_string()
}

/// The same with the digits after each `%` in lower case.
fn lower_hex(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Two ASCII digits follow each sign.
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        text.extend(['%'].into_iter().chain(digits.to_ascii_lowercase().chars()).chain(rest.chars()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{in_address, is_secret_name, variables, without_scheme, written};

    #[test]
    fn names_are_found_and_values_have_their_forms() {
        assert_eq!(variables("Basic ${A} and ${B_2}, ${open").collect::<Vec<_>>(), ["A", "B_2"]);
        let forms = written("A-b_c.d+e");
        let in_addresses = ["A%2db%5fc%2ed%2be", "A%2Db%5Fc%2Ed%2Be", "A-b_c.d%2be", "A-b_c.d%2Be"];
        assert_eq!(forms[..2], ["A-b_c.d+e", "A-b_c.d+e"]);
        assert_eq!(forms[2..6], in_addresses);
        assert_eq!(forms[6..], ["QS1iX2MuZCtl", "QS1iX2MuZCtl"]);
        assert_eq!(written("a\"b")[1], "a\\\"b");
    }

    #[test]
    fn secrets_of_addresses_and_headers_are_found_by_their_names() {
        let address = "https://u:p%40ss-word@crm.test/x?api_key=0123456789&lang=deutsch1";
        assert_eq!(in_address(address), ["p@ss-word", "0123456789"]);
        assert_eq!([without_scheme("Bearer abc"), without_scheme("abc"), without_scheme("a=1; b=2")], ["abc", "abc", "a=1; b=2"]);
        assert!(is_secret_name("X-Api-Key") && is_secret_name("Authorization") && !is_secret_name("Accept"));
    }
}
