//! The calls of an assistant message, and the column they are kept in.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::HistoryCall;

#[derive(Deserialize)]
struct Kept<'a> {
    id: String,
    name: String,
    #[serde(borrow)]
    args: &'a RawValue,
}

impl HistoryCall {
    /// The arguments, where they are the object a tool takes.
    pub(super) fn object(&self) -> Option<Value> {
        serde_json::from_str::<Value>(&self.arguments).ok().filter(Value::is_object)
    }

    /// Whether both ask for the same, however it is spelled.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        let same = || self.object().is_some_and(|one| Some(one) == other.object());
        self.name == other.name && (self.arguments == other.arguments || same())
    }

    /// Reads the column. Arguments that were no JSON are kept there as a JSON string.
    pub fn of_column(text: &str) -> Option<Vec<Self>> {
        let kept: Vec<Kept<'_>> = serde_json::from_str(text).ok()?;
        let call = |call: Kept<'_>| {
            let raw = call.args.get();
            let arguments = if raw.starts_with('"') { serde_json::from_str(raw).ok() } else { None };
            Self { id: call.id, name: call.name, arguments: arguments.unwrap_or_else(|| raw.to_owned()) }
        };
        Some(kept.into_iter().map(call).collect())
    }
}

/// The column: `[{id, name, args}]`, with arguments spliced in as they are; a JSON string where they are no JSON.
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

/// Arguments as wires send them: text as a rule, an object from some servers, nothing where there are none.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
