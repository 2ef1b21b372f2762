//! [`Cluster`] on SQLite: one process holds the file for its life, so nothing expires and nobody knocks.

use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};

use super::SqliteStore;
use crate::{Cluster, LeaseReport, StoreFuture, StreamPosition};

impl Cluster for SqliteStore {
    fn lease_ttl(&self) -> Option<Duration> {
        None
    }

    fn renew_leases(&self, _owner: String) -> StoreFuture<'_, LeaseReport> {
        Box::pin(std::future::ready(Ok(LeaseReport::default())))
    }

    fn claim_key(&self, _tenant_id: Uuid, _dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, Uuid> {
        // Calls of this process know each other already.
        Box::pin(std::future::ready(Ok(call_id)))
    }

    fn request_call_cancel(&self, _tenant_id: Uuid, _call_id: Uuid) -> StoreFuture<'_, bool> {
        // Whatever runs, runs in this process, which has looked before it asked.
        Box::pin(std::future::ready(Ok(false)))
    }

    fn stream_positions(&self, _tenant_id: Uuid, _streams: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn notify(&self) {}

    fn notified(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
