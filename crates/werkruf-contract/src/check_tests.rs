use serde_json::{Value, json};

use super::{ENVELOPES, check, schema_of};
use crate::{Auth, ToolContext, ToolOutput};

fn context() -> Value {
    schema_of("ToolContext").unwrap()["examples"][0].clone()
}

fn paths(name: &str, value: &Value) -> Vec<String> {
    check(name, value).unwrap().into_iter().map(|v| v.path).collect()
}

fn with(mut value: Value, field: &str, new: Value) -> Value {
    value[field] = new;
    value
}

#[test]
fn every_envelope_has_a_schema_and_its_examples_are_valid() {
    for name in ENVELOPES {
        let schema = schema_of(name).unwrap();
        let examples = schema.get("examples").and_then(Value::as_array).cloned().unwrap_or_default();
        assert!(!examples.is_empty() || name == "ToolErrorType", "{name} has no example");
        for example in examples {
            assert_eq!(check(name, &example).unwrap(), vec![], "{name}");
        }
    }
    assert_eq!(check("Nonsense", &json!({})), None);
}

#[test]
fn context_rules_are_checked() {
    assert_eq!(paths("ToolContext", &with(context(), "ingestion_run_id", json!("ingest_1"))), ["/ingestion_run_id"]);
    assert_eq!(paths("ToolContext", &with(context(), "run_id", Value::Null)), ["/run_id"]);
    assert_eq!(paths("ToolContext", &with(context(), "now_iso", json!("2024-05-03T12:34:56"))), ["/now_iso"]);
    assert_eq!(paths("ToolContext", &with(context(), "timeouts_ms", json!(0))), ["/timeouts_ms"]);
    assert_eq!(paths("ToolContext", &with(context(), "tenant_id", json!("not-a-uuid"))), ["/tenant_id"]);
    let mut missing = context();
    missing.as_object_mut().unwrap().remove("trace_id");
    assert_eq!(paths("ToolContext", &missing), ["/trace_id"]);
}

#[test]
fn measurements_are_not_negative() {
    assert_eq!(paths("ToolResultMeta", &json!({"took_ms": -1})), ["/took_ms"]);
    assert_eq!(paths("ToolResultMeta", &json!({"took_ms": 1, "source_counts": {"a": -1}})), ["/source_counts/a"]);
    assert_eq!(paths("ToolErrorMeta", &json!({"took_ms": -1})), ["/took_ms"]);
    assert_eq!(paths("ToolErrorType", &json!("PERMISSION")), [""]);
}

#[test]
fn status_selects_the_variant_of_the_union() {
    assert_eq!(paths("ToolOutput", &json!({"status": "maybe"})), ["/status"]);
    assert_eq!(paths("ToolOutput", &json!({"status": "ok", "input": {}, "meta": {"took_ms": 1}})), ["/data"]);
    let error = schema_of("ToolError").unwrap()["examples"][0].clone();
    assert!(matches!(serde_json::from_value(error).unwrap(), ToolOutput::Error(_)));
}

#[test]
fn a_context_keeps_unknown_fields_and_hides_auth() {
    let raw = with(context(), "auth", json!({"token": "geheim"}));
    let parsed = ToolContext::from_json(raw).unwrap();
    assert_eq!(parsed.auth.as_ref().map(Auth::reveal).unwrap()["token"], "geheim");
    let written = serde_json::to_string(&parsed).unwrap();
    assert!(!written.contains("geheim") && !format!("{parsed:?}").contains("geheim"));
    assert!(written.contains("8607a8d9-0f3f-43df-bf86-37e845e1574c"), "request_id is kept");
    assert!(written.contains("2024-05-03T12:34:56.123456Z"), "converted to UTC");
    assert!(ToolContext::from_json(with(context(), "run_id", Value::Null)).is_err());
}
