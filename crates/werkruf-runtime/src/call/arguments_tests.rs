use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use werkruf_contract::{Effect, Failure, Invocation, Reply, Tool, ToolSpec};

use super::{Parsed, parse};
use crate::registry::Registry;

struct Probe;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    city: String,
    days: Option<i64>,
    #[serde(default = "metric")]
    metric: bool,
    status: Option<Status>,
    tags: Option<Vec<String>>,
}

const fn metric() -> bool {
    true
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    InProgress,
}

impl Tool for Probe {
    type Args = Args;
    type Output = Value;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("probe", "probes", Effect::Read)
    }

    async fn call(&self, _: Args, _: Invocation) -> Result<Reply<Value>, Failure> {
        std::future::ready(Ok(Reply::new(Value::Null))).await
    }
}

fn parsed(raw: &str) -> Result<Parsed, Failure> {
    let mut registry = Registry::default();
    registry.add(Probe).unwrap();
    parse(raw, registry.find("probe").unwrap())
}

#[test]
fn lossless_coercions_are_made_and_recorded() {
    let parsed = parsed(r#"{"city": 7, "days": "3", "metric": "false", "status": "OPEN", "tags": "[\"a\"]"}"#).unwrap();
    assert_eq!(parsed.args, json!({"city": "7", "days": 3, "metric": false, "status": "open", "tags": ["a"]}));
    let rules: Vec<(&str, &str)> = parsed.repairs.iter().map(|r| (r.path.as_str(), r.rule.as_str())).collect();
    assert_eq!(
        rules,
        [
            ("/city", "number_to_string"),
            ("/days", "string_to_number"),
            ("/metric", "string_to_boolean"),
            ("/status", "enum_case"),
            ("/tags", "json_in_string")
        ]
    );
}

#[test]
fn whole_floats_and_double_encoding_are_mended_and_defaults_filled() {
    let parsed = parsed(r#""{\"city\": \"Bonn\", \"days\": 3.0}""#).unwrap();
    assert_eq!(parsed.args, json!({"city": "Bonn", "days": 3, "metric": true, "status": null, "tags": null}));
    assert_eq!(parsed.repairs.len(), 2);
}

#[test]
fn what_would_lose_something_is_refused() {
    for raw in [r#"{"city": "x", "days": "3.5"}"#, r#"{"city": "x", "days": 3.5}"#, r#"{"days": 3}"#, r#"{"city": "x", "nope": 1}"#] {
        let failure = parsed(raw).unwrap_err();
        assert_eq!((failure.kind.as_str(), failure.code.as_ref()), ("VALIDATION", "invalid_arguments"), "{raw}");
    }
    assert!(parsed(r#"{"days": 3}"#).unwrap_err().message.contains("/city: is required"));
}

#[test]
fn damage_is_never_taken_for_an_empty_object() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for raw in [r#"{"city": "Bo"#, "[]", "nonsense", "1e999", "\u{0}", deep.as_str(), &"x".repeat(300_000)] {
        assert_eq!(parsed(raw).unwrap_err().code, "invalid_arguments");
    }
}
