//! A number without a fraction. Models write an id as `3` and as `3.0`; both must mean the same user.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WholeNumber(pub(super) i64);

impl Serialize for WholeNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        let whole_number = number.as_i64().or_else(|| number.as_f64().and_then(from_float));
        whole_number.map(Self).ok_or_else(|| Error::invalid_value(Unexpected::Other(&number.to_string()), &"a whole number"))
    }
}

/// Converts only exact values: beyond 2^53 a float does not identify one integer.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
fn from_float(float: f64) -> Option<i64> {
    (float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0).then_some(float as i64)
}

impl JsonSchema for WholeNumber {
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
    use super::WholeNumber;

    #[test]
    fn whole_floats_are_integers_and_fractions_are_not() {
        let parse = |text: &str| serde_json::from_str::<WholeNumber>(text).ok();
        assert_eq!([parse("3"), parse("3.0"), parse("-7")], [Some(WholeNumber(3)), Some(WholeNumber(3)), Some(WholeNumber(-7))]);
        assert_eq!([parse("3.5"), parse("\"3\""), parse("1e300")], [None, None, None]);
    }
}
