//! Redacts the server's own secrets in what tools return. A service that echoes its request must show its token neither to the model nor to the user.

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use serde_json::{Map, Value};
use werkruf_contract::{Failure, Reply};

const REDACTED: &str = "[redacted]";

/// The texts that must not appear. Without any it does nothing.
#[derive(Debug, Default)]
pub struct Redaction(Option<AhoCorasick>);

impl Redaction {
    /// Redacts these texts: the secrets, and other ways to write them.
    pub fn new(texts: &[String]) -> Result<Self, BuildError> {
        if texts.is_empty() {
            return Ok(Self::default());
        }
        AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).map(|search| Self(Some(search)))
    }

    /// Redacts a reply, and returns its data as JSON text. The data is changed only where the text holds a secret.
    pub(crate) fn reply(&self, reply: &mut Reply) -> String {
        let text = reply.data.to_string();
        let Some(search) = &self.0 else { return text };
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

    /// Redacts everything in a failure that a service may have written.
    pub(crate) fn failure(&self, mut failure: Failure) -> Failure {
        let Some(search) = &self.0 else { return failure };
        redact(search, &mut failure.message);
        for text in [&mut failure.cause, &mut failure.endpoint].into_iter().flatten() {
            redact(search, text);
        }
        if let Some(details) = &mut failure.details {
            redact_fields(search, details);
        }
        failure
    }
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
    use serde_json::json;
    use werkruf_contract::ErrorCode;

    use super::*;

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
        let mut clean = Reply::new(json!({"a": 1}));
        assert_eq!(Redaction::default().reply(&mut clean), r#"{"a":1}"#);
    }
}
