//! `GET /metrics`, for Prometheus: with the operator's credential here, or without one on the address of `[metrics] listen`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::ApiState;
use super::policy::{ApiCaller, Policy};
use crate::app::App;
use crate::metrics::ScrapeFormat;
use crate::routing::{self, ApiRouter, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(metrics)))
}

/// The metrics of this process, in the text format of Prometheus, or of OpenMetrics where the request accepts it.
#[routing::path(get, path = "/metrics", operation_id = "metrics", tag = "health",
    responses((status = 200, description = "The metrics; docs/metrics.md lists them.", content_type = "text/plain"),
        (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn metrics(ApiCaller { api, .. }: ApiCaller, headers: HeaderMap) -> Response {
    scrape(&api.app, &headers).await
}

async fn scrape(app: &Arc<App>, accepted: &HeaderMap) -> Response {
    let format = ScrapeFormat::accepted(accepted);
    let headers = [(CONTENT_TYPE, format.media_type()), (CACHE_CONTROL, "no-store")];
    (headers, app.metrics.scrape(app, format).await).into_response()
}

/// The router of the address that serves nothing but metrics. It also answers while the database does not.
pub fn metrics_router(app: Arc<App>) -> Router {
    Router::new().route("/metrics", get(own)).with_state(app)
}

async fn own(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    scrape(&app, &headers).await
}
