//! Responses that were made before: read, followed, stopped, taken back.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_llm::history_formats::{HistoryFormat, read, write};
use werkruf_runtime::SubscribeOptions;
use werkruf_store::{Order, StreamKey};

use super::follow::Follow;
use super::shown;
use super::told::{Told, unknown};
use crate::api::body::{Named, Params};
use crate::api::chat::name_conversation;
use crate::api::policy::{Policy, Who};
use crate::api::{ApiError, Door, history, lookup};

/// How long a stop may take before its answer is given anyway.
const PATIENCE: Duration = Duration::from_secs(10);
const PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default()
        .routes(Policy::Chat.on(routes!(show, delete)))
        .routes(Policy::Chat.on(routes!(cancel)))
        .routes(Policy::Chat.on(routes!(input_items)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ShowQuery {
    /// `true`: the events of the response, and those that come.
    stream: Option<String>,
    /// The events after this number.
    starting_after: Option<u64>,
}

/// A response as it stands, or its events.
#[utoipa::path(get, path = "/v1/responses/{id}", operation_id = "get_response", tag = "openai", params(("id" = String, Path), ShowQuery),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn show(
    State(door): State<Arc<Door>>,
    Who(who): Who,
    Named(id): Named,
    Params(query): Params<ShowQuery>,
) -> Result<Response, ApiError> {
    let told = Told::get(&door.app, &who, &id).await?;
    let conversation_id = told.subject.conversation_id;
    let streams = query.stream.is_some_and(|text| matches!(text.to_ascii_lowercase().as_str(), "true" | "1"));
    let mut response = if streams { Follow::resumed(&door.app, told, query.starting_after).respond() } else { shown(&door, &told).await? };
    name_conversation(&mut response, Some(conversation_id));
    Ok(response)
}

/// Takes a response back: it cannot be retrieved any more. What the server did stays in its records.
#[utoipa::path(delete, path = "/v1/responses/{id}", operation_id = "delete_response", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn delete(State(door): State<Arc<Door>>, Who(who): Who, Named(id): Named) -> Result<Response, ApiError> {
    let told = Told::get(&door.app, &who, &id).await?;
    if !door.app.clients().withdraw_client_request(who.tenant_id, told.turn.id).await? {
        return Err(unknown(&id));
    }
    Ok(Json(json!({"id": id, "object": "response.deleted", "deleted": true})).into_response())
}

/// Stops a response; one that has ended stays as it is.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", operation_id = "cancel_response", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn cancel(State(door): State<Arc<Door>>, Who(who): Who, Named(id): Named) -> Result<Response, ApiError> {
    let told = Told::get(&door.app, &who, &id).await?;
    let (turn_id, runtime) = (told.turn.id, &door.app.runtime);
    let stream = StreamKey { tenant_id: who.tenant_id, stream_id: told.subject.conversation_id };
    let (mut feed, _) = runtime.subscribe(stream, SubscribeOptions { turn_id: Some(turn_id), debug: false, after: told.last });
    if runtime.cancel_turn(who.tenant_id, turn_id).await? {
        let ended = async { while feed.recv().await.is_some_and(|event| !event.kind.ends_turn()) {} };
        // A tool that does not listen is not waited for: the object says how things stand.
        let _ = tokio::time::timeout(PATIENCE, ended).await;
    }
    shown(&door, &Told::get(&door.app, &who, &id).await?).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ItemsQuery {
    /// The id of the last item seen.
    after: Option<String>,
    limit: Option<usize>,
    /// `asc` or `desc`, the newest first.
    order: Option<String>,
}

/// What a response was made from.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", operation_id = "list_input_items", tag = "openai",
    params(("id" = String, Path), ItemsQuery),
    responses((status = 200, body = Object), (status = 404, body = Object)))]
async fn input_items(
    State(door): State<Arc<Door>>,
    Who(who): Who,
    Named(id): Named,
    Params(query): Params<ItemsQuery>,
) -> Result<Response, ApiError> {
    let told = Told::get(&door.app, &who, &id).await?;
    let mut items = brought_items(&door, &told).await?;
    if query.order.as_deref() != Some("asc") {
        items.reverse();
    }
    let from = query.after.and_then(|after| items.iter().position(|item| item["id"] == after)).map_or(0, |at| at + 1);
    let limit = query.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
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

/// What came with the request: history of a new conversation, results, and the person's words as they are stored.
async fn brought_items(door: &Door, told: &Told) -> Result<Vec<Value>, ApiError> {
    let clock = &door.app.clock;
    let before = read(HistoryFormat::Openai, &told.client_request().history, &mut || format!("call_{}", clock.new_id().simple()));
    let mut items = before.map(|before| write(HistoryFormat::Responses, &before)).unwrap_or_default();
    items.extend(told.subject.echo.results.iter().cloned());
    let mut rows = lookup::messages_of_turn(door.app.records(), &told.turn).await?;
    rows.retain(|row| row.role == "user");
    items.extend(history::written(HistoryFormat::Responses, &rows, Order::OldestFirst));
    for (at, item) in items.iter_mut().enumerate() {
        if item["type"] == "message" && item["content"].is_string() {
            let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
            item["content"] = json!([{"type": kind, "text": item["content"]}]);
        }
        let prefix = if item["type"] == "message" { "msg" } else { "fc" };
        item["id"] = format!("{prefix}_{}_in{at}", told.turn.id.simple()).into();
        item["status"] = "completed".into();
    }
    Ok(items)
}
