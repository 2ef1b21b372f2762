//! The events of a conversation: as a list, or as a live stream from any sequence number on, without gaps or repeats.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use werkruf_contract::Uuid;
use werkruf_runtime::complete_event;
use werkruf_store::ReadLimit;

use super::body::{Params, PathParam};
use super::conversation_stream::ConversationStream;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body, conversation_stream, lookup, page};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(events)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// The sequence number of the last event received; 0 is the beginning.
    #[param(value_type = Option<i64>)]
    after: Option<String>,
    /// 1 to 1000; 100 by default. Not for the live stream.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// A stored event.
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
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<i64>,
}

/// The events after a sequence number: a live stream with `Accept: text/event-stream` or `Last-Event-ID`, otherwise a list.
#[routing::path(get, path = "/api/conversations/{id}/events", operation_id = "list_events", tag = "conversations",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it."), EventQuery, ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, body = EventList, description = "A list, or text/event-stream."),
        (status = 404, body = ref("#/components/schemas/Error")),
        (status = 410, body = ref("#/components/schemas/Error"), description = "Events after `after` were deleted; `details.first_seq` is the first event that exists.")))]
async fn events(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(id): PathParam,
    Params(query): Params<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let conversation = lookup::conversation(&api, &identity, &id).await?;
    let last_event_id = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").trim());
    let after = sequence_number(last_event_id.or(query.after.as_deref()))?;
    if last_event_id.is_some() || body::accepts(&headers, "text/event-stream") {
        return Ok(ConversationStream::after(&api.app, identity.tenant_id, conversation.id, after).await?.respond());
    }
    list(&api, identity.tenant_id, conversation.id, after, page::limit(query.limit.as_deref())?).await
}

/// Parses a sequence number. `None` if none is given: such a client starts at the first event that exists and misses nothing.
fn sequence_number(text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let invalid = || ApiError::invalid("after and Last-Event-ID take the number of an event (0 or more).");
    text.map(|text| text.parse().ok().filter(|number| *number >= 0).ok_or_else(invalid)).transpose()
}

async fn list(api: &ApiState, tenant_id: Uuid, conversation_id: Uuid, after: Option<i64>, limit: u32) -> Result<Response, ApiError> {
    let records = api.app.records();
    let rows = api.app.streams().events(tenant_id, conversation_id, None, after.unwrap_or(0), ReadLimit::rows(limit)).await?;
    if let Some(after) = after {
        conversation_stream::check_retained(&api.app, tenant_id, conversation_id, after, rows.first()).await?;
    }
    let (count, mut bytes) = (rows.len(), 0);
    let mut events = Vec::with_capacity(count);
    for row in rows {
        let data = complete_event(records, tenant_id, conversation_id, &row).await?;
        bytes += data.len();
        let data = RawValue::from_string(data).map_err(|error| page::serialize_error(&error))?;
        events.push(EventView { seq: row.seq, kind: row.kind.as_str(), data, turn_id: row.turn_id, created_at: Iso(row.created_at) });
        // The last event of a turn has the session state and all results, which its row has not.
        if bytes >= page::MAX_BYTES {
            break;
        }
    }
    let full = events.len() < count || u32::try_from(count).is_ok_and(|count| count >= limit);
    let next_after = events.last().filter(|_| full).map(|event| event.seq);
    Ok(Json(EventList { events, next_after }).into_response())
}
