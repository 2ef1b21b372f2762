//! Redacts the server's own secrets in what tools return. A service that echoes its request must show its token neither to the model nor to the user.

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use serde_json::{Map, Value};
use werkruf_contract::{ErrorCode, Failure, Reply};
use werkruf_llm::ProviderItem;

const REDACTED: &str = "[redacted]";

/// A text that was cut may end with the beginning of a secret. A shorter beginning says too little.
const SHORTEST_PREFIX: usize = 8;

/// The texts that must not appear. Without any it does nothing.
#[derive(Default)]
pub struct Redaction {
    search: Option<AhoCorasick>,
    texts: Vec<String>,
}

impl Redaction {
    /// Redacts these texts: the secrets, and other ways to write them.
    pub fn new(texts: &[String]) -> Result<Self, BuildError> {
        if texts.is_empty() {
            return Ok(Self::default());
        }
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts)?;
        Ok(Self { search: Some(search), texts: texts.to_vec() })
    }

    /// Redacts a reply, and returns its data as JSON text. The data is changed only where the text holds a secret.
    pub(crate) fn reply(&self, reply: &mut Reply) -> String {
        let text = reply.data.to_string();
        let Some(search) = &self.search else { return text };
        if let Some(message) = &mut reply.message {
            redact(search, message);
        }
        for fields in [&mut reply.state_patch, &mut reply.routing].into_iter().flatten() {
            redact_fields(search, fields);
        }
        if !search.is_match(&text) {
            return text;
        }
        redact_value(search, &mut reply.data);
        reply.data.to_string()
    }

    /// Redacts everything in a failure that a service may have written. The tools have cut the texts already.
    pub(crate) fn failure(&self, mut failure: Failure) -> Failure {
        let Some(search) = &self.search else { return failure };
        self.cut_text(search, &mut failure.message);
        for text in [&mut failure.cause, &mut failure.endpoint].into_iter().flatten() {
            self.cut_text(search, text);
        }
        if search.is_match(failure.code.as_ref()) {
            failure.code = ErrorCode::UpstreamRefused.as_str().into();
        }
        if let Some(details) = &mut failure.details {
            redact_fields(search, details);
        }
        failure
    }

    /// Redacts what the provider says of a call that it ran.
    pub(crate) fn provider_item(&self, item: &ProviderItem) -> ProviderItem {
        let mut item = item.clone();
        let Some(search) = &self.search else { return item };
        for text in [&mut item.name, &mut item.arguments, &mut item.status].into_iter().flatten() {
            redact(search, text);
        }
        for value in [&mut item.output, &mut item.error].into_iter().flatten() {
            redact_value(search, value);
        }
        item
    }

    /// Redacts a text that may have been cut inside a secret.
    fn cut_text(&self, search: &AhoCorasick, text: &mut String) {
        redact(search, text);
        // A cut inside a character leaves a replacement character.
        let end = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        let prefix = self.texts.iter().filter_map(|secret| prefix_at_the_end(&text.as_bytes()[..end], secret.as_bytes())).max();
        if let Some(length) = prefix {
            text.truncate(text.floor_char_boundary(end - length));
            text.push_str(REDACTED);
        }
    }
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").field("texts", &self.texts.len()).finish()
    }
}

/// The length of the longest prefix of the secret with which the text ends.
fn prefix_at_the_end(text: &[u8], secret: &[u8]) -> Option<usize> {
    let longest = secret.len().saturating_sub(1).min(text.len());
    (SHORTEST_PREFIX..=longest).rev().find(|length| text.ends_with(&secret[..*length]))
}

fn redact(search: &AhoCorasick, text: &mut String) {
    if search.is_match(text.as_str()) {
        let mut clean = String::with_capacity(text.len());
        search.replace_all_with(text, &mut clean, |_, _, out| {
            out.push_str(REDACTED);
            true
        });
        *text = clean;
    }
}

fn redact_value(search: &AhoCorasick, value: &mut Value) {
    match value {
        Value::String(text) => redact(search, text),
        // A secret of digits may come back as a number.
        Value::Number(number) if search.is_match(&number.to_string()) => *value = REDACTED.into(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_value(search, item)),
        Value::Object(fields) => redact_fields(search, fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_fields(search: &AhoCorasick, fields: &mut Map<String, Value>) {
    if fields.keys().any(|name| search.is_match(name.as_str())) {
        let renamed = std::mem::take(fields).into_iter().map(|(mut name, value)| {
            redact(search, &mut name);
            (name, value)
        });
        *fields = renamed.collect();
    }
    fields.values_mut().for_each(|value| redact_value(search, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_redacted_wherever_they_stand_and_json_stays_json() {
        let redaction = Redaction::new(&["12345678".to_owned(), "to\"ken-1".to_owned()]).unwrap();
        let mut reply = Reply::new(json!({"a": ["x to\"ken-1 y", 1_234_567_890, true], "to\"ken-1": {"b": "12345678"}, "clean": 1}));
        reply.message = Some("12345678!".to_owned());
        reply.state_patch = json!({"note": "12345678"}).as_object().cloned();
        let text = redaction.reply(&mut reply);
        let expected = json!({"a": ["x [redacted] y", "[redacted]", true], "[redacted]": {"b": "[redacted]"}, "clean": 1});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!((reply.message.unwrap().as_str(), &reply.state_patch.unwrap()["note"]), ("[redacted]!", &json!("[redacted]")));
        let failure = redaction.failure(Failure::upstream(ErrorCode::UpstreamError, "no 12345678").because("header to\"ken-1"));
        assert_eq!((failure.message.as_str(), failure.cause.as_deref()), ("no [redacted]", Some("header [redacted]")));
        let mut cut = Failure::upstream("x0123456789abcdef", "ends with 0123456789").because("0123456789ab\u{fffd}");
        cut.details = json!({"k": 1}).as_object().cloned();
        let cut = Redaction::new(&["0123456789abcdef".to_owned()]).unwrap().failure(cut);
        assert_eq!(
            (cut.message.as_str(), cut.cause.as_deref(), &*cut.code),
            ("ends with [redacted]", Some("[redacted]"), "upstream_refused")
        );
        let mut clean = Reply::new(json!({"a": 1}));
        assert_eq!(Redaction::default().reply(&mut clean), r#"{"a":1}"#);
    }
}
