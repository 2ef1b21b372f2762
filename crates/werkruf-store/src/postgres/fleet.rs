//! [`Fleet`] on PostgreSQL.

use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};

use super::PostgresStore;
use super::flush::Scope;
use super::param::p;
use super::row::all;
use crate::{Answer, Fleet, Position, Renewed};

/// Of the text that is being written only a mark travels.
const POSITIONS: &str = "SELECT leases.conversation_id, leases.next_event_seq, shown.mark FROM leases LEFT JOIN LATERAL (
      SELECT turns.id || '/' || turns.step || '/' || hashtextextended(turns.partial, 0) AS mark FROM turns
      WHERE turns.tenant_id = $1 AND turns.conversation_id = leases.conversation_id AND turns.finished_at IS NULL
        AND turns.partial IS NOT NULL ORDER BY turns.id DESC LIMIT 1
    ) AS shown ON true WHERE leases.tenant_id = $1 AND leases.conversation_id = ANY ($2)";

impl Fleet for PostgresStore {
    fn lease_ttl(&self) -> Option<Duration> {
        Some(self.options.lease_ttl)
    }

    fn renew(&self, owner: String) -> Answer<'_, Renewed> {
        Box::pin(async move { self.renew_all(&owner).await })
    }

    fn request_call_cancel(&self, tenant_id: Uuid, call_id: Uuid) -> Answer<'_, bool> {
        let sql = "UPDATE tool_calls SET cancel_requested = true WHERE tenant_id = $1 AND id = $2 AND status IN ('queued', 'running')
                   RETURNING true";
        Box::pin(async move { Ok(self.query(Scope::Tenant(tenant_id), sql, &[p(&tenant_id), p(&call_id)]).await?.len() == 1) })
    }

    fn positions(&self, tenant_id: Uuid, streams: Vec<Uuid>) -> Answer<'_, Vec<Position>> {
        Box::pin(async move {
            let rows = self.query(Scope::Tenant(tenant_id), POSITIONS, &[p(&tenant_id), p(&streams)]).await?;
            all(&rows, |columns| {
                Ok(Position { stream_id: columns.id()?, next_event_seq: columns.int()?, partial: columns.text_or_null()? })
            })
        })
    }

    fn knock(&self) {
        if let Some(door) = &self.door {
            door.knock();
        }
    }

    fn knocked(&self) -> BoxFuture<'_, ()> {
        match &self.door {
            Some(door) => Box::pin(door.knocked()),
            None => Box::pin(std::future::pending()),
        }
    }
}
