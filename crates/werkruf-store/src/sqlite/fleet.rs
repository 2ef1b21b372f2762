//! [`Fleet`] on SQLite: one process holds the file for its life, so nothing expires and nobody knocks.

use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};

use super::SqliteStore;
use crate::{Answer, Fleet, Position, Renewed};

impl Fleet for SqliteStore {
    fn lease_ttl(&self) -> Option<Duration> {
        None
    }

    fn renew(&self, _owner: String) -> Answer<'_, Renewed> {
        Box::pin(std::future::ready(Ok(Renewed::default())))
    }

    fn board(&self, _tenant_id: Uuid, _dedupe_key: String, call_id: Uuid) -> Answer<'_, Uuid> {
        // Calls of this process know each other already.
        Box::pin(std::future::ready(Ok(call_id)))
    }

    fn request_call_cancel(&self, _tenant_id: Uuid, _call_id: Uuid) -> Answer<'_, bool> {
        // Whatever runs, runs in this process, which has looked before it asked.
        Box::pin(std::future::ready(Ok(false)))
    }

    fn positions(&self, _tenant_id: Uuid, _streams: Vec<Uuid>) -> Answer<'_, Vec<Position>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn knock(&self) {}

    fn knocked(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
