//! Turns the arguments that a model wrote into arguments that a tool can run: parsed, coerced where nothing is lost, validated.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use werkruf_contract::{ErrorCode, Failure, Violation};

use crate::registry::Entry;

const MAX_BYTES: usize = 256 * 1024;
/// A model does not need more violations, and each may quote the value it is about.
const MAX_VIOLATIONS: usize = 8;
const MAX_MESSAGE: usize = 300;

/// One coercion, as the row keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repair {
    /// JSON pointer.
    pub path: String,
    pub from: Value,
    pub to: Value,
    /// Which rule allowed it.
    pub rule: String,
}

/// Arguments ready to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) args: Value,
    pub(crate) repairs: Vec<Repair>,
}

/// Parses, repairs and validates. The failure's message is for the model.
pub(crate) fn parse(raw: &str, entry: &Entry) -> Result<Parsed, Failure> {
    if raw.len() > MAX_BYTES {
        return Err(Failure::validation(
            ErrorCode::InvalidArguments,
            format!("The arguments have {} bytes; {MAX_BYTES} are allowed.", raw.len()),
        ));
    }
    let mut repairs = Vec::new();
    let text = if raw.trim().is_empty() { "{}" } else { raw };
    let mut value: Value = serde_json::from_str(text).map_err(|error| {
        Failure::validation(ErrorCode::InvalidArguments, format!("The arguments are not valid JSON ({error}). Send one JSON object."))
    })?;
    if let Some(inner) = json_inside(&value).filter(Value::is_object) {
        note(&mut repairs, "", &value, &inner, "json_in_string");
        value = inner;
    }
    check(value, repairs, entry)
}

/// The same for arguments that came as JSON already.
pub(crate) fn check(mut value: Value, mut repairs: Vec<Repair>, entry: &Entry) -> Result<Parsed, Failure> {
    if !value.is_object() {
        return Err(Failure::validation(ErrorCode::InvalidArguments, "The arguments must be one JSON object."));
    }
    coerce(entry.parameters(), &mut value, &mut String::new(), &mut repairs);
    if !entry.shape.fits(&value) {
        return Err(refused(&entry.shape.violations(&value)));
    }
    let args = entry.tool.normalize(value).map_err(|violations| refused(&violations))?;
    Ok(Parsed { args, repairs })
}

fn refused(violations: &[Violation]) -> Failure {
    let kept: Vec<Violation> = violations.iter().take(MAX_VIOLATIONS).map(|v| Violation::new(v.path.clone(), cut(&v.message))).collect();
    let lines: Vec<String> =
        kept.iter().map(|v| if v.path.is_empty() { v.message.clone() } else { format!("{}: {}", v.path, v.message) }).collect();
    let mut details = Map::new();
    details.insert("violations".to_owned(), serde_json::to_value(&kept).unwrap_or(Value::Null));
    Failure::validation(ErrorCode::InvalidArguments, format!("The arguments do not fit the tool's schema: {}", lines.join("; ")))
        .with_details(details)
}

fn cut(message: &str) -> String {
    if message.len() <= MAX_MESSAGE { message.to_owned() } else { message.chars().take(MAX_MESSAGE).chain("…".chars()).collect() }
}

fn note(repairs: &mut Vec<Repair>, path: &str, from: &Value, to: &Value, rule: &str) {
    repairs.push(Repair { path: path.to_owned(), from: from.clone(), to: to.clone(), rule: rule.to_owned() });
}

fn json_inside(value: &Value) -> Option<Value> {
    serde_json::from_str(value.as_str()?).ok()
}

