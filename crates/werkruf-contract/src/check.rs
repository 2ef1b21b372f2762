//! Validates a JSON value against a named envelope of the tool contract and lists each violation with its path.

use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use crate::{Shape, ToolContext, ToolError, ToolErrorDetail, ToolErrorMeta, ToolErrorType, ToolOutput, ToolResult, ToolResultMeta};

/// The envelope names, in the order in which seed 002 introduces them.
pub const ENVELOPES: [&str; 8] =
    ["ToolContext", "ToolResultMeta", "ToolResult", "ToolErrorMeta", "ToolErrorDetail", "ToolError", "ToolErrorType", "ToolOutput"];

/// One violation; `path` is a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub path: String,
    pub message: String,
}

impl Violation {
    /// A violation at this path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// The JSON Schema of an envelope, with examples; `None` for an unknown name.
pub fn schema_of(name: &str) -> Option<Value> {
    let generator = || SchemaSettings::draft2020_12().into_generator();
    let schema = match name {
        "ToolContext" => generator().into_root_schema_for::<ToolContext>(),
        "ToolResultMeta" => generator().into_root_schema_for::<ToolResultMeta>(),
        "ToolResult" => generator().into_root_schema_for::<ToolResult>(),
        "ToolErrorMeta" => generator().into_root_schema_for::<ToolErrorMeta>(),
        "ToolErrorDetail" => generator().into_root_schema_for::<ToolErrorDetail>(),
        "ToolError" => generator().into_root_schema_for::<ToolError>(),
        "ToolErrorType" => generator().into_root_schema_for::<ToolErrorType>(),
        "ToolOutput" => generator().into_root_schema_for::<ToolOutput>(),
        _ => return None,
    };
    Some(schema.to_value())
}

/// All violations of the named envelope. An empty list means valid, `None` an unknown name.
pub fn check(name: &str, value: &Value) -> Option<Vec<Violation>> {
    if name == "ToolOutput" {
        // The validator's message for a union would only say that neither variant fits.
        return match value.get("status").and_then(Value::as_str) {
            Some("ok") => check("ToolResult", value),
            Some("error") => check("ToolError", value),
            Some(_) | None => Some(vec![Violation::new("/status", "must be \"ok\" or \"error\"")]),
        };
    }
    let mut schema = schema_of(name)?;
    if name == "ToolContext"
        && let Some(object) = schema.as_object_mut()
    {
        object.remove("oneOf");
    }
    let mut violations = match Shape::compile(&schema) {
        Ok(shape) => shape.violations(value),
        Err(error) => vec![Violation::new("", format!("the schema itself does not compile: {error}"))],
    };
    if name == "ToolContext" {
        violations.extend(run_violation(value));
        explain_naive_time(&mut violations);
    }
    Some(violations)
}

fn run_violation(value: &Value) -> Option<Violation> {
    let set = |field: &str| value.get(field).is_some_and(|v| !v.is_null());
    match (set("run_id"), set("ingestion_run_id")) {
        (true, true) => Some(Violation::new("/ingestion_run_id", "run_id and ingestion_run_id are both set; set exactly one")),
        (false, false) => Some(Violation::new("/run_id", "neither run_id nor ingestion_run_id is set; set exactly one")),
        (true, false) | (false, true) => None,
    }
}

fn explain_naive_time(violations: &mut [Violation]) {
    for violation in violations.iter_mut().filter(|v| v.path == "/now_iso") {
        violation.message.push_str(" (a date and time with an offset, such as 2024-05-03T12:34:56Z)");
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
