//! `POST /v1/responses/compact`: the model summarises a conversation, and the client continues from the summary in place of the messages.
//!
//! The summary is made of what the client has sent and received. Results of the server's own tools are left out: text of strangers would
//! come back as the client's own.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::HeaderMap;
use serde_json::{Value, json};
use werkruf_contract::{Deadline, TextRequest};
use werkruf_llm::history_formats::{HistoryFormat, Role, StoredMessage, read};
use werkruf_runtime::{ClientRequest, SUMMARY_PROMPT};

use super::object::response_id;
use super::previous::stored;
use super::references;
use super::request::{FIELDS, Request};
use super::summary::sealed;
use crate::api::policy::{Authenticated, Policy};
use crate::api::{ApiError, ApiState, body, history};
use crate::identity::Identity;
use crate::openai::failure::failed_request;
use crate::openai::{model, start};
use crate::routing::{self, ApiRouter, routes};

const TIME: Duration = Duration::from_secs(120);
/// The most bytes of one message, and of all messages, in the text that is summarised.
const MESSAGE_BYTES: usize = 8 * 1024;
const RECORD_BYTES: usize = 512 * 1024;

pub(super) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(compact)))
}

/// Summarises a conversation. The output is an item of the type `compaction`, to be sent as input in place of the messages.
#[routing::path(post, path = "/v1/responses/compact", operation_id = "compact_response", tag = "openai",
    request_body(content = Object, description = "`model` (required), `input`, `previous_response_id` and `instructions`, as OpenAI describes them."),
    responses((status = 200, body = Object, description = "A compacted response."), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
async fn compact(
    State(api): State<Arc<ApiState>>,
    identity: Authenticated,
    headers: HeaderMap,
    body: body::RequestBody,
) -> Result<Json<Value>, ApiError> {
    let (_raw, fields) = start::read_fields(&api, &identity, &headers, body, &FIELDS).await?;
    let Authenticated(identity) = identity;
    let mut request = Request::read(fields)?;
    if request.echo.model.is_empty() {
        return Err(ApiError::invalid("The field model is missing; name an assistant.").param("model"));
    }
    let mut messages = earlier(&api, &identity, request.echo.previous_response_id.as_deref()).await?;
    let items = references::resolve(&api.app, &identity, std::mem::take(&mut request.items)).await?;
    messages.extend(parsed(&api, HistoryFormat::Responses, &items)?);
    if messages.is_empty() {
        return Err(ApiError::invalid("There is no message to summarise; send input or previous_response_id.").param("input"));
    }
    let caller = identity.caller()?;
    let setup = api.app.runtime.setup();
    let assistant = model::chosen(&setup, &caller.principal, Some(&request.echo.model)).map_or("default", |assistant| &assistant.name);
    let system = match request.echo.instructions_text() {
        Some(instructions) => format!("{SUMMARY_PROMPT}\n\n{instructions}"),
        None => SUMMARY_PROMPT.to_owned(),
    };
    let text = TextRequest { system, messages: vec![record(&messages)], temperature: None, locale: caller.principal.locale.clone() };
    let answer = api.app.runtime.write_text(&caller, assistant, text, Deadline::after(TIME)).await.map_err(failed_request)?;
    let (id, (input, output)) = (api.app.clock.new_id(), answer.tokens.unwrap_or_default());
    Ok(Json(json!({
        "id": response_id(id),
        "object": "response.compaction",
        "created_at": api.app.clock.now().as_second(),
        "output": [{"id": format!("cmp_{}", id.simple()), "type": "compaction", "encrypted_content": sealed(answer.text.trim())}],
        "usage": {
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        },
    })))
}

/// The messages up to an earlier response, as its client knows them.
async fn earlier(api: &ApiState, identity: &Identity, id: Option<&str>) -> Result<Vec<StoredMessage>, ApiError> {
    let Some(id) = id else { return Ok(Vec::new()) };
    let stored = stored(&api.app, identity, id).await?;
    let (tenant_id, conversation_id) = (identity.tenant_id, stored.base.conversation_id);
    let first = api.app.clients().first_client_request(tenant_id, conversation_id).await?;
    let first: Option<ClientRequest> = first.and_then(|text| serde_json::from_str(&text).ok());
    let mut messages = parsed(api, HistoryFormat::Openai, &first.map(|first| first.history).unwrap_or_default())?;
    let mut rows = api.app.turns().history(tenant_id, conversation_id).await?;
    rows.retain(|row| row.role != "tool" && row.turn_id.is_none_or(|turn_id| turn_id <= stored.turn.id));
    messages.extend(rows.iter().map(history::stored).filter(|message| !message.content.is_empty()));
    Ok(messages)
}

fn parsed(api: &ApiState, format: HistoryFormat, values: &[Value]) -> Result<Vec<StoredMessage>, ApiError> {
    let messages = read(format, values, &mut || format!("call_{}", api.app.clock.new_id().simple()));
    messages.map_err(|fault| ApiError::invalid(format!("The message at {} {}.", fault.path, fault.message)))
}

/// The text to summarise. The oldest messages are left out first.
fn record(messages: &[StoredMessage]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut left = RECORD_BYTES;
    for line in messages.iter().rev().map(line) {
        if line.len() > left {
            lines.push("(older messages are left out)".to_owned());
            break;
        }
        left -= line.len();
        lines.push(line);
    }
    lines.reverse();
    lines.join("\n\n")
}

fn line(message: &StoredMessage) -> String {
    let who = match message.role {
        Role::User => "Person",
        Role::Assistant => "Assistant",
        Role::Tool => "Result",
        Role::System => "Instruction",
    };
    let calls: String = message.calls.iter().map(|call| format!(" [{} {}]", call.name, call.arguments)).collect();
    let mut text = format!("{who}: {}{calls}", message.content);
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use werkruf_llm::history_formats::{Role, StoredMessage};

    use super::{MESSAGE_BYTES, RECORD_BYTES, record};

    #[test]
    fn a_record_is_bounded_and_keeps_the_newest() {
        let long: Vec<StoredMessage> =
            (0..200).map(|n| StoredMessage::text(Role::User, format!("{n} {}", "ä".repeat(MESSAGE_BYTES)))).collect();
        let text = record(&long);
        assert!(text.len() < RECORD_BYTES + 1024 && text.starts_with("(older messages are left out)"), "{}", text.len());
        assert!(text.contains("Person: 199 ") && !text.contains("Person: 0 "));
        assert_eq!(record(&[StoredMessage::text(Role::Assistant, "Hi.")]), "Assistant: Hi.");
    }
}
