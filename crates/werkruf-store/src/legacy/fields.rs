//! One row of another program, by columns. Columns that are not read are kept with the imported row.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use werkruf_contract::{MAX_JSON_VALUES, count_json_values};

/// A row, by lower-case column names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fields {
    pub(crate) table: String,
    /// The row's id in the source.
    pub(crate) id: Value,
    rest: Map<String, Value>,
}

impl Fields {
    pub(crate) fn new(table: &str, mut columns: Map<String, Value>, place: usize) -> Self {
        let id = columns.shift_remove("id").filter(|id| !id.is_null());
        Self { table: table.to_owned(), id: id.unwrap_or_else(|| Value::from(format!("row {}", place + 1))), rest: columns }
    }

    /// Removes and returns the first of these columns that is not null.
    pub(crate) fn take(&mut self, names: &[&str]) -> Option<Value> {
        let name = names.iter().find(|name| self.rest.get(**name).is_some_and(|value| !value.is_null()))?;
        self.rest.shift_remove(*name)
    }

    /// Like [`Self::take`], as text; a number is formatted, empty text is `None`.
    pub(crate) fn text(&mut self, names: &[&str]) -> Option<String> {
        self.take(names).and_then(|value| spelled(&value))
    }

    /// Like [`Self::take`], as a time. A value that is not a time stays in the row.
    pub(crate) fn time(&mut self, names: &[&str]) -> Option<Timestamp> {
        let name = names.iter().find(|name| self.rest.get(**name).and_then(moment).is_some())?;
        self.rest.shift_remove(*name).as_ref().and_then(moment)
    }

    /// Like [`Self::take`], as JSON: text that holds JSON is parsed, other text is unchanged.
    pub(crate) fn json(&mut self, names: &[&str]) -> Option<Value> {
        self.take(names).map(read_json)
    }

    /// The columns that were not taken and are not null.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.rest.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }

    /// Adds a value to those that are kept.
    pub(crate) fn keep(&mut self, name: &str, value: Value) {
        self.rest.insert(name.to_owned(), value);
    }
}

/// A value as text; `None` for null and empty text.
pub(crate) fn spelled(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

/// Parses text that holds JSON; every other value is unchanged.
pub(crate) fn read_json(value: Value) -> Value {
    match value {
        // A text with too many values stays a text.
        Value::String(text) if count_json_values(text.as_bytes()) > MAX_JSON_VALUES => Value::String(text),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    }
}

/// The first of these members that is not null.
pub(crate) fn member<'a>(object: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| object.get(*name).filter(|value| !value.is_null()))
}

/// A time as programs write it: ISO 8601 with or without a zone (then UTC), or seconds or milliseconds since 1970.
fn moment(value: &Value) -> Option<Timestamp> {
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(ms) if ms.abs() >= MILLISECONDS_FROM => Timestamp::from_millisecond(ms).ok(),
            Some(seconds) => Timestamp::from_second(seconds).ok(),
            None => number.as_f64().and_then(|seconds| Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()),
        },
        Value::String(text) => {
            let text = text.trim();
            let civil = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
            let time = text.parse::<Timestamp>().ok().or_else(|| postgres(text)?.parse().ok()).or_else(civil)?;
            // The tables store milliseconds.
            Timestamp::from_millisecond(time.as_millisecond()).ok()
        }
        _ => None,
    }
}

/// PostgreSQL prints `2025-01-02 03:04:05.678+00`; the zone lacks its minutes.
fn postgres(text: &str) -> Option<String> {
    let sign = text.len().checked_sub(3)?;
    let zone = text.get(sign..)?;
    (zone.starts_with(['+', '-']) && zone[1..].bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{text}:00"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::moment;

    #[test]
    fn times_are_read_as_programs_write_them() {
        let at = |value| moment(&value).map(|time| time.to_string());
        let expected = Some("2025-01-02T03:04:05Z".to_owned());
        for value in [
            json!("2025-01-02T03:04:05Z"),
            json!("2025-01-02 03:04:05"),
            json!("2025-01-02T03:04:05"),
            json!("2025-01-02T04:04:05+01:00"),
            json!("2025-01-02 03:04:05+00"),
            json!(1_735_787_045),
            json!(1_735_787_045_000_i64),
        ] {
            assert_eq!(at(value.clone()), expected, "{value}");
        }
        assert_eq!(at(json!("2025-01-02 03:04:05.123456+00")), Some("2025-01-02T03:04:05.123Z".to_owned()));
        assert_eq!(at(json!("2025-01-02")), Some("2025-01-02T00:00:00Z".to_owned()));
        assert_eq!((at(json!("yesterday")), at(json!(""))), (None, None));
    }
}
