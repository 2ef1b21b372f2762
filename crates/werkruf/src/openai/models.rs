//! `GET /v1/models`: the assistants, as models.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::model;
use crate::api::Door;
use crate::api::body::Named;
use crate::api::error::ApiError;
use crate::api::policy::{Policy, Who};

pub(crate) fn routes() -> OpenApiRouter<Arc<Door>> {
    OpenApiRouter::default().routes(Policy::Chat.on(routes!(list))).routes(Policy::Chat.on(routes!(show)))
}

/// An assistant, as clients of OpenAI know models.
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

fn offered(door: &Door, Who(who): &Who) -> Result<Vec<Model>, ApiError> {
    let (caller, setup) = (who.caller()?, door.app.runtime.setup());
    let created = door.app.started_at.as_second();
    let model =
        |assistant: &werkruf_runtime::Assistant| Model { id: assistant.name.clone(), object: "model", created, owned_by: "werkruf" };
    Ok(model::offered(&setup, &caller.principal).into_iter().map(model).collect())
}

/// The assistants that may be named as `model`. Any other name is accepted too and means the default one.
#[utoipa::path(get, path = "/v1/models", operation_id = "list_models", tag = "openai", responses((status = 200, body = ModelList)))]
async fn list(State(door): State<Arc<Door>>, who: Who) -> Result<Json<ModelList>, ApiError> {
    Ok(Json(ModelList { object: "list", data: offered(&door, &who)? }))
}

/// One of them.
#[utoipa::path(get, path = "/v1/models/{id}", operation_id = "get_model", tag = "openai", params(("id" = String, Path, description = "The assistant.")),
    responses((status = 200, body = Model), (status = 404, description = "In OpenAI's shape.")))]
async fn show(State(door): State<Arc<Door>>, who: Who, Named(id): Named) -> Result<Json<Model>, ApiError> {
    let found = offered(&door, &who)?.into_iter().find(|model| model.id == id);
    let unknown = || {
        let message = format!("There is no model named {id}; GET /v1/models lists them.");
        ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message)
    };
    found.map(Json).ok_or_else(unknown)
}
