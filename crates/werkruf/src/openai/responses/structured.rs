//! Answers that are not plain text: JSON, of which a client gets only the last step, and refusals.

use serde_json::{Value, json};

use super::echo::RequestEcho;
use super::object::{ItemStatus, ResponseBase};

impl RequestEcho {
    /// Whether the request asks for JSON. Then only the text of the last step is the answer.
    pub(crate) fn asks_for_json(&self) -> bool {
        let format = self.options.get("text").map(|text| &text["format"]["type"]);
        format.is_some_and(|kind| matches!(kind.as_str(), Some("json_object" | "json_schema")))
    }
}

impl ResponseBase {
    /// A message item whose only content is a refusal. Without a text it is in progress.
    pub(crate) fn refusal(&self, index: usize, text: Option<&str>) -> Value {
        let status = if text.is_some() { ItemStatus::Completed } else { ItemStatus::InProgress };
        let mut item = self.message(index, None, status);
        item["content"] = text.map(refusal_part).into_iter().collect();
        item
    }
}

/// The content part with a refusal.
pub(crate) fn refusal_part(text: &str) -> Value {
    json!({"type": "refusal", "refusal": text})
}
