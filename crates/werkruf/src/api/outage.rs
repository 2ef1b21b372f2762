//! Rejects requests at once while a shared database does not answer, so that they do not wait for it. `/healthz` and `/readyz` still
//! answer.
//!
//! A task pings the database twice a second. A request that arrives before the task notices an outage is bounded by the timeouts of
//! the store. Later requests are rejected here, also the few that could be answered from memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use werkruf_store::StoreError;

use super::ApiState;
use super::error::ApiError;
use crate::app::App;

const PING_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than a healthy database needs, short enough to notice an outage within two seconds.
const PING_TIMEOUT: Duration = Duration::from_millis(1200);

/// Whether the database is unreachable.
#[derive(Debug, Default)]
pub struct Outage(AtomicBool);

impl Outage {
    fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Pings a remote database as long as the server runs, and sets [`Outage`].
pub async fn watch(app: &App) {
    loop {
        let failure = match tokio::time::timeout(PING_TIMEOUT, app.records().ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it did not answer in time".to_owned()),
        };
        let was_active = app.outage.0.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(why) if !was_active => tracing::error!(why, "the database does not answer; requests are rejected until it does"),
            None if was_active => tracing::info!("the database answers again"),
            Some(_) | None => {}
        }
        tokio::time::sleep(PING_INTERVAL).await;
    }
}

/// Rejects requests during an outage. The health probes report it themselves.
pub(super) async fn refuse(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    if api.app.outage.is_active() && !["/healthz", "/readyz"].contains(&request.uri().path()) {
        return ApiError::from(StoreError::Unavailable("the watcher got no answer".to_owned())).into_response();
    }
    next.run(request).await
}
