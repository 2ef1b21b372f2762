//! Existing responses: retrieve, stream, cancel, delete, and list the input items.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_llm::history_formats::{HistoryFormat, read, write};
use werkruf_runtime::SubscribeOptions;
use werkruf_store::{Order, StreamKey};

use super::current_object;
use super::stored::{StoredResponse, response_not_found};
use super::stream::ResponseStream;
use crate::api::body::{Params, PathParam};
use crate::api::chat::set_conversation_header;
use crate::api::policy::{ApiCaller, Policy};
use crate::api::{ApiError, ApiState, history, lookup};
use crate::routing::{self, ApiRouter, IntoParams, routes};

/// How long a cancel request waits for the turn to end before it answers.
const CANCEL_WAIT: Duration = Duration::from_secs(10);
const PAGE: usize = 20;
const MAX_PAGE: usize = 100;

pub(super) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Chat.on(routes!(show, delete)))
        .routes(Policy::Chat.on(routes!(cancel)))
        .routes(Policy::Chat.on(routes!(input_items)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ShowQuery {
    /// `true` streams the events of the response.
    stream: Option<String>,
    /// Streams only the events after this sequence number.
    starting_after: Option<u64>,
}

/// The current response object, or its events as a stream.
#[routing::path(get, path = "/v1/responses/{id}", operation_id = "get_response", tag = "openai", params(("id" = String, Path), ShowQuery),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn show(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    Params(query): Params<ShowQuery>,
) -> Result<Response, ApiError> {
    let stored = StoredResponse::get(&api.app, &identity, &id).await?;
    let conversation_id = stored.base.conversation_id;
    let stream_requested = query.stream.is_some_and(|text| matches!(text.to_ascii_lowercase().as_str(), "true" | "1"));
    let mut response = if stream_requested {
        ResponseStream::resumed(&api.app, stored, query.starting_after).respond()
    } else {
        current_object(&api, &stored).await?
    };
    set_conversation_header(&mut response, Some(conversation_id));
    Ok(response)
}

/// Deletes a response: it cannot be retrieved any more. The records of its turn stay.
#[routing::path(delete, path = "/v1/responses/{id}", operation_id = "delete_response", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let stored = StoredResponse::get(&api.app, &identity, &id).await?;
    if !api.app.client_store.withdraw_client_request(identity.tenant_id, stored.turn.id).await? {
        return Err(response_not_found(&id));
    }
    Ok(Json(json!({"id": id, "object": "response.deleted", "deleted": true})).into_response())
}

/// Cancels a response. A response that has ended is not changed.
#[routing::path(post, path = "/v1/responses/{id}/cancel", operation_id = "cancel_response", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn cancel(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let stored = StoredResponse::get(&api.app, &identity, &id).await?;
    let (turn_id, runtime) = (stored.turn.id, &api.app.runtime);
    let stream = StreamKey { tenant_id: identity.tenant_id, stream_id: stored.base.conversation_id };
    let mut subscription = runtime.subscribe(stream, SubscribeOptions { turn_id: Some(turn_id), debug: false, after: stored.last });
    if runtime.cancel_turn(identity.tenant_id, turn_id).await? {
        let ended = async { while subscription.recv().await.is_some_and(|event| !event.kind.ends_turn()) {} };
        // A tool may ignore the cancel request; after the timeout the object has the current status.
        let _ = tokio::time::timeout(CANCEL_WAIT, ended).await;
    }
    current_object(&api, &StoredResponse::get(&api.app, &identity, &id).await?).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ItemsQuery {
    /// The id of the last item of the page before.
    after: Option<String>,
    limit: Option<usize>,
    /// `asc` (oldest first) or `desc` (newest first, the default).
    order: Option<String>,
}

/// The input items of a response.
#[routing::path(get, path = "/v1/responses/{id}/input_items", operation_id = "list_input_items", tag = "openai",
    params(("id" = String, Path), ItemsQuery),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn input_items(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    Params(query): Params<ItemsQuery>,
) -> Result<Response, ApiError> {
    let stored = StoredResponse::get(&api.app, &identity, &id).await?;
    let mut items = input_items_of(&api, &stored).await?;
    if query.order.as_deref() != Some("asc") {
        items.reverse();
    }
    let from = query.after.and_then(|after| items.iter().position(|item| item["id"] == after)).map_or(0, |at| at + 1);
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let page: Vec<&Value> = items.iter().skip(from).take(limit).collect();
    let name = |item: Option<&&Value>| item.map(|item| item["id"].clone());
    Ok(Json(json!({
        "object": "list",
        "data": page,
        "first_id": name(page.first()),
        "last_id": name(page.last()),
        "has_more": from + page.len() < items.len(),
    }))
    .into_response())
}

/// The input items: the history of a new conversation, tool results, and the user messages as they are stored.
async fn input_items_of(api: &ApiState, stored: &StoredResponse) -> Result<Vec<Value>, ApiError> {
    let clock = &api.app.clock;
    let history_messages =
        read(HistoryFormat::Openai, &stored.client_request().history, &mut || format!("call_{}", clock.new_id().simple()));
    let mut items = history_messages.map(|history_messages| write(HistoryFormat::Responses, &history_messages)).unwrap_or_default();
    items.extend(stored.base.echo.results.iter().cloned());
    let mut rows = lookup::messages_of_turn(api.app.records(), &stored.turn).await?;
    rows.retain(|row| row.role == "user");
    items.extend(history::format_rows(HistoryFormat::Responses, &rows, Order::OldestFirst));
    for (at, item) in items.iter_mut().enumerate() {
        if item["type"] == "message" && item["content"].is_string() {
            let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
            item["content"] = json!([{"type": kind, "text": item["content"]}]);
        }
        let prefix = if item["type"] == "message" { "msg" } else { "fc" };
        item["id"] = format!("{prefix}_{}_in{at}", stored.turn.id.simple()).into();
        item["status"] = "completed".into();
    }
    Ok(items)
}
