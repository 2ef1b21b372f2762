//! `GET /v1/models`: lists the assistants as models.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;

use super::model;
use crate::api::ApiState;
use crate::api::body::PathParam;
use crate::api::error::ApiError;
use crate::api::policy::{Authenticated, Policy};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(list))).routes(Policy::Chat.on(routes!(show)))
}

/// An assistant in the format of an OpenAI model.
#[derive(Serialize, ToSchema)]
struct Model {
    id: String,
    /// `model`.
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: i64,
    owned_by: &'static str,
}

#[derive(Serialize, ToSchema)]
struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<Model>,
}

fn offered(api: &ApiState, Authenticated(identity): &Authenticated) -> Result<Vec<Model>, ApiError> {
    let (caller, setup) = (identity.caller()?, api.app.runtime.setup());
    let created = api.app.started_at.as_second();
    let model =
        |assistant: &werkruf_runtime::Assistant| Model { id: assistant.name.clone(), object: "model", created, owned_by: "werkruf" };
    Ok(model::offered(&setup, &caller.principal).into_iter().map(model).collect())
}

/// The assistants that may be named as `model`. Any other name is accepted too and means the default one.
#[routing::path(get, path = "/v1/models", operation_id = "list_models", tag = "openai", responses((status = 200, body = ModelList)))]
async fn list(State(api): State<Arc<ApiState>>, identity: Authenticated) -> Result<Json<ModelList>, ApiError> {
    Ok(Json(ModelList { object: "list", data: offered(&api, &identity)? }))
}

/// One assistant as a model.
#[routing::path(get, path = "/v1/models/{id}", operation_id = "get_model", tag = "openai", params(("id" = String, Path, description = "The assistant.")),
    responses((status = 200, body = Model), (status = 404, description = "In OpenAI's format.")))]
async fn show(State(api): State<Arc<ApiState>>, identity: Authenticated, PathParam(id): PathParam) -> Result<Json<Model>, ApiError> {
    let found = offered(&api, &identity)?.into_iter().find(|model| model.id == id);
    let unknown = || {
        let message = format!("There is no model named {id}; GET /v1/models lists them.");
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message)
    };
    found.map(Json).ok_or_else(unknown)
}
