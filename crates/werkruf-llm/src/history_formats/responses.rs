//! Items of the Responses API. The text and calls of one answer are several items there and one message here.

use serde_json::{Value, json};

use super::pairs::Pairing;
use super::{FormatFault, HistoryCall, ResultStatus, Role, StoredMessage, calls, content, text_at};

const METADATA_KEY: &str = "responses";

pub(super) fn read(values: &[Value], new_id: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    let mut pairing = Pairing::new(new_id);
    let mut messages = Vec::new();
    let mut rest = values;
    while !rest.is_empty() {
        let at = values.len() - rest.len();
        let (items, later) = rest.split_at(group(rest));
        rest = later;
        let mut message = parse(items).map_err(|reason| FormatFault::at(at, reason))?;
        pairing.assign_ids(&mut message);
        if from_columns(&message) != items {
            message.metadata.insert(METADATA_KEY.to_owned(), items.into());
        }
        messages.push(message);
    }
    Ok(messages)
}

/// The original items if they still match the columns; else items from the columns.
pub(super) fn write(message: &StoredMessage) -> Vec<Value> {
    let original = message.metadata.get(METADATA_KEY).and_then(Value::as_array);
    let original = original.filter(|items| parse(items).is_ok_and(|parsed| parsed.has_same_content(message)));
    original.cloned().unwrap_or_else(|| from_columns(message))
}

/// The role of an item in a history.
#[derive(PartialEq, Eq)]
enum Kind {
    /// A message that is not from the assistant.
    Input,
    /// The result of a call.
    Result,
    /// Text of the assistant.
    AssistantText,
    /// A call that the API client must run.
    Call,
    /// Other actions of the assistant or its provider: reasoning, searches, calls that the provider ran.
    Other,
}

fn kind(item: &Value) -> Kind {
    match item["type"].as_str() {
        None | Some("message") if item["role"] == "assistant" => Kind::AssistantText,
        None | Some("message") => Kind::Input,
        Some("function_call" | "custom_tool_call") => Kind::Call,
        Some("function_call_output" | "custom_tool_call_output") => Kind::Result,
        Some(_) => Kind::Other,
    }
}

/// How many of these items form one message: the items that lead to a text, the text, and the calls after it.
fn group(items: &[Value]) -> usize {
    let mut has_text = false;
    let mut has_call = false;
    for (at, item) in items.iter().enumerate() {
        match kind(item) {
            Kind::Input | Kind::Result => return at.max(1),
            Kind::AssistantText if has_text || has_call => return at,
            Kind::AssistantText => has_text = true,
            Kind::Call => has_call = true,
            // After a text, such an item leads to the next text; between calls, it leads to the next call.
            Kind::Other if has_text && !has_call => return at,
            Kind::Other => {}
        }
    }
    items.len()
}

fn parse(items: &[Value]) -> Result<StoredMessage, String> {
    match items {
        [item] if kind(item) == Kind::Input => input(item),
        [item] if kind(item) == Kind::Result => result(item),
        _ => answer(items),
    }
}

fn input(item: &Value) -> Result<StoredMessage, String> {
    let role = match item["role"].as_str() {
        Some("developer") => Role::System,
        Some(role) => Role::parse(role).ok_or_else(|| format!("the role {role} is unknown"))?,
        None => return Err("is not an item; it has neither type nor role".to_owned()),
    };
    let (text, parts) = content::split(item.get("content"));
    let mut message = StoredMessage::text(role, text);
    content::store_parts(&mut message.metadata, parts.as_ref().map(content::from_items));
    Ok(message)
}

fn result(item: &Value) -> Result<StoredMessage, String> {
    let object = item.as_object().ok_or("is not an item")?;
    let (text, parts) = content::split(object.get("output"));
    let mut message = StoredMessage::text(Role::Tool, text);
    content::store_parts(&mut message.metadata, parts.as_ref().map(content::from_items));
    message.call_id = text_at(object, "call_id").map(str::to_owned);
    message.status = Some(ResultStatus::Success);
    Ok(message)
}

fn answer(items: &[Value]) -> Result<StoredMessage, String> {
    let mut message = StoredMessage::text(Role::Assistant, "");
    for item in items {
        let object = item.as_object().ok_or("is not an item")?;
        match kind(item) {
            Kind::AssistantText => message.content.push_str(&content::split(object.get("content")).0),
            Kind::Call => {
                let text = |name: &str| text_at(object, name).unwrap_or_default().to_owned();
                let arguments = match object.get("input") {
                    input @ Some(_) if item["type"] == "custom_tool_call" => calls::custom_arguments(input),
                    input => calls::arguments(object.get("arguments").or(input)),
                };
                message.calls.push(HistoryCall { id: text("call_id"), name: text("name"), arguments });
            }
            Kind::Input | Kind::Result | Kind::Other => {}
        }
    }
    Ok(message)
}

fn from_columns(message: &StoredMessage) -> Vec<Value> {
    let parts = content::parts(message);
    match message.role {
        Role::User | Role::System => {
            let content = parts.map_or_else(|| Value::from(message.content.as_str()), |parts| content::to_items(parts, "input_text"));
            vec![json!({"type": "message", "role": message.role.as_str(), "content": content})]
        }
        Role::Tool => {
            let output = parts.map_or_else(|| Value::from(message.content.as_str()), |parts| content::to_items(parts, "input_text"));
            vec![json!({"type": "function_call_output", "call_id": message.call_id, "output": output})]
        }
        Role::Assistant => {
            let annotations = message.metadata.get("annotations").filter(|list| list.is_array()).cloned().unwrap_or_else(|| json!([]));
            let text = || json!([{"type": "output_text", "text": message.content, "annotations": annotations}]);
            let content = parts.map_or_else(text, |parts| content::to_items(parts, "output_text"));
            let message_item = json!({"type": "message", "role": "assistant", "content": content});
            let call =
                |call: &HistoryCall| json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments});
            let calls_only = message.content.is_empty() && parts.is_none() && !message.calls.is_empty();
            (!calls_only).then_some(message_item).into_iter().chain(message.calls.iter().map(call)).collect()
        }
    }
}
