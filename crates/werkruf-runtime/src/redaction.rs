//! Redacts the server's own secrets in what tools return. A service that echoes its request must show its token neither to the model nor to the user.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use serde_json::{Map, Value};
use werkruf_contract::{ErrorCode, Failure};
use werkruf_llm::ProviderItem;

use crate::stored::StoredMeta;

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
        // Values are searched as JSON text, which escapes some characters: twice where a value is a JSON text itself.
        let mut patterns: Vec<String> = texts.iter().flat_map(|text| [text.clone(), escaped(text), escaped(&escaped(text))]).collect();
        patterns.sort_unstable();
        patterns.dedup();
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns)?;
        Ok(Self { search: Some(search), texts: texts.to_vec() })
    }

    /// Redacts a tool's data, and returns it as JSON text. Only where the text holds a secret each value is looked at.
    pub(crate) fn json(&self, data: &mut Value) -> String {
        let text = data.to_string();
        let Some(search) = self.search.as_ref().filter(|search| search.is_match(&text)) else { return text };
        redact_value(search, data);
        data.to_string()
    }

    /// The same for what a tool replies beside the data. Returns it as the row keeps it.
    pub(crate) fn meta(&self, meta: &mut StoredMeta) -> Option<String> {
        let column = meta.to_column()?;
        let Some(search) = self.search.as_ref().filter(|search| search.is_match(&column)) else { return Some(column) };
        if let Some(message) = &mut meta.message {
            redact(search, message);
        }
        for fields in [&mut meta.state_patch, &mut meta.routing].into_iter().flatten() {
            redact_fields(search, fields);
        }
        meta.source_counts = meta.source_counts.take().map(|counts| redacted_counts(search, counts));
        meta.token_usage = meta.token_usage.take().map(|counts| redacted_counts(search, counts));
        meta.to_column()
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
    pub(crate) fn provider_item<'a>(&self, item: &'a ProviderItem) -> Cow<'a, ProviderItem> {
        let holds_secret = |search: &&AhoCorasick| {
            let mut texts = [&item.name, &item.arguments, &item.status].into_iter().flatten();
            let mut values = [&item.output, &item.error].into_iter().flatten();
            texts.any(|text| search.is_match(text.as_str())) || values.any(|value| search.is_match(&value.to_string()))
        };
        let Some(search) = self.search.as_ref().filter(holds_secret) else { return Cow::Borrowed(item) };
        let mut item = item.clone();
        for text in [&mut item.name, &mut item.arguments, &mut item.status].into_iter().flatten() {
            redact(search, text);
        }
        for value in [&mut item.output, &mut item.error].into_iter().flatten() {
            redact_value(search, value);
        }
        Cow::Owned(item)
    }

    /// A text that the model wrote.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(search) = &self.search {
            redact(search, &mut text);
        }
        text
    }

    /// The beginning of a text, at most so many bytes, without secrets and without the beginning of one at its end.
    pub(crate) fn beginning(&self, text: &str, bytes: usize) -> String {
        let mut beginning = text[..text.floor_char_boundary(bytes)].to_owned();
        if let Some(search) = &self.search {
            self.cut_text(search, &mut beginning);
        }
        beginning
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

/// A text as it stands in a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
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

/// Counts by names that a service may have written. A number that is a secret is left out.
fn redacted_counts<N: ToString>(search: &AhoCorasick, counts: BTreeMap<String, N>) -> BTreeMap<String, N> {
    let kept = counts.into_iter().filter(|(_, number)| !search.is_match(&number.to_string()));
    kept.map(|(mut name, number)| {
        redact(search, &mut name);
        (name, number)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_redacted_wherever_they_stand_and_json_stays_json() {
        let redaction = Redaction::new(&["12345678".to_owned(), "to\"ken-1".to_owned()]).unwrap();
        let mut data = json!({"a": ["x to\"ken-1 y", 1_234_567_890, true], "to\"ken-1": {"b": "12345678"}, "clean": 1});
        let text = redaction.json(&mut data);
        let expected = json!({"a": ["x [redacted] y", "[redacted]", true], "[redacted]": {"b": "[redacted]"}, "clean": 1});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        // Inside a JSON text that is a value itself, and nowhere else.
        let mut nested = json!({"body": json!({"echo": "to\"ken-1"}).to_string()});
        assert_eq!(redaction.json(&mut nested), json!({"body": json!({"echo": "[redacted]"}).to_string()}).to_string());
        let failure = redaction.failure(Failure::upstream(ErrorCode::UpstreamError, "no 12345678").because("header to\"ken-1"));
        assert_eq!((failure.message.as_str(), failure.cause.as_deref()), ("no [redacted]", Some("header [redacted]")));
        let mut cut = Failure::upstream("x0123456789abcdef", "ends with 0123456789").because("0123456789ab\u{fffd}");
        cut.details = json!({"k": 1}).as_object().cloned();
        let cut = Redaction::new(&["0123456789abcdef".to_owned()]).unwrap().failure(cut);
        assert_eq!(
            (cut.message.as_str(), cut.cause.as_deref(), &*cut.code),
            ("ends with [redacted]", Some("[redacted]"), "upstream_refused")
        );
        assert_eq!(Redaction::default().json(&mut json!({"a": 1})), r#"{"a":1}"#);
    }

    #[test]
    fn all_parts_of_a_replys_meta_are_redacted() {
        let redaction = Redaction::new(&["12345678".to_owned(), "to\"ken-1".to_owned()]).unwrap();
        let mut meta = StoredMeta {
            source_counts: Some(BTreeMap::from([("to\"ken-1".to_owned(), 2), ("b".to_owned(), 12_345_678)])),
            routing: json!({"12345678": [1]}).as_object().cloned(),
            token_usage: Some(BTreeMap::from([("in to\"ken-1".to_owned(), 5)])),
            message: Some("12345678!".to_owned()),
            state_patch: json!({"note": "to\"ken-1"}).as_object().cloned(),
        };
        let column: Value = serde_json::from_str(&redaction.meta(&mut meta).unwrap()).unwrap();
        let expected = json!({"source_counts": {"[redacted]": 2}, "routing": {"[redacted]": [1]}, "token_usage": {"in [redacted]": 5},
            "message": "[redacted]!", "state_patch": {"note": "[redacted]"}});
        assert_eq!(column, expected);
        assert_eq!((meta.message.as_deref(), meta.state_patch.as_ref()), (Some("[redacted]!"), expected["state_patch"].as_object()));
        assert_eq!(redaction.meta(&mut StoredMeta::default()), None);
    }

    #[test]
    fn an_item_of_the_provider_is_copied_only_to_change_it() {
        let redaction = Redaction::new(&["to\"ken-1".to_owned()]).unwrap();
        let mut item = ProviderItem { output: Some(json!({"a": 1})), ..ProviderItem::default() };
        assert!(matches!(redaction.provider_item(&item), Cow::Borrowed(_)));
        item.output = Some(json!(["to\"ken-1"]));
        assert_eq!(redaction.provider_item(&item).output, Some(json!(["[redacted]"])));
    }
}
