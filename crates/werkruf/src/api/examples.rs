//! Adds an example to every request body and every success response of the OpenAPI document. Written examples are in `examples.json`; the others are
//! made from the schemas, with the values that the file gives for names of fields.

use serde_json::{Map, Value, json};

const WRITTEN: &str = include_str!("examples.json");
const ID: &str = "0190c0de-7a1b-7c2d-8e3f-4a5b6c7d8e9f";
const TIME: &str = "2026-11-18T09:30:00.000Z";
/// Schemas may contain each other.
const MAX_DEPTH: u32 = 8;

/// Adds the examples to a document.
pub(super) fn add(document: &mut Value) {
    let written: Value = serde_json::from_str(WRITTEN).unwrap_or_default();
    let schemas = document["components"]["schemas"].take();
    let examples = Examples { written: &written, schemas: &schemas };
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, methods) in paths {
            for (method, operation) in methods.as_object_mut().into_iter().flatten() {
                examples.add_to(&format!("{} {path}", method.to_uppercase()), operation);
            }
        }
    }
    document["components"]["schemas"] = schemas;
}

struct Examples<'a> {
    written: &'a Value,
    schemas: &'a Value,
}

impl Examples<'_> {
    fn add_to(&self, name: &str, operation: &mut Value) {
        let written = &self.written["operations"][name];
        if let Some(content) = operation.pointer_mut("/requestBody/content") {
            self.fill(content, written.get("request"));
        }
        let Some(responses) = operation["responses"].as_object_mut() else { return };
        for (_, response) in responses.iter_mut().filter(|(status, _)| status.starts_with('2')) {
            if let Some(text) = written.get("response").filter(|_| response.get("content").is_none()) {
                let kind = if text.is_string() { "text/plain" } else { "application/json" };
                response["content"] = json!({kind: {"example": text}});
            }
            if let Some(content) = response.get_mut("content") {
                self.fill(content, written.get("response"));
            }
        }
    }

    fn fill(&self, content: &mut Value, written: Option<&Value>) {
        for (kind, media) in content.as_object_mut().into_iter().flatten() {
            // The written answer is the one in JSON.
            let written = written.filter(|_| kind != "text/event-stream");
            let example = written.cloned().unwrap_or_else(|| self.of(&media["schema"], "", 0));
            media["example"] = example;
        }
    }

    /// An example of a schema, for a field with this name.
    fn of(&self, schema: &Value, field: &str, depth: u32) -> Value {
        if let Some(given) = schema.get("example").or_else(|| schema.get("const")).or_else(|| schema.pointer("/enum/0")) {
            return given.clone();
        }
        if let Some(name) = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()) {
            return match self.written["schemas"].get(name) {
                Some(written) => written.clone(),
                None => self.of(&self.schemas[name], field, depth + 1),
            };
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return self.merged(parts, depth);
        }
        let choices = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        if let Some(choice) = choices.and_then(|choices| choices.iter().find(|choice| choice["type"] != "null")) {
            return self.of(choice, field, depth + 1);
        }
        let kind = kind(schema);
        if let Some(known) = self.written["fields"].get(field).filter(|value| fits(value, schema)) {
            return known.clone();
        }
        match kind {
            "object" => self.object(schema, depth),
            "array" if depth > MAX_DEPTH || schema.get("items").is_none() => json!([]),
            "array" => json!([self.of(&schema["items"], field, depth + 1)]),
            "integer" | "number" => schema.get("minimum").filter(|least| least.as_i64() > Some(1)).cloned().unwrap_or_else(|| json!(1)),
            "boolean" => json!(false),
            "string" => text(schema, field),
            _ => json!({}),
        }
    }

    fn object(&self, schema: &Value, depth: u32) -> Value {
        let mut object = Map::new();
        if depth <= MAX_DEPTH {
            for (name, part) in schema["properties"].as_object().into_iter().flatten() {
                object.insert(name.clone(), self.of(part, name, depth + 1));
            }
        }
        Value::Object(object)
    }

    fn merged(&self, parts: &[Value], depth: u32) -> Value {
        let mut object = Map::new();
        for part in parts {
            if let Value::Object(fields) = self.of(part, "", depth + 1) {
                object.extend(fields);
            }
        }
        Value::Object(object)
    }
}

/// The type of a schema; of a type that may be null, the other one.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(types) => types.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default(),
        _ if schema.get("properties").is_some() => "object",
        _ => "",
    }
}

/// Whether a value has a type that the schema allows.
fn fits(value: &Value, schema: &Value) -> bool {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |kind: &Value| kind == name || (name == "integer" && kind == "number");
    // A format asks for more than the type.
    if value.is_string() && schema.get("format").is_some() {
        return false;
    }
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is),
        kind if value.is_object() && schema.get("properties").is_some() => kind.is_null(),
        kind => is(kind),
    }
}

fn text(schema: &Value, field: &str) -> Value {
    match schema["format"].as_str() {
        Some("date-time") => json!(TIME),
        Some("uuid") => json!(ID),
        Some("date") => json!("2026-11-18"),
        _ if field == "id" || field.ends_with("_id") => json!(ID),
        _ if field.ends_with("_at") || field == "at" => json!(TIME),
        _ => json!(field.replace('_', " ")),
    }
}
