//! Converts lengths and weights, because language models are bad at arithmetic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

/// The tool. It has no state.
pub struct ConvertUnits;

/// The arguments. The schema for the model is made from this type, and its descriptions from the comments.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The amount to convert
    amount: f64,
    /// The unit of the amount
    from: Unit,
    /// The unit of the result
    to: Unit,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Metre,
    Mile,
    Kilogram,
    Pound,
}

#[derive(Serialize, JsonSchema)]
pub struct Converted {
    amount: f64,
    unit: Unit,
}

impl Unit {
    /// The kind of measure, and how many metres or kilograms one unit has.
    const fn measure(self) -> (&'static str, f64) {
        match self {
            Self::Metre => ("length", 1.0),
            Self::Mile => ("length", 1609.344),
            Self::Kilogram => ("weight", 1.0),
            Self::Pound => ("weight", 0.453_592_37),
        }
    }
}

impl Tool for ConvertUnits {
    type Args = Args;
    type Output = Converted;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("convert_units", "Converts an amount from one unit of length or weight into another.", Effect::Read)
    }

    async fn call(&self, args: Args, _invocation: Invocation) -> Result<Reply<Converted>, Failure> {
        let ((what, factor), (other, divisor)) = (args.from.measure(), args.to.measure());
        if what != other {
            return Err(Failure::validation("different_measures", format!("A {what} cannot become a {other}.")));
        }
        Ok(Reply::new(Converted { amount: args.amount * factor / divisor, unit: args.to }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_contract::{ToolObject, Typed};

    use super::ConvertUnits;
    use crate::support::invocation;

    #[tokio::test]
    async fn miles_become_metres() {
        let tool = Typed::new(ConvertUnits);
        let args = tool.normalize(json!({"amount": 2, "from": "mile", "to": "metre"})).unwrap();
        let reply = tool.call(args, invocation()).await.unwrap();
        assert_eq!(reply.data, json!({"amount": 3218.688, "unit": "metre"}));
    }

    #[tokio::test]
    async fn a_length_is_no_weight() {
        let args = json!({"amount": 1, "from": "mile", "to": "pound"});
        let failure = Typed::new(ConvertUnits).call(args, invocation()).await.unwrap_err();
        assert_eq!(failure.code, "different_measures");
    }

    #[test]
    fn an_unknown_unit_is_refused_before_the_call() {
        assert!(Typed::new(ConvertUnits).normalize(json!({"amount": 1, "from": "cubit", "to": "mile"})).is_err());
    }
}
