//! Conversations, their messages and their session state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_store::{ConversationFilter, ConversationRow, MessageRow, Order, Page};

use super::body::{Params, PathParam};
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::{Iso, json_column, raw};
use super::{ApiState, body, history, lookup};
use crate::identity::Visibility;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Read.on(routes!(list)))
        .routes(Policy::Read.on(routes!(show)))
        .routes(Policy::Change.on(routes!(delete)))
        .routes(Policy::Read.on(routes!(messages)))
        .routes(Policy::Read.on(routes!(state)))
        .routes(Policy::Change.on(routes!(patch_state)))
}

#[derive(Serialize, ToSchema)]
#[schema(as = Conversation)]
struct ConversationView<'a> {
    id: Uuid,
    tenant_id: Uuid,
    user_id: &'a str,
    channel: &'a str,
    assistant: &'a str,
    title: &'a str,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    state: Option<&'a werkruf_contract::State>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Iso,
}

impl<'a> From<&'a ConversationRow> for ConversationView<'a> {
    fn from(row: &'a ConversationRow) -> Self {
        Self {
            id: row.id,
            tenant_id: row.tenant_id,
            user_id: &row.user_id,
            channel: &row.channel,
            assistant: &row.assistant,
            title: &row.title,
            state: None,
            created_at: Iso(row.created_at),
            updated_at: Iso(row.updated_at),
        }
    }
}

/// A message with every column.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageView<'a> {
    id: Uuid,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    conversation_id: Uuid,
    content: &'a str,
    /// `user`, `assistant`, `tool` or `system`.
    role: &'a str,
    /// `[{id, name, args}]`
    #[schema(value_type = Option<Vec<Object>>)]
    tool_calls: Option<&'a RawValue>,
    tool_call_id: Option<&'a str>,
    tool_name: Option<&'a str>,
    /// `pending`, `success` or `error`.
    status: Option<&'a str>,
    #[schema(value_type = Object)]
    metadata: Option<BTreeMap<String, &'a RawValue>>,
    /// Null while the message is queued.
    seq: Option<i64>,
    turn_id: Option<Uuid>,
    tokens: Option<i64>,
}

/// What only the provider may read again stays here: arguments in it are not redacted.
fn metadata(column: &str) -> Option<BTreeMap<String, &RawValue>> {
    let mut fields: BTreeMap<String, &RawValue> = json_column(column)?;
    fields.remove("carry");
    Some(fields)
}

impl<'a> From<&'a MessageRow> for MessageView<'a> {
    fn from(row: &'a MessageRow) -> Self {
        Self {
            id: row.id,
            created_at: Iso(row.created_at),
            conversation_id: row.conversation_id,
            content: &row.content,
            role: &row.role,
            tool_calls: raw(row.tool_calls.as_deref()),
            tool_call_id: row.tool_call_id.as_deref(),
            tool_name: row.tool_name.as_deref(),
            status: row.status.as_deref(),
            metadata: metadata(&row.metadata),
            seq: row.seq,
            turn_id: row.turn_id,
            tokens: row.tokens,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct UserQuery {
    /// Lists only the conversations of this user. Those of other users need scope admin.
    user_id: Option<String>,
}

/// Selects a page of conversations.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ConversationPage {
    /// The last id of the page before.
    after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// `asc` (oldest first), `desc`, or `recent` (last used first, by `updated_at`). With `recent`, a conversation that is used between two
    /// pages moves to the front.
    order: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ConversationList<'a> {
    conversations: Vec<ConversationView<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The caller's own conversations; all conversations of the tenant with scope admin.
#[routing::path(get, path = "/api/conversations", operation_id = "list_conversations", tag = "conversations", params(UserQuery, ConversationPage),
    responses((status = 200, body = ConversationList)))]
