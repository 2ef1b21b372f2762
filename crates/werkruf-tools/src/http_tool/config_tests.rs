use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{Access, Effect, Need, Tenant, ToolObject};

use crate::{ConfigFault, HttpTool, HttpToolConfig};

fn declaration() -> Value {
    json!({
        "name": "lookup",
        "description": "Looks something up.",
        "url": "http://127.0.0.1:9/lookup",
        "effect": "read",
        "permission": "none",
        "parameters": r#"{"type": "object", "properties": {"q": {"type": "string"}}}"#
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut declaration = declaration();
    declaration[field] = value;
    declaration
}

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("geheim".to_owned()),
        "BROKEN" => Some("two\nlines".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn tool(declaration: Value) -> Result<HttpTool, ConfigFault> {
    let config: HttpToolConfig = serde_json::from_value(declaration).unwrap();
    HttpTool::new(config, werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap(), &werkruf_contract::Clock::system(0), &env)
}

fn fault(declaration: Value) -> ConfigFault {
    tool(declaration).unwrap_err()
}

#[test]
fn defaults_match_the_documented_interface() {
    let tool = tool(declaration()).unwrap();
    let spec = tool.spec();
    assert_eq!((spec.timeout, spec.attempts, spec.reuse), (Some(Duration::from_secs(10)), 3, None));
    assert_eq!((spec.max_response_bytes, spec.answers_directly, spec.effect), (1_048_576, false, Effect::Read));
    assert_eq!((&spec.permission, &spec.approval), (&None, &Vec::new()));
}

#[test]
fn declared_fields_are_in_the_spec() {
    let mut declaration = with("permission", json!("requests:table:write"));
    for (field, value) in [
        ("kind", json!("http")),
        ("effect", json!("once")),
        ("timeout_ms", json!(250)),
        ("attempts", json!(5)),
        ("reuse_s", json!(60)),
        ("approval", json!("lead")),
        ("answer", json!("direct")),
        ("max_response_bytes", json!(10)),
    ] {
        declaration[field] = value;
    }
    let tool = tool(declaration).unwrap();
    let spec = tool.spec();
    let need = Need { entity: "requests".to_owned(), entity_type: "table".to_owned(), access: Access::Write };
    assert_eq!((spec.permission.clone(), spec.approval.as_slice(), spec.effect), (Some(need), ["lead".into()].as_slice(), Effect::Once));
    assert_eq!((spec.timeout.unwrap().as_millis(), spec.attempts, spec.reuse), (250, 5, Some(Duration::from_secs(60))));
    assert_eq!((spec.answers_directly, spec.max_response_bytes, spec.allowed_attempts()), (true, 10, 1));
}

#[test]
fn an_unknown_field_is_named() {
    let error = serde_json::from_value::<HttpToolConfig>(with("timeout", json!(3))).unwrap_err().to_string();
    assert!(error.contains("`timeout`") && error.contains("`timeout_ms`"), "{error}");
}

#[test]
fn every_fault_names_its_field_and_a_remedy() {
    let cases = [
        ("name", json!(""), "/name", "1 to 64"),
        ("name", json!("mit leer"), "/name", "letters"),
        ("name", json!("x".repeat(65)), "/name", "64"),
        ("description", json!(" "), "/description", "sentence"),
        ("kind", json!("grpc"), "/kind", "kind = \"http\""),
        ("effect", json!("maybe"), "/effect", "\"once\""),
        ("method", json!("FETCH"), "/method", "POST"),
        ("method", json!("post"), "/method", "POST"),
        ("answer", json!("model"), "/answer", "\"direct\""),
        ("price_usd", json!("one cent"), "/price_usd", "\"0.01\""),
        ("price_usd", json!("-1"), "/price_usd", "per call"),
        ("permission", json!("requests:write"), "/permission", "entity:entity_type:access"),
        ("permission", json!("a:b:own"), "/permission", "read, write or both"),
        ("permission", Value::Null, "/permission", "\"none\""),
        ("approval", json!(""), "/approval", "role"),
        ("timeout_ms", json!(0), "/timeout_ms", "at least 1"),
        ("attempts", json!(0), "/attempts", "at least 1"),
        ("max_response_bytes", json!(0), "/max_response_bytes", "at least 1"),
        ("url", json!("lookup"), "/url", "whole address"),
        ("url", json!("ftp://host/x"), "/url", "http://"),
        ("url", json!("http://169.254.169.254/latest/meta-data/"), "/url", "metadata"),
        ("url", json!("http://[fe80::1]/x"), "/url", "link-local"),
        ("headers", json!({"X-Key": "${NOT_SET}"}), "/headers/X-Key", "NOT_SET"),
        ("headers", json!({"X-Key": "${EMPTY}"}), "/headers/X-Key", "EMPTY"),
        ("headers", json!({"X-Key": "${TOKEN"}), "/headers/X-Key", "${ENV_NAME}"),
        ("headers", json!({"X-Key": "${BROKEN}"}), "/headers/X-Key", "line break"),
        ("headers", json!({"X Key": "a"}), "/headers/X Key", "header name"),
        ("headers", json!({"Idempotency-Key": "a"}), "/headers/Idempotency-Key", "remove"),
        ("headers", json!({"X-Werkruf-User": "1"}), "/headers/X-Werkruf-User", "remove"),
        ("secret_env", json!("NOT_SET"), "/secret_env", "NOT_SET"),
        ("parameters", json!("{"), "/parameters", "not JSON"),
        ("parameters", json!("[]"), "/parameters", "object"),
        ("parameters", json!(r#"{"type": "string"}"#), "/parameters", "object"),
        ("parameters", json!(r#"{"type": "object", "properties": {"a": {"type": "text"}}}"#), "/parameters", "JSON Schema"),
        ("parameters", json!(r#"{"type": "object", "properties": {"a": {"type": "integer", "default": "b"}}}"#), "/parameters", "`a`"),
    ];
    for (field, value, path, expected) in cases {
        let fault = fault(with(field, value.clone()));
        assert_eq!(fault.path, path, "{field} = {value}: {fault}");
        assert!(fault.message.contains(expected), "{field} = {value}: {fault}");
        assert!(!fault.message.contains("two\nlines"), "the value of an environment variable is never shown");
    }
}

#[test]
fn an_argument_of_a_get_cannot_have_the_name_of_a_fixed_parameter() {
    let mut declaration = with("method", json!("GET"));
    declaration["url"] = json!("http://127.0.0.1:9/lookup?q=fixed");
    let fault = fault(declaration);
    assert!(fault.path == "/parameters" && fault.message.contains("`q`"), "{fault}");
}

#[test]
fn a_tool_belongs_to_its_tenants() {
    let id = werkruf_contract::Uuid::from_u128(7);
    let spec = tool(with("tenants", json!(["office", id.to_string()]))).unwrap();
    let serves = |id: u128, slug: &str| spec.spec().serves(Tenant { id: werkruf_contract::Uuid::from_u128(id), slug });
    assert!(serves(1, "office") && serves(7, "renamed") && !serves(1, "demo"));
    let open = tool(declaration()).unwrap();
    assert!(open.spec().serves(Tenant { id, slug: "demo" }));
}

#[test]
fn the_version_changes_with_the_declaration() {
    let version = |declaration| tool(declaration).unwrap().spec().version.clone().into_owned();
    let before = version(declaration());
    assert_eq!(before, version(declaration()));
    assert_eq!(before.len(), 64);
    let changes = [("url", json!("http://127.0.0.1:9/other")), ("description", json!("Other.")), ("headers", json!({"A": "b"}))];
    for (field, value) in changes {
        assert_ne!(before, version(with(field, value)), "{field}");
    }
}

#[test]
fn no_secret_is_printed() {
    let config: HttpToolConfig = serde_json::from_value(with("headers", json!({"Authorization": "Bearer geheim"}))).unwrap();
    assert!(!format!("{config:?}").contains("geheim"));
    let tool = tool(with("headers", json!({"Authorization": "Bearer ${TOKEN}"}))).unwrap();
    assert!(!format!("{tool:?}").contains("geheim"));
}

#[test]
fn defaults_are_filled_in_and_arguments_validated() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "note": {"type": ["string", "null"]},
            "page": {"type": "object", "properties": {"size": {"type": "integer", "default": 10}, "token": {"type": "string"}}}
        },
        "required": ["city"]
    });
    let tool = tool(with("parameters", json!(schema.to_string()))).unwrap();
    assert_eq!(tool.parameters(), &schema);
    assert_eq!(tool.normalize(json!({"city": "Bonn"})).unwrap(), json!({"city": "Bonn", "days": 3, "unit": "c"}));
    assert_eq!(
        tool.normalize(json!({"city": "Bonn", "days": 1, "unit": null, "note": null, "page": {"token": null}})).unwrap(),
        json!({"city": "Bonn", "days": 1, "unit": "c", "note": null, "page": {"size": 10}})
    );
    let violations = tool.normalize(json!({"days": "x"})).unwrap_err();
    let paths: Vec<&str> = violations.iter().map(|v| v.path.as_str()).collect();
    assert!(paths.contains(&"/city") && paths.contains(&"/days"), "{paths:?}");
    assert!(tool.normalize(json!({"city": null})).is_err(), "a required argument may not be null");
    assert!(tool.normalize(json!("Bonn")).is_err());
}
