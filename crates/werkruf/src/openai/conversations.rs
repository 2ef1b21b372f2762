//! `/v1/conversations`: conversations that a client manages itself, as the Conversations API of OpenAI describes them.
//!
//! A conversation of another user is 404. Items are changed only between turns; while a turn runs the answer is 409.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use werkruf_contract::Uuid;
use werkruf_store::{ConversationRow, NewHistory, NewItems, Order, Page};

use super::conversation_items::{NewRows, new_rows, of_row, place, removal};
use super::model::CHANNEL;
use super::{media_urls, request_checks};
use crate::api::body::{Params, PathParam, RequestBody};
use crate::api::error::ApiError;
use crate::api::policy::{ApiCaller, Policy};
use crate::api::{ApiState, body};
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, IntoParams, routes};

const FIELDS: [&str; 2] = ["items", "metadata"];
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most items in one request.
const MAX_ITEMS: usize = 1000;
const PAGE: usize = 20;
const MAX_PAGE: usize = 100;
const BATCH: u32 = 100;
// As at OpenAI.
const MAX_PAIRS: usize = 16;
const MAX_KEY: usize = 64;
const MAX_VALUE: usize = 512;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Chat.on(routes!(create)))
        .routes(Policy::Chat.on(routes!(show, update, delete)))
        .routes(Policy::Chat.on(routes!(list_items, create_items)))
        .routes(Policy::Chat.on(routes!(show_item, delete_item)))
}

/// The two ids in the path of an item.
struct ItemPath {
    conversation: String,
    item: String,
}

impl<S: Send + Sync> FromRequestParts<S> for ItemPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path((conversation, item)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::invalid("The path is not UTF-8; encode it again."))?;
        Ok(Self { conversation, item })
    }
}

fn not_found(what: &str, id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("{what} with id '{id}' not found."))
}

/// A conversation of the caller.
async fn own(api: &ApiState, identity: &Identity, id: &str) -> Result<ConversationRow, ApiError> {
    let caller = identity.caller()?;
    let unknown = || not_found("Conversation", id);
    let uuid = Uuid::parse_str(id.strip_prefix("conv_").unwrap_or(id)).map_err(|_| unknown())?;
    let row = api.app.records().conversation(identity.tenant_id, uuid).await?;
    row.filter(|row| row.user_id == caller.principal.user_id).ok_or_else(unknown)
}

async fn object(api: &ApiState, row: &ConversationRow) -> Result<Json<Value>, ApiError> {
    let metadata = api.app.client_store.conversation_metadata(row.tenant_id, row.id).await?.unwrap_or_default();
    let metadata: Value = serde_json::from_str(&metadata).unwrap_or_else(|_| json!({}));
    let id = format!("conv_{}", row.id.simple());
    Ok(Json(json!({"id": id, "object": "conversation", "created_at": row.created_at.as_second(), "metadata": metadata})))
}

/// The items of a body, and its metadata where it has any.
async fn read(body: RequestBody) -> Result<(Vec<Value>, Option<Map<String, Value>>), ApiError> {
    let raw = body::bytes_up_to(body, MAX_BYTES).await?;
    let mut fields = if raw.is_empty() { Map::new() } else { body::json_fields(&raw, &FIELDS, |_| Ok(()))? };
    let items = match fields.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) if items.len() <= MAX_ITEMS => items,
        Some(Value::Array(_)) => {
            return Err(ApiError::invalid(format!("There are more than {MAX_ITEMS} items; send fewer.")).param("items"));
        }
        Some(_) => return Err(ApiError::invalid("items takes a list of items.").param("items")),
    };
    if let Some(address) = media_urls::refused(&items) {
        return Err(request_checks::refused_address(address));
    }
    let metadata = match fields.remove("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(metadata)) if is_small(&metadata) => Some(metadata),
        Some(_) => {
            let message = "metadata takes an object with at most 16 texts: names up to 64 characters, values up to 512.";
            return Err(ApiError::invalid(message).param("metadata"));
        }
    };
    Ok((items, metadata))
}

