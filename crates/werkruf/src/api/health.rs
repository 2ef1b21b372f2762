//! Liveness, readiness and the OpenAPI document: the routes that need no credential.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use werkruf_store::StoreError;

use super::{ApiState, pages};
use crate::loops::Loops;
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// A database that does not answer within this time is not ready.
const PING_TIMEOUT: Duration = Duration::from_millis(1800);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(document))
}

/// Liveness: the process answers.
#[routing::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, description = "The process answers.")))]
async fn healthz() -> &'static str {
    "ok\n"
}

#[derive(Serialize, ToSchema)]
struct Ready {
    ready: bool,
    loops: Loops,
    warnings: Vec<String>,
}

/// Readiness: the process accepts requests.
#[routing::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "Not ready, or shutting down.")))]
async fn readyz(State(api): State<Arc<ApiState>>) -> Response {
    let mut warnings = Vec::new();
    let ok = match tokio::time::timeout(PING_TIMEOUT, api.app.records().ping()).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(%error, "the store did not answer a probe");
            warnings.push(match error {
                StoreError::Full(_) => "storage_full: the disk of the database is full".to_owned(),
                StoreError::Replaced(_) => {
                    "database_replaced: a file of the database was removed or replaced; the server must be restarted".to_owned()
                }
                _ => "database_unavailable: the database does not answer".to_owned(),
            });
            false
        }
        Err(_) => {
            warnings.push("database_unavailable: the database did not answer in time".to_owned());
            false
        }
    };
    if ok {
        api.writer_progress.tick(api.app.clock.now());
    }
    let loops = Loops::with_writer(&api.app, api.writer_progress.last(), ok);
    let draining = api.app.runtime.is_draining();
    if draining {
        warnings.push("draining: the server is shutting down".to_owned());
    }
    let building = api.app.knowledge.library().building();
    if building > 0 {
        warnings.push(format!("knowledge_index: building {building} of the indexes; searches of these collections use words only"));
    }
    if api.app.knowledge.embedder().is_some_and(|embedder| embedder.is_failing()) {
        let warning = "embedder_unavailable: the embedding model gives no usable vectors; new documents are found by their words only";
        warnings.push(warning.to_owned());
    }
    if api.app.knowledge.keeps_deleted_text() {
        warnings
            .push("deleted_text: another program reads the database file, so its WAL still has the text of a deleted document".to_owned());
    }
    let ready = ok && !draining;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response =
        (status, [(CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(Ready { ready, loops, warnings })).into_response();
    if !ready {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The OpenAPI document.
#[routing::path(get, path = "/openapi.json", operation_id = "openapi", tag = "health", security(()), responses((status = 200, description = "OpenAPI 3.1.")))]
async fn document(State(api): State<Arc<ApiState>>) -> Response {
    let document = with_server(pages::openapi().into_owned(), api.app.config.public_url.as_deref());
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], document).into_response()
}

/// Names the public address as the server of the document, so that clients made from it find the way.
fn with_server(document: String, public_url: Option<&str>) -> String {
    let Some(url) = public_url else { return document };
    let Ok(mut parsed) = serde_json::from_str::<Value>(&document) else { return document };
    parsed["servers"] = json!([{"url": url}]);
    parsed.to_string()
}
