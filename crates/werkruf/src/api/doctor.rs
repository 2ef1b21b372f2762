//! `GET /api/admin/doctor`: what is wrong with this server, for `werkruf doctor`.

use std::sync::Arc;

use axum::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::policy::{ApiCaller, Policy};
use crate::doctor::{self, Report};

pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::default().routes(Policy::Operator.on(routes!(examine)))
}

/// What is wrong with this server and its database, and what to do about it. Nothing is changed.
#[utoipa::path(get, path = "/api/admin/doctor", operation_id = "doctor", tag = "admin",
    responses((status = 200, body = Report), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn examine(ApiCaller { api, .. }: ApiCaller) -> Json<Report> {
    Json(doctor::examine(&api.app).await)
}
