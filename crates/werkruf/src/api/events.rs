//! The event log of a conversation: as a list, or live from any number on, without a gap or a repeat.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::{AssistantSnapshot, EventType, Uuid};
use werkruf_runtime::{Shown, Watch, complete_event};

use super::body::{Named, Params};
use super::error::ApiError;
use super::policy::{Policy, Who};
use super::sse::{Known, LiveBody, frame};
use super::view::Iso;
use super::{Door, body, lookup, page};

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Read.on(routes!(events)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// The last number seen; 0 is the beginning.
    #[param(value_type = Option<i64>)]
    after: Option<String>,
    /// 1 to 1000, else 100. Not for the live stream.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// A stored event as clients see it.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView {
    pub(crate) seq: i64,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    #[schema(value_type = Object)]
    pub(crate) data: Box<RawValue>,
    pub(crate) turn_id: Option<Uuid>,
    #[schema(value_type = String, format = DateTime)]
    pub(crate) created_at: Iso,
}

#[derive(Serialize, ToSchema)]
struct EventList {
    events: Vec<EventView>,
    /// Where the next page begins; null when this was the last.
    next_after: Option<i64>,
}

/// The events after a number. Live with `Accept: text/event-stream` or `Last-Event-ID`, else a list.
#[utoipa::path(get, path = "/api/conversations/{id}/events", operation_id = "list_events", tag = "conversations",
    params(("id" = String, Path, description = "Id or unique prefix."), EventQuery, ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, body = EventList, description = "A list, or text/event-stream."),
        (status = 404, body = ref("#/components/schemas/Error"))))]
async fn events(
    State(door): State<Arc<Door>>,
    Who(who): Who,
    Named(id): Named,
    Params(query): Params<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let conversation = lookup::conversation(&door, &who, &id).await?;
    let resumed = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").trim());
    let after = number(resumed.or(query.after.as_deref()))?;
    if resumed.is_some() || body::accepts(&headers, "text/event-stream") {
        return live(&door, who.tenant_id, conversation.id, after).await;
    }
    list(&door, who.tenant_id, conversation.id, after, page::limit(query.limit.as_deref())?).await
}

fn number(text: Option<&str>) -> Result<i64, ApiError> {
    let refused = || ApiError::invalid("after and Last-Event-ID take the number of an event (0 or more).");
    text.map_or(Ok(0), |text| text.parse().map_err(|_| refused()).and_then(|number| if number < 0 { Err(refused()) } else { Ok(number) }))
}

async fn list(door: &Door, tenant_id: Uuid, conversation_id: Uuid, after: i64, limit: u32) -> Result<Response, ApiError> {
    let records = door.app.records();
    let rows = records.events(tenant_id, conversation_id, None, after, limit).await?;
    let next_after = page::next_after(&rows, limit, |row| row.seq);
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let data = complete_event(records, tenant_id, conversation_id, &row).await?;
        let data = RawValue::from_string(data).map_err(|error| page::unwritable(&error))?;
        events.push(EventView { seq: row.seq, kind: row.kind.as_str(), data, turn_id: row.turn_id, created_at: Iso(row.created_at) });
    }
    Ok(Json(EventList { events, next_after }).into_response())
}

/// Listens first, then reads what is stored, then leaves out of the live events what was stored.
async fn live(door: &Door, tenant_id: Uuid, conversation_id: Uuid, after: i64) -> Result<Response, ApiError> {
    let runtime = &door.app.runtime;
    let (receiver, shown) = runtime.watch(conversation_id, Watch { turn_id: None, debug: false });
    let records = door.app.records();
    let mut known = Known::up_to(after);
    let mut stored = BytesMut::new();
    for row in lookup::all_events(records, tenant_id, conversation_id, None, after).await? {
        let data = complete_event(records, tenant_id, conversation_id, &row).await?;
        frame(&mut stored, Some(row.seq), row.kind, &data);
        known.sent(row.seq, row.kind, row.turn_id, &data);
    }
    // The text of the step that is being written is no row yet: it comes whole, and what follows adds to it.
    if let Some(Shown { turn_id, step, content }) = shown.filter(|shown| !known.is_settled(shown.turn_id, shown.step)) {
        let data = serde_json::to_string(&AssistantSnapshot { content, step, turn_id }).map_err(|error| page::unwritable(&error))?;
        frame(&mut stored, None, EventType::AssistantSnapshot, &data);
    }
    Ok(LiveBody::of_conversation(runtime, receiver, known, stored.freeze()).respond())
}
