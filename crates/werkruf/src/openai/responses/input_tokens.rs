//! `POST /v1/responses/input_tokens`: how large a request would be. Nothing is stored or sent.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::HeaderMap;
use serde_json::{Value, json};

use super::previous::stored;
use super::request::{FIELDS, Request};
use super::{references, turn_request};
use crate::api::policy::{Authenticated, Policy};
use crate::api::{ApiError, ApiState, body};
use crate::openai::start;
use crate::routing::{self, ApiRouter, routes};

pub(super) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(count)))
}

/// Counts the input tokens of a request to `/v1/responses`: prompt, tools, stored history and input. The count is an upper bound.
#[routing::path(post, path = "/v1/responses/input_tokens", operation_id = "count_input_tokens", tag = "openai",
    request_body(content = Object, description = "As for `POST /v1/responses`."),
    responses((status = 200, body = Object, description = "`{object, input_tokens}`"), (status = "4XX", body = Object)))]
async fn count(
    State(api): State<Arc<ApiState>>,
    identity: Authenticated,
    headers: HeaderMap,
    body: body::RequestBody,
) -> Result<Json<Value>, ApiError> {
    let (raw, fields) = start::read_fields(&api, &identity, &headers, body, &FIELDS).await?;
    let mut request = Request::read(fields)?;
    if let Some(id) = &request.echo.previous_response_id {
        request.conversation = Some(stored(&api.app, &identity.0, id).await?.base.conversation_id);
    }
    request.items = references::resolve(&api.app, &identity.0, std::mem::take(&mut request.items)).await?;
    let (turn_request, _) = turn_request(request, raw)?;
    let message = start::preview(&api, &identity, &headers, turn_request).await?;
    let input_tokens = api.app.runtime.input_tokens(&message).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": input_tokens})))
}
