//! Completes the generated OpenAPI document: a description for every response, the refusals that every route may answer with, the media
//! type of event streams, and the limits of fields and parameters (`openapi_limits.json`).
//!
//! `tests/schema` sends requests made from the document, so it finds a limit that the server does not have.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::openai_path::is_openai_path;

/// Limits by parameter, by schema and by body. A key that names nothing is a defect.
const LIMITS: &str = include_str!("openapi_limits.json");

/// Routes whose 200 may be an event stream.
const STREAMS: [(&str, &str); 7] = [
    ("post", "/api/chat"),
    ("post", "/functions/v1/chat-rag"),
    ("get", "/api/conversations/{id}/events"),
    ("post", "/v1/chat/completions"),
    ("post", "/v1/responses"),
    ("get", "/v1/responses/{id}"),
    ("post", "/mcp"),
];

/// Refusals of every route that needs a credential. The first is also one of every route that reads a body. 404 is also the answer to an
/// operator who names a tenant or user that does not exist.
const REFUSALS: [&str; 6] = ["400", "401", "403", "404", "429", "503"];
/// Refusals of every route that reads a body, beside those.
const BODY_REFUSALS: [&str; 3] = ["408", "413", "415"];

/// Completes every operation, and adds the components that it names.
pub(super) fn complete(document: &mut Value) {
    limit(document);
    for (path, methods) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            operation_of(method, path, operation);
        }
    }
    let statuses = REFUSALS.iter().chain(&BODY_REFUSALS);
    let shared = statuses.flat_map(|status| ["Error", "OpenAIError", "FlightSearchError"].map(|schema| (schema, *status))).map(
        |(schema, status)| {
            let response = json!({"description": description(status), "content": content(schema)});
            (format!("{schema}{status}"), response)
        },
    );
    document["components"]["responses"] = Value::Object(shared.collect());
}

fn operation_of(method: &str, path: &str, operation: &mut Value) {
    let needs_credential = operation.get("security").is_none();
    let has_body = operation.get("requestBody").is_some();
    let schema = error_schema(path);
    for parameter in parameters_of(operation) {
        never_null(&mut parameter["schema"]);
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let general: &[&str] = if needs_credential { &REFUSALS } else { &REFUSALS[..usize::from(has_body)] };
    for status in general.iter().chain(BODY_REFUSALS.iter().filter(|_| has_body)) {
        let shared = || json!({"$ref": format!("#/components/responses/{schema}{status}")});
        responses.entry(*status).or_insert_with(shared);
    }
    for (status, response) in responses.iter_mut().filter(|(_, response)| response.get("$ref").is_none()) {
        if response["description"].as_str().unwrap_or_default().is_empty() {
            response["description"] = description(status).into();
        }
        if status.starts_with(['4', '5']) && schema != "Error" {
            response["content"] = content(schema);
        }
    }
    if STREAMS.contains(&(method, path)) {
        responses["200"]["content"]["text/event-stream"] = json!({"schema": {"$ref": "#/components/schemas/ServerSentEvent"}});
    }
}

/// The format of the errors of a route.
fn error_schema(path: &str) -> &'static str {
    match path {
        _ if is_openai_path(path) => "OpenAIError",
        "/functions/v1/seatsaero-flight-search" | "/functions/v1/amadeus-flight-search" => "FlightSearchError",
        _ => "Error",
    }
}

/// Adds the limits of parameters, schemas and bodies. Returns the keys that name nothing.
fn limit(document: &mut Value) -> Vec<String> {
    let limits: Map<String, Value> = serde_json::from_str(LIMITS).unwrap_or_default();
    let of = |part: &str| limits.get(part).and_then(Value::as_object).cloned().unwrap_or_default();
    let (parameters, paths, schemas, bodies) = (of("parameters"), of("paths"), of("schemas"), of("bodies"));
    let mut used: HashSet<String> = HashSet::new();
    for (name, fields) in &schemas {
        if let Some(schema) = document["components"]["schemas"].get_mut(name) {
            merge(schema, fields);
            used.insert(name.clone());
        }
    }
    for (path, methods) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            let route = format!("{} {path}", method.to_uppercase());
            for parameter in parameters_of(operation) {
                let (place, name) = (parameter["in"].as_str().unwrap_or_default(), parameter["name"].as_str().unwrap_or_default());
                // Pages under /v1 are those of OpenAI.
                let general = format!("{place} {name}");
                let is_page = is_openai_path(path) && matches!(general.as_str(), "query limit" | "query order");
                let keys = [
                    (&parameters, general, !is_page),
                    (&parameters, format!("{route} {name}"), true),
                    (&paths, format!("{name} of {path}"), place == "path"),
                ];
                for (table, key, applies) in keys {
                    if let Some(fields) = table.get(&key).filter(|_| applies) {
                        merge(&mut parameter["schema"], fields);
                        used.insert(key);
                    }
                }
            }
            if let Some(fields) = bodies.get(&route) {
                for (name, value) in fields.as_object().into_iter().flatten() {
                    operation["requestBody"][name] = value.clone();
                }
                used.insert(route);
            }
        }
    }
    [parameters, paths, schemas, bodies].iter().flat_map(|table| table.keys()).filter(|key| !used.contains(*key)).cloned().collect()
}

