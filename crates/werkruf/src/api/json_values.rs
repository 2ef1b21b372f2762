//! Reads the JSON of requests without building what is not used. A value that is kept is counted before it is built: a list of
//! zeros takes two bytes per element in a body, and eighty in memory.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use werkruf_contract::count_json_values;

/// Texts of which a message or item with the result of a tool has one, quotes included.
const RESULT_MARKS: [&str; 4] = ["\"tool\"", "\"function\"", "function_call_output\"", "custom_tool_call_output\""];

/// The fields of an object that have one of these names, as text. All others are skipped. A name that comes twice has its last value.
pub(crate) struct RawFields<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> RawFields<'a> {
    /// Reads an object.
    pub(crate) fn read(raw: &'a [u8], names: &'static [&'static str]) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(raw);
        let fields = deserializer.deserialize_map(FieldVisitor(names))?;
        deserializer.end()?;
        Ok(Self(fields))
    }

    /// The text of a field.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, raw)| raw.get())
    }

    /// Whether the messages or items may contain the result of a tool. A text that quotes one also counts.
    pub(crate) fn may_have_results(&self) -> bool {
        let mentions = |text: &str| RESULT_MARKS.iter().any(|mark| text.contains(mark));
        ["messages", "input"].into_iter().filter_map(|name| self.text(name)).any(mentions)
    }

    /// The number of values in all fields.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(_, raw)| count_json_values(raw.get().as_bytes())).sum()
    }

    /// The fields as values.
    pub(crate) fn build(self) -> Result<Map<String, Value>, serde_json::Error> {
        self.0.into_iter().map(|(name, raw)| Ok((name.to_owned(), serde_json::from_str(raw.get())?))).collect()
    }
}

struct FieldVisitor(&'static [&'static str]);

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Vec<(&'static str, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: Self::Value = Vec::new();
        while let Some(name) = map.next_key::<FieldName<'de>>()? {
            let Some(known) = self.0.iter().find(|known| **known == name.0) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw = map.next_value()?;
            match found.iter_mut().find(|(earlier, _)| earlier == known) {
                Some((_, value)) => *value = raw,
                None => found.push((known, raw)),
            }
        }
        Ok(found)
    }
}

/// The name of a field, borrowed from the body where it has no escapes.
#[derive(serde::Deserialize)]
struct FieldName<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::RawFields;

    #[test]
    fn only_named_fields_are_read() {
        let body = br#"{"a": 1, "unknown": [[{"deep": 1}]], "\u0062": [2, 3], "a": {"x": 4}}"#;
        let fields = RawFields::read(body, &["a", "b", "c"]).unwrap();
        assert_eq!((fields.text("b"), fields.text("c"), fields.count()), (Some("[2, 3]"), None, 5));
        assert_eq!(serde_json::Value::Object(fields.build().unwrap()), json!({"a": {"x": 4}, "b": [2, 3]}));
        for bad in ["", "[]", "{", "5", r#"{"a": 1} x"#, r#"{"unknown": [}"#] {
            assert!(RawFields::read(bad.as_bytes(), &["a"]).is_err(), "{bad}");
        }
    }
}
