//! `GET /api/admin/doctor`: what is wrong with this server, for `werkruf doctor`.

use std::sync::Arc;

use axum::Json;

use super::ApiState;
use super::policy::{ApiCaller, Policy};
use crate::doctor::{self, Report};
use crate::routing::{self, ApiRouter, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(examine)))
}

/// What is wrong with this server and its database, and what to do about it. Nothing is changed.
#[routing::path(get, path = "/api/admin/doctor", operation_id = "doctor", tag = "admin",
    responses((status = 200, body = Report), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn examine(ApiCaller { api, .. }: ApiCaller) -> Json<Report> {
    Json(doctor::examine(&api.app).await)
}
