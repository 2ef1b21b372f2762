//! The bodies of requests to the Graph API.

use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_runtime::OutboxBody;
use werkruf_store::OutboxRow;

use super::payload::is_phone;
use super::settings::Number;
use super::split::{PART_UNITS, shortened};

/// Limits of messages with buttons and of templates.
const BUTTON_TEXT: usize = 1024;
const BUTTON_TITLE: usize = 20;
const TEMPLATE_TEXT: usize = 1024;

/// What a button of an approval carries.
const APPROVE: &str = "approve:";
const DENY: &str = "deny:";

/// The decision that a button stands for.
pub(super) fn decision(reply_id: &str) -> Option<(Uuid, bool)> {
    let (id, approve) = match reply_id.strip_prefix(APPROVE) {
        Some(id) => (id, true),
        None => (reply_id.strip_prefix(DENY)?, false),
    };
    Some((id.parse().ok()?, approve))
}

/// The request that sends a row; `None` if the row carries nothing for WhatsApp.
pub(super) fn message(row: &OutboxRow, body: &OutboxBody, number: &Number) -> Option<Value> {
    let content = match body {
        OutboxBody::Text { text } => json!({"type": "text", "text": {"preview_url": false, "body": shortened(text, PART_UNITS)}}),
        OutboxBody::Approval { text, approval_id, approve, deny } => json!({"type": "interactive", "interactive": {
            "type": "button",
            "body": {"text": shortened(text, BUTTON_TEXT)},
            "action": {"buttons": [button(APPROVE, *approval_id, approve), button(DENY, *approval_id, deny)]},
        }}),
        OutboxBody::Template { .. } => return template(row, body, number),
        OutboxBody::Notification { .. } | OutboxBody::StaleInbound { .. } => return None,
    };
    Some(addressed(row, content))
}

fn button(decision: &str, approval_id: Uuid, title: &str) -> Value {
    json!({"type": "reply", "reply": {"id": format!("{decision}{approval_id}"), "title": shortened(title, BUTTON_TITLE)}})
}

/// The request that sends a row as a template, for a person who wrote nothing for 24 hours; `None` if the number has no template for it.
pub(super) fn template(row: &OutboxRow, body: &OutboxBody, number: &Number) -> Option<Value> {
    let (text, approval_id) = match body {
        OutboxBody::Text { text } => (text, None),
        OutboxBody::Approval { text, approval_id, .. } => (text, Some(*approval_id)),
        OutboxBody::Template { text, approval_id } => (text, *approval_id),
        OutboxBody::Notification { .. } | OutboxBody::StaleInbound { .. } => return None,
    };
    let mut components = vec![json!({"type": "body", "parameters": [{"type": "text", "text": one_line(text)}]})];
    let with_buttons = approval_id.zip(number.approval_template.as_ref());
    if let Some((id, _)) = with_buttons {
        components.extend([APPROVE, DENY].iter().enumerate().map(|(at, decision)| {
            let payload = format!("{decision}{id}");
            json!({"type": "button", "sub_type": "quick_reply", "index": at.to_string(), "parameters": [{"type": "payload", "payload": payload}]})
        }));
    }
    let name = with_buttons.map(|(_, name)| name).or(number.template.as_ref())?;
    let language = json!({"code": number.template_language});
    Some(addressed(row, json!({"type": "template", "template": {"name": name, "language": language, "components": components}})))
}

/// The same row as a template, to be stored; `None` if the number has none for it.
pub(super) fn as_template(body: &OutboxBody, number: &Number) -> Option<OutboxBody> {
    let (text, approval_id) = match body {
        OutboxBody::Text { text } => (text, None),
        OutboxBody::Approval { text, approval_id, .. } => (text, Some(*approval_id)),
        // A template that Meta refuses is not sent again.
        OutboxBody::Template { .. } | OutboxBody::Notification { .. } | OutboxBody::StaleInbound { .. } => return None,
    };
    let has_template = number.template.is_some() || (approval_id.is_some() && number.approval_template.is_some());
    has_template.then(|| OutboxBody::Template { text: text.clone(), approval_id })
}

/// A variable of a template: Meta refuses line breaks, tabs and several spaces in it.
fn one_line(text: &str) -> String {
    shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "), TEMPLATE_TEXT)
}

/// Adds the recipient, and the row's id, which delivery reports return.
fn addressed(row: &OutboxRow, mut content: Value) -> Value {
    let address = &row.recipient.address;
    content["messaging_product"] = "whatsapp".into();
    content["recipient_type"] = "individual".into();
    content[if is_phone(address) { "to" } else { "recipient" }] = address.as_str().into();
    content["biz_opaque_callback_data"] = row.id.to_string().into();
    content
}

/// The request that marks a message as read and shows that an answer is being written.
pub(super) fn read_and_typing(message_id: &str) -> Value {
    json!({"messaging_product": "whatsapp", "status": "read", "message_id": message_id, "typing_indicator": {"type": "text"}})
}
