//! `POST /api/admin/reload`: reads tools, assistants and safety profiles from the configuration files again.

use std::sync::Arc;

use axum::Json;
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use werkruf_store::{Act, SERVER_CHAIN};

use super::ApiState;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use crate::routing::{self, ApiRouter, ToSchema, routes};
use crate::start_error::StartError;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(reload)))
}

#[derive(Serialize, ToSchema)]
struct Reloaded {
    reloaded: bool,
}

/// Reloads the configuration. A configuration with errors changes nothing.
#[routing::path(post, path = "/api/admin/reload", tag = "admin",
    responses((status = 200, body = Reloaded),
        (status = 403, body = ref("#/components/schemas/Error"), description = "Only the operator may reload."),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`invalid_config`, with the errors in `details`.")))]
async fn reload(ApiCaller { api, identity }: ApiCaller) -> Result<Json<Reloaded>, ApiError> {
    tracing::info!("reloading the configuration");
    api.app.reload().await.map_err(|violations| {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            StartError::code_of(&violations),
            "The configuration has errors; nothing was changed. See details.",
        )
        .details(json!(violations))
    })?;
    api.app.record(SERVER_CHAIN, identity.author(), Act::new("server.reload", "configuration")).await;
    Ok(Json(Reloaded { reloaded: true }))
}
