//! Stored values in responses: times with milliseconds and `Z`, JSON columns as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A time in the format of the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Iso(pub(crate) Timestamp);

impl Serialize for Iso {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.3}", self.0))
    }
}

/// A JSON column, copied without parsing; null if the column is not JSON.
pub(crate) fn raw(text: Option<&str>) -> Option<&RawValue> {
    text.and_then(json_column)
}

/// A JSON column; null if the column is not what it must be.
pub(crate) fn json_column<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let read = serde_json::from_str(text);
    read.inspect_err(|error| tracing::error!(%error, "a stored JSON column is not JSON")).ok()
}

/// A stored error of a call or a turn; its cause and endpoint are for scope admin only.
pub(crate) fn error_detail(text: Option<&str>, admin: bool) -> Option<serde_json::Value> {
    let mut detail: serde_json::Value = serde_json::from_str(text?).ok()?;
    if !admin && let Some(fields) = detail.as_object_mut() {
        fields.remove("cause");
        fields.remove("endpoint");
    }
    Some(detail)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Iso, error_detail};

    #[test]
    fn times_have_milliseconds() {
        let text = serde_json::to_string(&Iso(Timestamp::from_second(0).unwrap())).unwrap();
        assert_eq!(text, "\"1970-01-01T00:00:00.000Z\"");
    }

    #[test]
    fn only_an_admin_sees_the_cause() {
        let stored = r#"{"type":"UPSTREAM","message":"m","cause":"dns"}"#;
        assert!(error_detail(Some(stored), true).unwrap().get("cause").is_some());
        assert!(error_detail(Some(stored), false).unwrap().get("cause").is_none());
    }
}
