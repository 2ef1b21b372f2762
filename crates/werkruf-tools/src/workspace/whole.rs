//! A number without a fraction. Models write an id as `3` and as `3.0`; both mean the same person.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) i64);

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        let whole = number.as_i64().or_else(|| number.as_f64().and_then(from_float));
        whole.map(Self).ok_or_else(|| Error::invalid_value(Unexpected::Other(&number.to_string()), &"a whole number"))
    }
}

/// Only where nothing is lost: beyond 2^53 a float no longer names one integer.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
fn from_float(float: f64) -> Option<i64> {
    (float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0).then_some(float as i64)
}

impl JsonSchema for Whole {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Whole")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}

#[cfg(test)]
mod tests {
    use super::Whole;

    #[test]
    fn whole_floats_are_integers_and_fractions_are_not() {
        let read = |text: &str| serde_json::from_str::<Whole>(text).ok();
        assert_eq!([read("3"), read("3.0"), read("-7")], [Some(Whole(3)), Some(Whole(3)), Some(Whole(-7))]);
        assert_eq!([read("3.5"), read("\"3\""), read("1e300")], [None, None, None]);
    }
}
