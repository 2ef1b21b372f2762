//! [`Cluster`] on SQLite: one process owns the file as long as it runs, so leases never expire and there are no notifications.

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
        // The process deduplicates its own calls in memory.
        Box::pin(std::future::ready(Ok(call_id)))
    }

    fn request_call_cancel(&self, _tenant_id: Uuid, _call_id: Uuid) -> StoreFuture<'_, bool> {
        // All calls run in this process, and the caller has already looked for the call there.
        Box::pin(std::future::ready(Ok(false)))
    }

    fn stream_positions(&self, _tenant_id: Uuid, _streams: Vec<Uuid>, _turns: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn notify(&self) {}

    fn notified(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
