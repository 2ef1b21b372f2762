//! Conversations in the formats of other programs: export with `messages?format=`, import with `POST /api/conversations`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use werkruf_contract::Uuid;
use werkruf_llm::HistoryCall;
use werkruf_llm::history_formats::{HistoryFormat, ResultStatus, Role, StoredMessage, read, write};
use werkruf_runtime::SERVER_METADATA;
use werkruf_store::{MessageRow, NewHistory, NewMessage, Order};

use super::ApiState;
use super::body::{self, Params};
use super::chat::set_conversation_header;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use crate::openai::media_urls;
use crate::openai::request_checks::refused_address;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

/// Large, because messages may contain pictures.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const MAX_MESSAGES: usize = 10_000;
const TITLE_CHARACTERS: usize = 80;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(import)))
}

/// The format that a request names; `None` is the native format.
pub(crate) fn format(name: Option<&str>) -> Result<Option<HistoryFormat>, ApiError> {
    match name {
        None | Some("native") => Ok(None),
        Some(name) => match HistoryFormat::parse(name) {
            Some(format) => Ok(Some(format)),
            None => Err(ApiError::invalid("format takes native, openai, responses or langchain.")),
        },
    }
}

/// Converts rows into a format. The order of the rows stays.
pub(crate) fn format_rows(format: HistoryFormat, rows: &[MessageRow], order: Order) -> Vec<Value> {
    // The conversion pairs calls with later results, so it needs the oldest message first.
    let mut messages: Vec<StoredMessage> = rows.iter().map(stored).collect();
    if order == Order::NewestFirst {
        messages.reverse();
    }
    let mut values = write(format, &messages);
    if order == Order::NewestFirst {
        values.reverse();
    }
    values
}

/// A row as a message of a history.
pub(crate) fn stored(row: &MessageRow) -> StoredMessage {
    StoredMessage {
        id: Some(row.id.to_string()),
        role: Role::parse(&row.role).unwrap_or(Role::User),
        content: row.content.clone(),
        calls: row.tool_calls.as_deref().and_then(HistoryCall::of_column).unwrap_or_default(),
        call_id: row.tool_call_id.clone(),
        tool_name: row.tool_name.clone(),
        status: row.status.as_deref().and_then(ResultStatus::parse),
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
    }
}

/// A conversation of another program.
#[derive(Debug, Deserialize, ToSchema)]
struct HistoryImport {
    /// `openai`, `responses` or `langchain`; may be in the query instead.
    #[serde(default)]
    format: Option<String>,
    /// Messages or items of that format, oldest first.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    assistant: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ImportQuery {
    /// `openai`, `responses` or `langchain`; may be in the body instead.
    format: Option<String>,
}

/// The imported conversation.
#[derive(Debug, Serialize, ToSchema)]
struct HistoryImported {
    id: Uuid,
    messages: usize,
}

/// Imports a conversation of another program. `POST /api/chat` can continue it.
#[routing::path(post, path = "/api/conversations", operation_id = "import_conversation", tag = "conversations", params(ImportQuery),
    request_body = HistoryImport, responses((status = 201, body = HistoryImported), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn import(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<ImportQuery>,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let caller = identity.caller()?;
    let raw = body::bytes_up_to(body, MAX_BODY_BYTES).await?;
    let request: HistoryImport = body::json_with_values(&raw)?;
    let format = import_format(query.format.as_deref(), request.format.as_deref())?;
    if request.messages.len() > MAX_MESSAGES {
        return Err(ApiError::invalid(format!("A conversation has at most {MAX_MESSAGES} messages.")));
    }
    if let Some(address) = media_urls::refused(&request.messages) {
        return Err(refused_address(address));
    }
    let clock = api.app.clock.clone();
    let messages = read(format, &request.messages, &mut || format!("call_{}", clock.new_id())).map_err(|fault| {
        let fault = json!([{"path": format!("/messages{}", fault.path), "message": fault.message}]);
        ApiError::invalid("The messages cannot be read; details say where.").details(fault)
    })?;
    let title = request.title.unwrap_or_else(|| title(&messages));
    let history = NewHistory {
        tenant_id: identity.tenant_id,
        id: clock.new_id(),
        user_id: caller.principal.user_id.clone(),
        channel: "web".to_owned(),
        assistant: request.assistant.unwrap_or_else(|| "default".to_owned()),
        title,
        messages: messages.iter().map(|message| row(clock.new_id(), message)).collect(),
        now: clock.now(),
    };
    let created = api.app.client_store.put_history(history).await?;
    let mut response = (StatusCode::CREATED, Json(HistoryImported { id: created.id, messages: messages.len() })).into_response();
    set_conversation_header(&mut response, Some(created.id));
    if let Ok(place) = HeaderValue::from_str(&format!("/api/conversations/{}", created.id)) {
        response.headers_mut().insert(http::header::LOCATION, place);
    }
    Ok(response)
}

/// The format of an import, from its query or its body.
fn import_format(query: Option<&str>, body: Option<&str>) -> Result<HistoryFormat, ApiError> {
    let name = match (query, body) {
        (Some(query), Some(body)) if query != body => {
            return Err(ApiError::invalid("format differs between the query and the body; name one format."));
        }
        (query, body) => query.or(body).ok_or_else(|| ApiError::invalid("format is missing; name openai, responses or langchain."))?,
    };
    let native = || ApiError::invalid("format takes openai, responses or langchain; native messages are created by turns only.");
    format(Some(name))?.ok_or_else(native)
}

/// The beginning of the first message of the user.
pub(crate) fn title(messages: &[StoredMessage]) -> String {
    let first = messages.iter().find(|message| message.role == Role::User);
    first.map(|message| message.content.chars().take(TITLE_CHARACTERS).collect()).unwrap_or_default()
}

/// A message of a history as a row.
pub(crate) fn row(id: Uuid, message: &StoredMessage) -> NewMessage {
    let mut metadata: Map<String, Value> = message.metadata.clone();
    metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
    NewMessage {
        tool_calls: message.tool_calls_column(),
        tool_call_id: message.call_id.clone(),
        tool_name: message.tool_name.clone(),
        status: message.status.map(ResultStatus::as_str),
        metadata: (!metadata.is_empty()).then(|| json!(metadata).to_string()),
        ..NewMessage::new(id, message.role.as_str(), message.content.as_str())
    }
}
