//! `GET /v1/chat/completions/{id}`: the completion of an earlier request, built from the events of its turn.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::Value;
use werkruf_contract::{Texts, Uuid};
use werkruf_runtime::{AnswerFormat, ClientRequest};
use werkruf_store::TurnRow;

use super::chat_request::ResponseOptions;
use super::client_events::ClientEventReader;
use super::completion::{CommonFields, completion_object};
use super::{earlier_turn, error_body, model};
use crate::api::ApiState;
use crate::api::body::PathParam;
use crate::api::chat::set_conversation_header;
use crate::api::error::ApiError;
use crate::api::policy::{ApiCaller, Policy};
use crate::routing::{self, ApiRouter, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(show)))
}

/// An earlier completion of the same user. One that was requested with `store: false` is 404.
#[routing::path(get, path = "/v1/chat/completions/{id}", operation_id = "get_chat_completion", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object, description = "A chat.completion."), (status = 404, body = Object)))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("Completion with id '{id}' not found."));
    let turn_id = Uuid::parse_str(id.strip_prefix("chatcmpl-").unwrap_or(&id)).map_err(|_| unknown())?;
    let caller = identity.caller()?;
    let turn = api.app.records().turn(identity.tenant_id, turn_id).await?;
    let turn = turn.filter(|turn| turn.user_id == caller.principal.user_id && turn.status.is_terminal()).ok_or_else(unknown)?;
    let request = stored_request(&api, &turn).await?.ok_or_else(unknown)?;
    let setup = api.app.runtime.setup();
    let named = request.endpoint["request"]["model"].as_str().map(str::to_owned);
    let assistant = model::chosen(&setup, &caller.principal, named.as_deref());
    let options = ResponseOptions {
        stream: false,
        include_usage: false,
        legacy: false,
        custom_tools: request.tools.iter().filter(|tool| tool.custom).map(|tool| tool.name.clone()).collect(),
        model: named,
    };
    let real = model::model_name(assistant, &api.app.config.model);
    let common = CommonFields::new(turn.id, real, options, Texts::of(&caller.principal.locale));
    let mut reader = ClientEventReader::new(AnswerFormat::is_json(&request.options));
    let mut events: Vec<_> = earlier_turn::stored_events(&api.app, &turn).await?.iter().flat_map(|event| reader.read(event)).collect();
    events.extend(reader.end(turn.id));
    let mut object = completion_object(&common, &events).map_err(|failure| error_body::failed_turn(&failure))?;
    object["metadata"] = request.endpoint["request"]["metadata"].clone();
    let mut response = Json(object).into_response();
    set_conversation_header(&mut response, turn.conversation_id);
    Ok(response)
}

/// The request of a turn that came over Chat Completions and may be retrieved.
async fn stored_request(api: &ApiState, turn: &TurnRow) -> Result<Option<ClientRequest>, ApiError> {
    let text = api.app.clients().client_request(turn.tenant_id, turn.id).await?;
    let request: Option<ClientRequest> = text.and_then(|text| serde_json::from_str(&text).ok());
    let retrievable =
        |request: &ClientRequest| request.endpoint["api"] == "chat" && request.endpoint["request"]["store"] != Value::Bool(false);
    Ok(request.filter(retrievable))
}
