//! Converts lengths and weights. A model is bad at arithmetic; this is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

/// The tool. It needs nothing, so it holds nothing.
pub struct ConvertUnits;

/// What the model chooses. These types are also the schema, and the comments its descriptions.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// How much of it
    amount: f64,
    /// The unit it is in
    from: Unit,
    /// The unit it should be in
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

#[derive(Serialize)]
pub struct Converted {
    amount: f64,
    unit: Unit,
}

impl Unit {
    /// What is measured, and one of this unit in metres or kilograms.
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
    async fn a_mile_has_so_many_metres() {
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
