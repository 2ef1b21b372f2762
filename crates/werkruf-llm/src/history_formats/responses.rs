//! Items of the Responses API. What an assistant says and asks for in one answer is several items there and one message here.

use serde_json::{Value, json};

use super::pairs::Pairing;
use super::{FormatFault, HistoryCall, ResultStatus, Role, StoredMessage, calls, content, text_at};

const KEPT: &str = "responses";

pub(super) fn read(values: &[Value], fresh: &mut dyn FnMut() -> String) -> Result<Vec<StoredMessage>, FormatFault> {
    let mut pairing = Pairing::new(fresh);
    let mut messages = Vec::new();
    let mut rest = values;
    while !rest.is_empty() {
        let at = values.len() - rest.len();
        let (items, later) = rest.split_at(group(rest));
        rest = later;
        let mut message = parse(items).map_err(|reason| FormatFault::at(at, reason))?;
        pairing.settle(&mut message);
        if natural(&message) != items {
            message.metadata.insert(KEPT.to_owned(), items.into());
        }
        messages.push(message);
    }
    Ok(messages)
}

/// What was read, while it still says the same; else what the columns say.
pub(super) fn write(message: &StoredMessage) -> Vec<Value> {
    let kept = message.metadata.get(KEPT).and_then(Value::as_array);
    let kept = kept.filter(|items| parse(items).is_ok_and(|said| said.says_the_same(message)));
    kept.cloned().unwrap_or_else(|| natural(message))
}

/// What an item is to a history.
#[derive(PartialEq, Eq)]
enum Kind {
    /// A message of somebody but the assistant.
    Input,
    /// The result of a call.
    Result,
    /// Text of the assistant.
    Said,
    /// A call for somebody else to run.
    Asked,
    /// Anything the assistant or its provider did on the way: reasoning, searches, calls that were run there.
    Way,
}

fn kind(item: &Value) -> Kind {
    match item["type"].as_str() {
        None | Some("message") if item["role"] == "assistant" => Kind::Said,
        None | Some("message") => Kind::Input,
        Some("function_call" | "custom_tool_call") => Kind::Asked,
        Some("function_call_output" | "custom_tool_call_output") => Kind::Result,
        Some(_) => Kind::Way,
    }
}

/// How many of these items are one message: what leads to a text, the text, and the calls behind it.
fn group(items: &[Value]) -> usize {
    let mut seen_text = false;
    let mut seen_call = false;
    for (at, item) in items.iter().enumerate() {
        match kind(item) {
            Kind::Input | Kind::Result => return at.max(1),
            Kind::Said if seen_text || seen_call => return at,
            Kind::Said => seen_text = true,
            Kind::Asked => seen_call = true,
            // Behind a text it leads to the next one; between calls it leads to the next call.
            Kind::Way if seen_text && !seen_call => return at,
            Kind::Way => {}
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
        None => return Err("is no item; it has neither type nor role".to_owned()),
    };
    let (text, parts) = content::split(item.get("content"));
    let mut message = StoredMessage::text(role, text);
    content::keep(&mut message.metadata, parts.as_ref().map(content::from_items));
    Ok(message)
}

fn result(item: &Value) -> Result<StoredMessage, String> {
    let object = item.as_object().ok_or("is no item")?;
    let (text, parts) = content::split(object.get("output"));
    let mut message = StoredMessage::text(Role::Tool, text);
    content::keep(&mut message.metadata, parts.as_ref().map(content::from_items));
    message.call_id = text_at(object, "call_id").map(str::to_owned);
    message.status = Some(ResultStatus::Success);
    Ok(message)
}

fn answer(items: &[Value]) -> Result<StoredMessage, String> {
    let mut message = StoredMessage::text(Role::Assistant, "");
    for item in items {
        let object = item.as_object().ok_or("is no item")?;
        match kind(item) {
            Kind::Said => message.content.push_str(&content::split(object.get("content")).0),
            Kind::Asked => {
                let text = |name: &str| text_at(object, name).unwrap_or_default().to_owned();
                let arguments = calls::arguments(object.get("arguments").or_else(|| object.get("input")));
                message.calls.push(HistoryCall { id: text("call_id"), name: text("name"), arguments });
            }
            Kind::Input | Kind::Result | Kind::Way => {}
        }
    }
    Ok(message)
}

fn natural(message: &StoredMessage) -> Vec<Value> {
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
            let text = || json!([{"type": "output_text", "text": message.content, "annotations": []}]);
            let content = parts.map_or_else(text, |parts| content::to_items(parts, "output_text"));
            let said = json!({"type": "message", "role": "assistant", "content": content});
            let call =
                |call: &HistoryCall| json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments});
            let silent = message.content.is_empty() && parts.is_none() && !message.calls.is_empty();
            (!silent).then_some(said).into_iter().chain(message.calls.iter().map(call)).collect()
        }
    }
}