fn is_small(metadata: &Map<String, Value>) -> bool {
    let fits = |(name, value): (&String, &Value)| {
        name.chars().count() <= MAX_KEY && value.as_str().is_some_and(|text| text.chars().count() <= MAX_VALUE)
    };
    metadata.len() <= MAX_PAIRS && metadata.iter().all(fits)
}

/// Creates a conversation.
#[routing::path(post, path = "/v1/conversations", operation_id = "create_openai_conversation", tag = "openai",
    request_body(content = Object, description = "`items` and `metadata`, both optional."),
    responses((status = 200, body = Object, description = "The conversation."), (status = "4XX", body = Object)))]
async fn create(ApiCaller { api, identity }: ApiCaller, body: RequestBody) -> Result<Json<Value>, ApiError> {
    let caller = identity.caller()?;
    let (items, metadata) = read(body).await?;
    let clock = &api.app.clock;
    let NewRows { messages, title, .. } = new_rows(clock, items, &[])?;
    let history = NewHistory {
        tenant_id: identity.tenant_id,
        id: clock.new_id(),
        user_id: caller.principal.user_id.clone(),
        channel: CHANNEL.to_owned(),
        assistant: "default".to_owned(),
        title,
        messages,
        now: clock.now(),
    };
    let row = api.app.client_store.put_history(history).await?;
    if let Some(metadata) = metadata {
        api.app.client_store.put_conversation_metadata(identity.tenant_id, row.id, Value::Object(metadata).to_string()).await?;
    }
    object(&api, &row).await
}

/// One conversation.
#[routing::path(get, path = "/v1/conversations/{id}", operation_id = "get_openai_conversation", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object, description = "The conversation."), (status = 404, body = Object)))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Json<Value>, ApiError> {
    object(&api, &own(&api, &identity, &id).await?).await
}

/// Replaces the metadata of a conversation.
#[routing::path(post, path = "/v1/conversations/{id}", operation_id = "update_openai_conversation", tag = "openai", params(("id" = String, Path)),
    request_body(content = Object, description = "`metadata`"),
    responses((status = 200, body = Object, description = "The conversation."), (status = "4XX", body = Object)))]
async fn update(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &id).await?;
    let (_, metadata) = read(body).await?;
    let metadata = metadata.ok_or_else(|| ApiError::invalid("The field metadata is missing.").param("metadata"))?;
    if !api.app.client_store.put_conversation_metadata(row.tenant_id, row.id, Value::Object(metadata).to_string()).await? {
        return Err(not_found("Conversation", &id));
    }
    object(&api, &row).await
}

/// Deletes a conversation with its messages, turns, calls and events.
#[routing::path(delete, path = "/v1/conversations/{id}", operation_id = "delete_openai_conversation", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Object), (status = 409, body = Object, description = "`turn_running`")))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &id).await?;
    if !api.app.turns().delete_conversation(row.tenant_id, row.id).await? {
        return Err(not_found("Conversation", &id));
    }
    Ok(Json(json!({"id": format!("conv_{}", row.id.simple()), "object": "conversation.deleted", "deleted": true})))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ItemsQuery {
    /// The id of the last item of the page before.
    after: Option<String>,
    /// 1 to 100; 20 by default.
    limit: Option<usize>,
    /// `asc` (oldest first) or `desc` (newest first, the default).
    order: Option<String>,
}

/// The items of a conversation.
#[routing::path(get, path = "/v1/conversations/{id}/items", operation_id = "list_conversation_items", tag = "openai",
    params(("id" = String, Path), ItemsQuery),
    responses((status = 200, body = Object, description = "A list of items."), (status = "4XX", body = Object)))]
async fn list_items(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    Params(query): Params<ItemsQuery>,
) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &id).await?;
    let order = match query.order.as_deref() {
        None | Some("desc") => Order::NewestFirst,
        Some("asc") => Order::OldestFirst,
        Some(_) => return Err(ApiError::invalid("order takes asc or desc.").param("order")),
    };
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let after = match query.after {
        Some(after) => Some(place(&after).ok_or_else(|| not_found("Item", &after))?),
        None => None,
    };
    let mut items = page(&api, &row, order, limit + 1, after).await?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    Ok(list(&items, has_more))
}