/// Descends value and schema together and repairs what can be repaired without loss.
fn coerce(schema: &Value, value: &mut Value, path: &mut String, repairs: &mut Vec<Repair>) {
    let Some(schema) = schema.as_object() else { return };
    if let Some(option) = only_real_option(schema) {
        if !value.is_null() {
            coerce(option, value, path, repairs);
        }
        return;
    }
    if let Some((repaired, rule)) = repair(schema, value) {
        note(repairs, path, value, &repaired, rule);
        *value = repaired;
    }
    match value {
        Value::Object(fields) => {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
            // In strict mode every field must be sent: null is how a model leaves an optional one out.
            fields
                .retain(|name, field| !field.is_null() || !properties.get(name).is_some_and(|p| is_optional_and_not_null(schema, name, p)));
            for (name, field) in fields {
                if let Some(property) = properties.get(name) {
                    descend(property, field, name, path, repairs);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_schema) = schema.get("items") {
                for (at, item) in items.iter_mut().enumerate() {
                    descend(item_schema, item, &at.to_string(), path, repairs);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_optional_and_not_null(schema: &Map<String, Value>, name: &str, property: &Value) -> bool {
    let required = schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|n| n == name));
    let kinds = property.get("type");
    let takes_null = match kinds {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        // A property without a type takes any value, also null.
        _ => true,
    };
    !required && !takes_null
}

fn descend(schema: &Value, value: &mut Value, name: &str, path: &mut String, repairs: &mut Vec<Repair>) {
    let length = path.len();
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
    coerce(schema, value, path, repairs);
    path.truncate(length);
}

/// `anyOf [X, null]` is how an optional X is spelled.
fn only_real_option(schema: &Map<String, Value>) -> Option<&Value> {
    let options = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
    let mut real = options.iter().filter(|option| option.get("type").and_then(Value::as_str) != Some("null"));
    let first = real.next()?;
    real.next().is_none().then_some(first)
}

fn repair(schema: &Map<String, Value>, value: &Value) -> Option<(Value, &'static str)> {
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        return enum_case(options, value);
    }
    let wanted = |kind: &str| match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(many)) => many.iter().any(|k| k == kind),
        _ => false,
    };
    match value {
        Value::String(text) if !wanted("string") => from_string(text, &wanted),
        Value::Number(number) => {
            if wanted("integer") && !number.is_i64() && !number.is_u64() {
                return whole(number.as_f64()?).map(|repaired| (repaired, "whole_number"));
            }
            (wanted("string") && !wanted("number") && !wanted("integer")).then(|| (Value::String(number.to_string()), "number_to_string"))
        }
        Value::Bool(flag) => (wanted("string") && !wanted("boolean")).then(|| (Value::String(flag.to_string()), "boolean_to_string")),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn enum_case(options: &[Value], value: &Value) -> Option<(Value, &'static str)> {
    let text = value.as_str()?;
    if options.contains(value) {
        return None;
    }
    let mut alike = options.iter().filter(|option| option.as_str().is_some_and(|o| o.eq_ignore_ascii_case(text.trim())));
    let only = alike.next()?;
    alike.next().is_none().then(|| (only.clone(), "enum_case"))
}

fn from_string(text: &str, wanted: &impl Fn(&str) -> bool) -> Option<(Value, &'static str)> {
    let trimmed = text.trim();
    if (wanted("integer") || wanted("number"))
        && let Ok(whole) = trimmed.parse::<i64>()
    {
        return Some((Value::from(whole), "string_to_number"));
    }
    if wanted("number")
        && let Some(number) = trimmed.parse::<f64>().ok().and_then(serde_json::Number::from_f64)
    {
        return Some((Value::Number(number), "string_to_number"));
    }
    if wanted("integer")
        && let Some(repaired) = trimmed.parse::<f64>().ok().and_then(whole)
    {
        return Some((repaired, "string_to_number"));
    }
    if wanted("boolean")
        && let Some(flag) = match trimmed.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    {
        return Some((Value::Bool(flag), "string_to_boolean"));
    }
    let inside: Value = serde_json::from_str(trimmed).ok()?;
    ((wanted("array") && inside.is_array()) || (wanted("object") && inside.is_object())).then_some((inside, "json_in_string"))
}

fn whole(number: f64) -> Option<Value> {
    // Beyond 2^53 a float does not name one integer, so no coercion is lossless.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > EXACT {
        return None;
    }
    format!("{number:.0}").parse::<i64>().ok().map(Value::from)
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