/// Adds the fields of an object to another one, objects inside it too.
fn merge(into: &mut Value, fields: &Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, value) in fields {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value.clone(),
    }
}

fn parameters_of(operation: &mut Value) -> impl Iterator<Item = &mut Value> {
    operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
}

/// A parameter that may be left out is never null.
fn never_null(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
}

fn content(schema: &str) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}})
}

fn description(status: &str) -> &'static str {
    match status {
        "200" => "Done.",
        "201" => "Created.",
        "202" => "Accepted; the work goes on after the answer.",
        "204" => "Done; there is no content.",
        "400" => "The request must be changed; the message says how.",
        "401" => "The request has no credential, or an unknown one.",
        "403" => "The credential does not permit this request.",
        "404" => "It does not exist, or it belongs to another user.",
        "408" => "The body did not arrive in time.",
        "409" => "The current state does not allow it.",
        "410" => "It existed and is deleted.",
        "413" => "The body is too large.",
        "415" => "The body is coded in a way that the server does not read.",
        "422" => "The content of the request is wrong; the details say where.",
        "429" => "Too many requests; Retry-After says how long to wait.",
        "503" => "The server cannot answer now; Retry-After says how long to wait.",
        "5XX" => "The server or a service behind it failed.",
        _ => "The request is refused; the code says why.",
    }
}

/// Bodies that the server reads field by field, as far as it insists on their form. Other fields are read where they have the right type,
/// and ignored otherwise.
pub(super) fn add_schemas(schemas: &mut Map<String, Value>, code: &Value) {
    let text = json!({"type": "string", "minLength": 1});
    let role = json!({"type": "string", "enum": ["system", "developer", "user", "assistant"]});
    let message =
        |content: Value| json!({"type": "object", "required": ["role", "content"], "properties": {"role": role, "content": content}});
    let part =
        json!({"type": "object", "required": ["type", "text"], "properties": {"type": {"type": "string", "const": "text"}, "text": text}});
    let parts = json!({"type": "array", "minItems": 1, "items": part});
    let airport = json!({"type": "string", "pattern": "^[A-Z]{3}$"});
    let made = [
        (
            "ChatCompletionRequest",
            json!({
                "type": "object",
                "description": "As OpenAI describes it; unknown fields are ignored.",
                "required": ["messages"],
                "properties": {"messages": {"type": "array", "minItems": 1, "items": message(json!({"oneOf": [text, parts]}))}},
            }),
        ),
        (
            "ResponseRequest",
            json!({
                "type": "object",
                "description": "As OpenAI describes it; unknown fields are ignored.",
                "required": ["input"],
                "properties": {"input": {"oneOf": [text, {"type": "array", "minItems": 1, "items": message(text)}]}},
            }),
        ),
        (
            "FlightSearchRequest",
            json!({
                "type": "object",
                "description": "As the functions of the same name take it; further fields are read.",
                "required": ["origin", "destination", "departureDate"],
                "properties": {"origin": airport, "destination": airport, "departureDate": {"type": "string", "format": "date"}},
            }),
        ),
        (
            "FlightSearchError",
            json!({
                "type": "object",
                "required": ["error"],
                "properties": {"success": {"const": false}, "error": {
                    "type": "object",
                    "required": ["type", "code", "message"],
                    "properties": {"type": {"$ref": "#/components/schemas/ToolErrorType"}, "code": code, "message": {"type": "string"}},
                }},
            }),
        ),
        (
            "ServerSentEvent",
            json!({
                "type": "object",
                "description": "One event of a stream. Its data are JSON; the last event of Chat Completions is [DONE].",
                "required": ["data"],
                "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
            }),
        ),
        (
            "OpenAIError",
            json!({
                "type": "object",
                "description": "The body of every error under /v1.",
                "required": ["error"],
                "properties": {"error": {
                    "type": "object",
                    "required": ["message", "type", "param", "code"],
                    "properties": {
                        "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]}, "code": code,
                    },
                }},
            }),
        ),
    ];
    schemas.extend(made.map(|(name, schema)| (name.to_owned(), schema)));
}

#[cfg(test)]
mod tests {
    /// A build without the flight search has fewer routes than the table.
    #[cfg(feature = "flights")]
    #[test]
    fn every_limit_names_something() {
        let mut document = serde_json::from_str(&crate::api::openapi()).unwrap();
        assert_eq!(super::limit(&mut document), Vec::<String>::new());
    }
}
