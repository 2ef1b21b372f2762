//! What the declarations of all kinds of tools share: faults, variables, permissions, schemas.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use werkruf_contract::{Effect, Need, Shape, Violation};
use werkruf_llm::Egress;

/// An error in a declaration, and its place (a JSON pointer).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigFault {
    /// The field, such as `/url`.
    pub path: String,
    /// The error and what to write instead. Contains no secret.
    pub message: String,
}

impl ConfigFault {
    pub(crate) fn new(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}

/// Reads the environment.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn variable(name: &str, env: Variables<'_>) -> Result<String, String> {
    env(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("the environment variable {name} is not set or empty; set it before the server starts"))
}

/// Replaces `${NAME}` with environment variables. The error message states what to do.
pub fn expand(text: &str, env: Variables<'_>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("has `${` without `}`; write ${ENV_NAME}")?;
        out.push_str(before);
        out.push_str(&variable(name, env)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// A name that models accept.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits)
}

pub(crate) fn name_faults(name: &str) -> Option<ConfigFault> {
    (!is_name(name)).then(|| ConfigFault::new("/name", "use 1 to 64 letters, digits, `_` or `-`; models accept nothing else"))
}

pub(crate) fn description_fault(description: &str) -> Option<ConfigFault> {
    let message = "is missing; say in a sentence what the tool does, the model chooses by it";
    description.trim().is_empty().then(|| ConfigFault::new("/description", message))
}

pub(crate) fn approval_fault(path: &str, approval: Option<&String>) -> Option<ConfigFault> {
    let message = "is empty; name the role that approves, or leave it out";
    approval.filter(|role| role.trim().is_empty()).map(|_| ConfigFault::new(path, message))
}

/// Faults of limits that must not be zero.
pub(crate) fn zero_faults<'a>(limits: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<ConfigFault> {
    let zero = limits.into_iter().filter(|(_, value)| *value == 0);
    zero.map(|(path, _)| ConfigFault::new(path, "must be at least 1; leave it out for the default")).collect()
}

pub(crate) fn effect(path: &str, effect: &str) -> Result<Effect, ConfigFault> {
    Effect::parse(effect).ok_or_else(|| {
        let wrong = if effect.is_empty() { "is missing".to_owned() } else { format!("`{effect}` is no effect") };
        let message = format!(
            "{wrong}; write \"read\" (changes nothing), \"idempotent\" (repeatable with the same Idempotency-Key) or \"once\" (never sent twice)"
        );
        ConfigFault::new(path, message)
    })
}

/// The timeout of one attempt where the declaration names none.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;

pub(crate) fn timeout_ms(declared: Option<u64>) -> u64 {
    declared.unwrap_or(DEFAULT_TIMEOUT_MS)
}

/// The timeout of a declaration that names none, bounded by the limit for tools.
pub(crate) fn bounded_timeout(declared: Option<u64>, limit_ms: u64) -> Option<u64> {
    declared.or((limit_ms < DEFAULT_TIMEOUT_MS).then_some(limit_ms))
}

/// The default of attempts, and of equal calls in a turn.
pub(crate) const fn three() -> u32 {
    3
}

/// The default of the largest answer.
pub(crate) const fn one_mebibyte() -> u64 {
    1_048_576
}

/// Identifies a declaration.
pub(crate) fn digest(declaration: &impl Serialize) -> String {
    // A declaration has only texts and numbers, which always serialize.
    werkruf_contract::hex(&Sha256::digest(serde_json::to_vec(declaration).unwrap_or_default()))
}

/// The arguments with the schema's defaults filled in, or what is wrong with them.
pub(crate) fn normalized(mut args: Value, parameters: &Value, shape: Option<&Shape>) -> Result<Value, Vec<Violation>> {
    fill_defaults(&mut args, parameters);
    let violations = shape.map(|shape| shape.violations(&args)).unwrap_or_default();
    if violations.is_empty() { Ok(args) } else { Err(violations) }
}

/// The permission must be said, so that no tool is open to everybody by mistake.
pub(crate) fn need(path: &str, permission: Option<&String>) -> Result<Option<Need>, ConfigFault> {
    let Some(text) = permission else {
        let message = "is missing; write \"entity:entity_type:access\", or \"none\" for a tool that every person may call";
        return Err(ConfigFault::new(path, message));
    };
    if text == "none" {
        return Ok(None);
    }
    let need = Need::parse(text).ok_or_else(|| {
        let message =
            format!("`{text}` is no permission; write \"entity:entity_type:access\" with access read, write or both, or \"none\"");
        ConfigFault::new(path, message)
    })?;
    Ok(Some(need))
}

