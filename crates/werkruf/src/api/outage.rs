//! While a shared database does not answer, nobody waits for it: every route but `/healthz` says so at once.
//!
//! A watcher asks the database twice a second. A request that came before the watcher noticed is bounded by the store's own
//! patience; those that come after it are refused here, also the few that could be answered from memory.

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
/// Longer than any answer of a database that lives, short enough to be noticed within two seconds.
const PING_TIMEOUT: Duration = Duration::from_millis(1200);

/// Whether the database is away.
#[derive(Debug, Default)]
pub struct Outage(AtomicBool);

impl Outage {
    fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Looks after a database that other machines may take away, for as long as the server lives.
pub async fn watch(app: &App) {
    loop {
        let failure = match tokio::time::timeout(PING_TIMEOUT, app.records().ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it did not answer in time".to_owned()),
        };
        let was_active = app.outage.0.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(why) if !was_active => tracing::error!(why, "the database is away; requests are refused until it is back"),
            None if was_active => tracing::info!("the database is back"),
            Some(_) | None => {}
        }
        tokio::time::sleep(PING_INTERVAL).await;
    }
}

/// Refuses while the database is away. The probes say it in their own words.
pub(super) async fn refuse(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    if api.app.outage.is_active() && !["/healthz", "/readyz"].contains(&request.uri().path()) {
        return ApiError::from(StoreError::Unavailable("the watcher got no answer".to_owned())).into_response();
    }
    next.run(request).await
}
