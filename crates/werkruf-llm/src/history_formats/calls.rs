//! The calls of an assistant message, and the column in which they are stored.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::HistoryCall;

#[derive(Deserialize)]
struct ColumnCall<'a> {
    id: String,
    name: String,
    #[serde(borrow)]
    args: &'a RawValue,
}

impl HistoryCall {
    /// The arguments, if they are a JSON object.
    pub(super) fn object(&self) -> Option<Value> {
        serde_json::from_str::<Value>(&self.arguments).ok().filter(Value::is_object)
    }

    /// Whether both calls have the same name and arguments, ignoring the spelling of the JSON.
    pub(super) fn is_same_call(&self, other: &Self) -> bool {
        let same = || self.object().is_some_and(|one| Some(one) == other.object());
        self.name == other.name && (self.arguments == other.arguments || same())
    }

    /// Reads the column. Arguments that are not JSON are stored as a JSON string.
    pub fn of_column(text: &str) -> Option<Vec<Self>> {
        let original: Vec<ColumnCall<'_>> = serde_json::from_str(text).ok()?;
        let call = |call: ColumnCall<'_>| {
            let raw = call.args.get();
            let arguments = if raw.starts_with('"') { serde_json::from_str(raw).ok() } else { None };
            Self { id: call.id, name: call.name, arguments: arguments.unwrap_or_else(|| raw.to_owned()) }
        };
        Some(original.into_iter().map(call).collect())
    }
}

/// The column: `[{id, name, args}]`, with the exact arguments, or a JSON string if they are not JSON.
pub fn column(calls: &[HistoryCall]) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let one = |call: &HistoryCall| {
        let args = match serde_json::from_str::<&RawValue>(&call.arguments) {
            Ok(raw) if raw.get().starts_with(['{', '[']) && raw.get().len() == call.arguments.len() => raw.get().to_owned(),
            Ok(_) | Err(_) => quoted(&call.arguments),
        };
        format!(r#"{{"id":{},"name":{},"args":{args}}}"#, quoted(&call.id), quoted(&call.name))
    };
    format!("[{}]", calls.iter().map(one).collect::<Vec<_>>().join(","))
}

/// The arguments of a call of a custom tool, whose input is a free text. The model knows such a tool as a function with this one field.
pub(super) fn custom_arguments(input: Option<&Value>) -> String {
    json!({"input": input.and_then(Value::as_str).unwrap_or_default()}).to_string()
}

/// Arguments as APIs send them: usually text, an object from some servers, absent if there are none.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