/// The address of a service. The model's arguments cannot change the host.
pub(crate) fn address(text: &str) -> Result<Url, ConfigFault> {
    if text.is_empty() {
        return Err(ConfigFault::new("/url", "is missing; write a whole address such as http://127.0.0.1:9000/tool"));
    }
    // The message does not contain the address, because the address may contain a password or a key.
    let mut url = Url::parse(text)
        .map_err(|error| ConfigFault::new("/url", format!("{error}; write a whole address such as http://127.0.0.1:9000/tool")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(ConfigFault::new("/url", "must start with http:// or https:// and name a host"));
    }
    let address = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    if address.is_some_and(Egress::never_reaches) {
        return Err(ConfigFault::new("/url", "is a link-local or metadata address, which no tool may reach"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Headers with their variables filled in. The server sets those of `reserved` itself.
pub(crate) fn header_map(headers: &BTreeMap<String, String>, reserved: &[&str], env: Variables<'_>) -> Result<HeaderMap, ConfigFault> {
    let mut map = HeaderMap::new();
    for (name, text) in headers {
        let path = format!("/headers/{name}");
        let name = HeaderName::try_from(name).map_err(|_| ConfigFault::new(&path, "is not a header name; use letters, digits and `-`"))?;
        if reserved.contains(&name.as_str()) {
            return Err(ConfigFault::new(&path, "is written by the server itself; remove it"));
        }
        let expanded = expand(text, env).map_err(|message| ConfigFault::new(&path, message))?;
        let mut value = HeaderValue::try_from(expanded)
            .map_err(|_| ConfigFault::new(&path, "holds a line break or another character that no header may have"))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}

/// The schema of `parameters`, as JSON for the model and compiled for the validation of arguments.
pub(crate) fn schema(parameters: &str) -> Result<(Value, Shape), ConfigFault> {
    let fault = |message: String| ConfigFault::new("/parameters", message);
    if parameters.is_empty() {
        return Err(fault("is missing; write a JSON Schema, such as '{\"type\": \"object\", \"properties\": {}}'".to_owned()));
    }
    let schema: Value = serde_json::from_str(parameters).map_err(|error| fault(format!("is not JSON: {error}; write a JSON Schema")))?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(fault("must be a JSON Schema whose \"type\" is \"object\"; a tool's arguments always have names".to_owned()));
    }
    let shape = Shape::compile(&schema).map_err(|error| fault(format!("is not a JSON Schema: {error}")))?;
    for (name, property) in properties(&schema) {
        // A property that does not compile by itself (a reference) is validated with the arguments.
        let (Some(default), Ok(shape)) = (property.get("default"), Shape::compile(property)) else { continue };
        if !shape.fits(default) {
            return Err(fault(format!("the default of `{name}` does not fit its own schema; correct one of them")));
        }
    }
    Ok((schema, shape))
}

/// The arguments that a schema names.
pub(crate) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Fills in the schema's defaults, here and in nested objects that are present.
pub(crate) fn fill_defaults(value: &mut Value, schema: &Value) {
    let (Some(object), Some(properties)) = (value.as_object_mut(), schema.get("properties").and_then(Value::as_object)) else { return };
    for (name, property) in properties {
        if object.get(name).is_some_and(Value::is_null) && is_optional(schema, name) && refuses_null(property) {
            // Strict function calling has no absent arguments: a model sends null for an argument that it leaves out.
            object.shift_remove(name);
        }
        fill_property(object, name, property);
    }
}

fn fill_property(object: &mut Map<String, Value>, name: &str, property: &Value) {
    if let Some(inner) = object.get_mut(name) {
        fill_defaults(inner, property);
    } else if let Some(default) = property.get("default") {
        object.insert(name.to_owned(), default.clone());
    }
}

fn is_optional(schema: &Value, name: &str) -> bool {
    !schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|n| n == name))
}

fn refuses_null(property: &Value) -> bool {
    let by_type = match property.get("type") {
        Some(Value::String(kind)) => kind != "null",
        Some(Value::Array(kinds)) => !kinds.iter().any(|kind| kind == "null"),
        _ => false,
    };
    by_type || property.get("enum").and_then(Value::as_array).is_some_and(|options| !options.contains(&Value::Null))
}
