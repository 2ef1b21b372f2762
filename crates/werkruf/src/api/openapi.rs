//! Generates the OpenAPI document, which the tests compare with `docs/openapi.json`: routes from their attributes, envelopes and events from the schemas of the contract crate.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use werkruf_contract::{
    ApprovalRequired, AssistantReset, AssistantSnapshot, AssistantToken, DebugEntry, ENVELOPES, ErrorEvent, Final, Init, ToolFinished,
    ToolProgress, ToolStarted, schema_of,
};

use super::{examples, kernel_routes, knowledge_routes, open_routes, openapi_complete};

static DOCUMENT: LazyLock<String> = LazyLock::new(write);

/// The OpenAPI document as formatted JSON.
pub fn openapi() -> String {
    DOCUMENT.clone()
}

fn write() -> String {
    let routes = kernel_routes().merge(knowledge_routes()).merge(open_routes());
    #[cfg(feature = "flights")]
    let routes = routes.merge(super::flights::routes());
    let (_, description) = routes.split_for_parts();
    let mut document = serde_json::to_value(description).unwrap_or(Value::Null);
    document["info"] = json!({
        "title": "Werkruf",
        "description": "A self-hosted tool-call server for LLM assistants.",
        "version": env!("CARGO_PKG_VERSION"),
    });
    document["security"] = json!([{"bearer": []}]);
    document["components"]["securitySchemes"] = json!({"bearer": {"type": "http", "scheme": "bearer"}});
    let mut schemas: Map<String, Value> = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    for name in ENVELOPES {
        if let Some(schema) = schema_of(name) {
            add_component(&mut schemas, name, schema);
        }
    }
    events(&mut schemas);
    schemas.insert("Error".to_owned(), error());
    schemas.insert("ErrorCode".to_owned(), error_code());
    for (schema, place) in [("ErrorEvent", "/properties/code"), ("ToolErrorDetail", "/properties/code")] {
        if let Some(code) = schemas.get_mut(schema).and_then(|schema| schema.pointer_mut(place)) {
            *code = error_code_reference();
        }
    }
    openapi_complete::add_schemas(&mut schemas, &error_code_reference());
    schemas.sort_keys();
    document["components"]["schemas"] = Value::Object(schemas);
    openapi_complete::complete(&mut document);
    examples::add(&mut document);
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn events(schemas: &mut Map<String, Value>) {
    fn of<T: JsonSchema>() -> Value {
        SchemaGenerator::from(SchemaSettings::draft2020_12()).into_root_schema_for::<T>().to_value()
    }
    for (name, schema) in [
        ("Init", of::<Init>()),
        ("ToolStarted", of::<ToolStarted>()),
        ("ToolProgress", of::<ToolProgress>()),
        ("ToolFinished", of::<ToolFinished>()),
        ("ApprovalRequired", of::<ApprovalRequired>()),
        ("AssistantToken", of::<AssistantToken>()),
        ("AssistantSnapshot", of::<AssistantSnapshot>()),
        ("AssistantReset", of::<AssistantReset>()),
        ("Final", of::<Final>()),
        ("ErrorEvent", of::<ErrorEvent>()),
        ("DebugEntry", of::<DebugEntry>()),
    ] {
        add_component(schemas, name, schema);
    }
}

/// Adds a schema and its definitions to the components.
fn add_component(schemas: &mut Map<String, Value>, name: &str, mut schema: Value) {
    rewrite_references(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        if let Some(Value::Object(definitions)) = object.remove("$defs") {
            for (name, definition) in definitions {
                schemas.entry(name).or_insert(definition);
            }
        }
    }
    schemas.insert(name.to_owned(), schema);
}

fn rewrite_references(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object.iter_mut() {
                match inner {
                    Value::String(target) if key == "$ref" => *target = target.replace("#/$defs/", "#/components/schemas/"),
                    _ => rewrite_references(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The list of error codes for people, which is also the list in the document.
const ERROR_PAGES: &str = include_str!("../../../../docs/errors/README.md");

/// Every code of the server. Tools of the operator may have others.
fn error_code() -> Value {
    let mut codes: Vec<&str> = ERROR_PAGES.lines().filter_map(|line| line.strip_prefix("| [")?.split(']').next()).collect();
    codes.sort_unstable();
    json!({
        "description": "A stable code for programs. Each listed code has a page in docs/errors; tools of the operator may have others.",
        "anyOf": [{"type": "string", "enum": codes}, {"type": "string"}],
    })
}

fn error_code_reference() -> Value {
    json!({"$ref": "#/components/schemas/ErrorCode"})
}

fn error() -> Value {
    json!({
        "type": "object",
        "description": "The body of every error. For a failed turn the fields status, conversation_id and turn_id are next to error.",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["type", "code", "message", "request_id"],
            "properties": {
                "type": {"$ref": "#/components/schemas/ToolErrorType"},
                "code": error_code_reference(),
                "message": {"type": "string"},
                "retry_after_ms": {"type": "integer"},
                "request_id": {"type": "string"},
                "details": {}
            }
        }}
    })
}