fn list(items: &[Value], has_more: bool) -> Json<Value> {
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    Json(json!({"object": "list", "data": items, "first_id": id(items.first()), "last_id": id(items.last()), "has_more": has_more}))
}

/// So many items behind a place. A row may have several items, or none.
async fn page(
    api: &ApiState,
    row: &ConversationRow,
    order: Order,
    limit: usize,
    after: Option<(Uuid, usize)>,
) -> Result<Vec<Value>, ApiError> {
    let of_row = |row: &werkruf_store::MessageRow| {
        let mut items = of_row(row);
        if order == Order::NewestFirst {
            items.reverse();
        }
        items
    };
    let mut found = Vec::new();
    let mut page = Page::of(BATCH, order);
    if let Some((row_id, _)) = after {
        // The rest of the row that the last page ended in.
        let rows = api.app.turns().history(row.tenant_id, row.id).await?;
        let items = rows.iter().find(|message| message.id == row_id).map(of_row).unwrap_or_default();
        let is_after = |item: &Value| item["id"].as_str().and_then(place).map(|(_, at)| at) == after.map(|(_, at)| at);
        found.extend(items.iter().skip_while(|item| !is_after(item)).skip(1).cloned());
        page.after = Some(row_id);
    }
    while found.len() < limit {
        let rows = api.app.records().messages(row.tenant_id, row.id, page).await?;
        // A message that waits for its turn is no item yet.
        found.extend(rows.iter().filter(|row| row.seq.is_some()).flat_map(of_row));
        page.after = rows.last().map(|row| row.id);
        if !page.is_full(&rows) {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Adds items to the end of a conversation.
#[routing::path(post, path = "/v1/conversations/{id}/items", operation_id = "create_conversation_items", tag = "openai",
    params(("id" = String, Path)), request_body(content = Object, description = "`items`"),
    responses((status = 200, body = Object, description = "A list of the new items."), (status = "4XX", body = Object)))]
async fn create_items(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    body: RequestBody,
) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &id).await?;
    let (items, _) = read(body).await?;
    if items.is_empty() {
        return Err(ApiError::invalid("The field items is missing; send a list of items.").param("items"));
    }
    let stored = api.app.turns().history(row.tenant_id, row.id).await?;
    let NewRows { results, messages, items, .. } = new_rows(&api.app.clock, items, &stored)?;
    let new = NewItems { tenant_id: row.tenant_id, conversation_id: row.id, results, messages, now: api.app.clock.now() };
    if !api.app.client_store.append_items(new).await? {
        return Err(not_found("Conversation", &id));
    }
    Ok(list(&items, false))
}

/// One item.
#[routing::path(get, path = "/v1/conversations/{id}/items/{item_id}", operation_id = "get_conversation_item", tag = "openai",
    params(("id" = String, Path), ("item_id" = String, Path)),
    responses((status = 200, body = Object, description = "The item."), (status = 404, body = Object)))]
async fn show_item(ApiCaller { api, identity }: ApiCaller, path: ItemPath) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &path.conversation).await?;
    let rows = api.app.turns().history(row.tenant_id, row.id).await?;
    let found = place(&path.item).and_then(|(row_id, _)| rows.iter().find(|message| message.id == row_id)).map(of_row);
    let item = found.into_iter().flatten().find(|item| item["id"] == path.item.as_str());
    item.map(Json).ok_or_else(|| not_found("Item", &path.item))
}

/// Removes an item. A call goes with its output; a removed output leaves its call waiting.
#[routing::path(delete, path = "/v1/conversations/{id}/items/{item_id}", operation_id = "delete_conversation_item", tag = "openai",
    params(("id" = String, Path), ("item_id" = String, Path)),
    responses((status = 200, body = Object, description = "The conversation."), (status = "4XX", body = Object)))]
async fn delete_item(ApiCaller { api, identity }: ApiCaller, path: ItemPath) -> Result<Json<Value>, ApiError> {
    let row = own(&api, &identity, &path.conversation).await?;
    let rows = api.app.turns().history(row.tenant_id, row.id).await?;
    let edits = removal(&rows, &path.item).ok_or_else(|| not_found("Item", &path.item))?;
    api.app.client_store.edit_messages(row.tenant_id, row.id, edits).await?;
    object(&api, &row).await
}