async fn list(
    ApiCaller { api, identity }: ApiCaller,
    Params(person): Params<UserQuery>,
    Params(ConversationPage { after, limit, order }): Params<ConversationPage>,
) -> Result<Response, ApiError> {
    let by_use = order.as_deref() == Some("recent");
    let page = page::page(after.as_deref(), limit.as_deref(), order.as_deref().filter(|_| !by_use))?;
    let user_id = match identity.visibility()? {
        Visibility::All => person.user_id,
        Visibility::Own(own) if person.user_id.as_ref().is_none_or(|named| *named == own) => Some(own),
        Visibility::Own(_) => return Err(ApiError::forbidden("forbidden", "Conversations of other users need scope admin.")),
    };
    let filter = ConversationFilter { user_id, last_used_first: by_use };
    let rows = api.app.records().conversations(identity.tenant_id, filter, page).await?;
    let conversations = rows.iter().map(ConversationView::from).collect();
    Ok(Json(ConversationList { conversations, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// One conversation.
#[routing::path(get, path = "/api/conversations/{id}", operation_id = "get_conversation", tag = "conversations", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = ConversationView), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::conversation(&api, &identity, &id).await?;
    Ok(Json(ConversationView { state: Some(&row.state), ..ConversationView::from(&row) }).into_response())
}

/// Deletes a conversation with its messages, turns, calls and events.
#[routing::path(delete, path = "/api/conversations/{id}", operation_id = "delete_conversation", tag = "conversations", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`turn_running`")))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    let row = lookup::conversation(&api, &identity, &id).await?;
    if api.app.turns().delete_conversation(identity.tenant_id, row.id).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::not_found("conversation"))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FormatQuery {
    /// `native` (every column), `openai` (chat messages), `responses` (items) or `langchain` (the input of `messages_from_dict`).
    format: Option<String>,
}

/// A message as the requested format has it.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum AnyMessage<'a> {
    Native(MessageView<'a>),
    Formatted(FormattedMessage),
}

/// A message or item of another program's format.
#[derive(Serialize, ToSchema)]
#[schema(value_type = Object)]
struct FormattedMessage(Value);

#[derive(Serialize, ToSchema)]
struct MessageList<'a> {
    messages: Vec<AnyMessage<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The messages of a conversation, with every column or in the format of another program.
#[routing::path(get, path = "/api/conversations/{id}/messages", operation_id = "list_messages", tag = "conversations",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it."), FormatQuery, PageQuery),
    responses((status = 200, body = MessageList),
        (status = 404, body = ref("#/components/schemas/Error")),
        (status = 410, body = ref("#/components/schemas/Error"), description = "The message `after` was deleted; `details.first_seq` is the first message that exists.")))]
async fn messages(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    Params(format): Params<FormatQuery>,
    Params(query): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let page = query.page()?;
    let format = history::format(format.format.as_deref())?;
    let conversation = lookup::conversation(&api, &identity, &id).await?;
    let rows = api.app.records().messages(identity.tenant_id, conversation.id, page).await?;
    check_retained(&api, &conversation, page, &rows).await?;
    let next_after = page::next_after(&rows, &page, |row| row.id);
    let messages = match format {
        Some(format) => {
            history::format_rows(format, &rows, page.order).into_iter().map(|row| AnyMessage::Formatted(FormattedMessage(row))).collect()
        }
        None => rows.iter().map(|row| AnyMessage::Native(row.into())).collect(),
    };
    Ok(Json(MessageList { messages, next_after }).into_response())
}

/// Fails with 410 if the message `after` was deleted. An empty page would look like the end of the list, although the client missed
/// the messages that were deleted with it.
async fn check_retained(api: &ApiState, conversation: &ConversationRow, page: Page, rows: &[MessageRow]) -> Result<(), ApiError> {
    let Some(after) = page.after.filter(|_| rows.is_empty() && page.order == Order::OldestFirst) else { return Ok(()) };
    let end = async |order| {
        let page = Page::of(1, order);
        let rows = api.app.records().messages(conversation.tenant_id, conversation.id, page).await?;
        Ok::<_, ApiError>(rows.into_iter().next())
    };
    if end(Order::NewestFirst).await?.is_some_and(|last| last.id == after) {
        return Ok(());
    }
    let first = end(Order::OldestFirst).await?.and_then(|first| first.seq);
    let message = "The message named with after does not exist in this conversation any more; start again without it.";
    Err(ApiError::new(StatusCode::GONE, "messages_gone", message).details(json!({"first_seq": first})))
}

/// The session state.
#[routing::path(get, path = "/api/conversations/{id}/state", operation_id = "get_state", tag = "conversations", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = Object), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn state(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Json<werkruf_contract::State>, ApiError> {
    Ok(Json(lookup::conversation(&api, &identity, &id).await?.state))
}

/// Merges the body into the session state, only at the top level; null deletes a field. Returns the whole state.
#[routing::path(patch, path = "/api/conversations/{id}/state", operation_id = "patch_state", tag = "conversations", params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    request_body = Object,
    responses((status = 200, body = Object), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`state_too_large`")))]
async fn patch_state(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    body: body::RequestBody,
) -> Result<Json<werkruf_contract::State>, ApiError> {
    let row = lookup::conversation(&api, &identity, &id).await?;
    let patch: werkruf_contract::State = body::json_with_values(&body::bytes(body).await?)?;
    let max_bytes = api.app.config.limits.state_bytes;
    let merged = api.app.turns().patch_state(identity.tenant_id, row.id, patch, max_bytes, api.app.clock.now()).await?;
    merged.map(Json).ok_or_else(|| ApiError::not_found("conversation"))
}
