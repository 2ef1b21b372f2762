//! Compares every response of a test's server with `docs/openapi.json`. Requests made from the document find few of the ways to an answer;
//! the tests go many of them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use jsonschema::Validator;
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap());
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Fails where a response is not as described. The request of the test then gets no response.
pub async fn check(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().as_str().to_lowercase(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let Some((template, operation)) = operation(&method, &path) else { return response };
    let (parts, body) = response.into_parts();
    let media = media_type(&parts.headers);
    let is_json = media == "application/json" && !parts.headers.contains_key(CONTENT_ENCODING);
    let (body, value) = if is_json {
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        (Body::from(bytes), value)
    } else {
        (body, None)
    };
    if let Some(fault) = fault(&format!("{method} {template}"), operation, parts.status.as_u16(), &media, value.as_ref()) {
        panic!("{method} {path} is not answered as docs/openapi.json says: {fault}");
    }
    Response::from_parts(parts, body)
}

/// The operation of a request, and the path as the document has it. A path that is named in full is meant before one with parameters.
fn operation(method: &str, path: &str) -> Option<(&'static str, &'static Value)> {
    let fits = |template: &str| {
        let is_equal = |(part, given): (&str, &str)| part == given || (part.starts_with('{') && !given.is_empty());
        template.split('/').count() == path.split('/').count() && template.split('/').zip(path.split('/')).all(is_equal)
    };
    let named = DOCUMENT["paths"].as_object().unwrap().iter().filter(|(template, _)| fits(template));
    let (template, methods) = named.min_by_key(|(template, _)| template.matches('{').count())?;
    Some((template.as_str(), methods.get(method)?))
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_owned()
}

fn fault(name: &str, operation: &Value, status: u16, media: &str, body: Option<&Value>) -> Option<String> {
    let responses = &operation["responses"];
    let found = responses.get(status.to_string()).or_else(|| responses.get(format!("{}XX", status / 100)));
    let Some(mut described) = found else { return Some(format!("{status} is not described")) };
    if let Some(target) = described.get("$ref") {
        described = DOCUMENT.pointer(target.as_str().unwrap().trim_start_matches('#')).unwrap();
    }
    let Some(content) = described.get("content") else {
        return body.map(|_| format!("{status} has a body and is described without one"));
    };
    let Some(content) = content.get(media) else {
        return (!media.is_empty()).then(|| format!("{status} with {media} is not described"));
    };
    let (schema, body) = (content.get("schema")?, body?);
    let validator = validator(&format!("{name} {status} {media}"), schema);
    let error = validator.iter_errors(body).next()?;
    Some(format!("{status}: {error} at {} in {body:#}", error.instance_path()))
}

fn validator(name: &str, schema: &Value) -> Arc<Validator> {
    if let Some(made) = VALIDATORS.lock().unwrap().get(name) {
        return Arc::clone(made);
    }
    let whole = json!({"allOf": [schema], "components": {"schemas": DOCUMENT["components"]["schemas"]}});
    let made = Arc::new(jsonschema::options().should_validate_formats(true).build(&whole).unwrap());
    VALIDATORS.lock().unwrap().insert(name.to_owned(), Arc::clone(&made));
    made
}
