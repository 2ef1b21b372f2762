//! [`ClientRequests`] and [`ClientTurns`] on PostgreSQL.

use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::p;
use super::row::{self, all, first};
use super::text::clean;
use crate::client_requests::SENT_TURNS;
use crate::{ClientRequests, ClientTurns, JsonText, ResumePoint, SentTurn, StoreError, StoreFuture};

impl ClientRequests for PostgresStore {
    fn client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        let sql = "SELECT client FROM turns WHERE tenant_id = $1 AND id = $2";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&turn_id)]).await?;
            Ok(first(&rows, |columns| columns.text_or_null())?.flatten())
        })
    }

    fn first_client_request(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>> {
        let sql = "SELECT client FROM turns WHERE tenant_id = $1 AND conversation_id = $2 ORDER BY id LIMIT 1";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&conversation_id)]).await?;
            Ok(first(&rows, |columns| columns.text_or_null())?.flatten())
        })
    }

    fn conversation_awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>> {
        let sql = "SELECT messages.conversation_id, (array_agg(turns.id ORDER BY turns.id DESC))[1] FROM messages
                     JOIN turns ON turns.tenant_id = messages.tenant_id AND turns.id = messages.turn_id
                   WHERE messages.tenant_id = $1 AND messages.status = 'pending' AND turns.user_id = $2 AND turns.finished_at IS NOT NULL
                     AND messages.tool_call_id = ANY ($3)
                   GROUP BY messages.conversation_id LIMIT 2";
        Box::pin(async move {
            let call_ids: Vec<_> = call_ids.iter().map(|id| clean(id)).collect();
            let user_id = clean(&user_id);
            let values = [p(&tenant_id), p(&user_id), (&call_ids as _, Type::TEXT_ARRAY)];
            let mut found = all(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, row::resume_point)?;
            // Ids such as call_0 occur in several conversations: where two wait, it is unknown which one is meant.
            Ok(found.pop().filter(|_| found.is_empty()))
        })
    }
}

impl ClientTurns for PostgresStore {
    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, digest: String) -> StoreFuture<'_, Option<ResumePoint>> {
        // A client that continues from an older turn would branch off: only the newest turn counts.
        let sql = "SELECT conversation_id, id FROM turns AS own WHERE tenant_id = $1 AND user_id = $2 AND transcript_digest = $3
                     AND conversation_id IS NOT NULL AND NOT EXISTS
                       (SELECT 1 FROM turns WHERE tenant_id = $1 AND conversation_id = own.conversation_id AND id > own.id)
                   ORDER BY id DESC LIMIT 1";
        Box::pin(self.resume_point(sql, tenant_id, user_id, digest))
    }

    fn turn_by_digest(&self, tenant_id: Uuid, user_id: String, digest: String) -> StoreFuture<'_, Option<ResumePoint>> {
        let sql = "SELECT conversation_id, id FROM turns WHERE tenant_id = $1 AND user_id = $2 AND transcript_digest = $3
                     AND conversation_id IS NOT NULL ORDER BY id DESC LIMIT 1";
        Box::pin(self.resume_point(sql, tenant_id, user_id, digest))
    }

    fn turns_by_request_digest(&self, tenant_id: Uuid, user_id: String, digest: String) -> StoreFuture<'_, Vec<SentTurn>> {
        let sql = "SELECT conversation_id, id, status, finished_at, NOT EXISTS
                       (SELECT 1 FROM turns WHERE tenant_id = $1 AND conversation_id = own.conversation_id AND id > own.id),
                     client #>> '{continues,request}', client #>> '{continues,results}'
                   FROM turns AS own WHERE tenant_id = $1 AND user_id = $2 AND request_digest = $3 AND conversation_id IS NOT NULL
                   ORDER BY id DESC LIMIT $4";
        Box::pin(async move {
            let (user_id, digest, most) = (clean(&user_id), clean(&digest), i64::from(SENT_TURNS));
            let values = [p(&tenant_id), p(&user_id), p(&digest), p(&most)];
            all(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, row::sent_turn)
        })
    }

    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, digest: String) -> StoreFuture<'_, bool> {
        let sql = "UPDATE turns SET transcript_digest = $3 WHERE tenant_id = $1 AND id = $2 AND (transcript_digest IS NULL OR ($4 AND transcript_digest = $3)) RETURNING true";
        Box::pin(async move {
            Ok(self.query_once(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&turn_id), p(&clean(&digest))]).await?.len() == 1)
        })
    }

    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool> {
        let sql = "UPDATE turns SET client = jsonb_set(client::jsonb, '{endpoint,deleted}', 'true')::json
                   WHERE tenant_id = $1 AND id = $2 AND json_typeof(client -> 'endpoint') = 'object' RETURNING true";
        Box::pin(async move { Ok(self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&turn_id)]).await?.len() == 1) })
    }
}

impl PostgresStore {
    async fn resume_point(&self, sql: &str, tenant_id: Uuid, user_id: String, digest: String) -> Result<Option<ResumePoint>, StoreError> {
        let (user_id, digest) = (clean(&user_id), clean(&digest));
        let values = [p(&tenant_id), p(&user_id), p(&digest)];
        first(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, row::resume_point)
    }
}
