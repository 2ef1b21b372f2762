//! [`UsageRows`] on PostgreSQL.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::text::clean;
use crate::{NewUsage, StoreFuture, UsageOwner, UsageRows};

/// The id is given, so a second attempt at the same usage row finds it; the final numbers replace estimated ones.
const USAGE: &str = "INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model,
      operation, tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd,
      request_id, started_at, took_ms, tool_name)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) ON CONFLICT (tenant_id, id) DO UPDATE
    SET model = excluded.model, request_id = excluded.request_id, took_ms = excluded.took_ms, tokens_prompt = excluded.tokens_prompt, tokens_cached = excluded.tokens_cached,
      tokens_completion = excluded.tokens_completion, tokens_reasoning = excluded.tokens_reasoning, tokens_total = excluded.tokens_total,
      estimated = excluded.estimated, cost_nano_usd = excluded.cost_nano_usd WHERE api_usage.estimated";

impl UsageRows for PostgresStore {
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (user, provider, model, now) = (clean(&owner.user_id), clean(&usage.provider), clean(&usage.model), ms(now));
            let (request, started, tool) =
                (usage.request_id.as_deref().map(clean), usage.started_at.map(ms), usage.tool_name.as_deref().map(clean));
            let values = [
                p(&usage.id),
                p(&owner.tenant_id),
                p(&user),
                p(&owner.conversation_id),
                p(&owner.turn_id),
                p(&usage.call_id),
                p(&usage.key_id),
                p(&now),
                p(&provider),
                p(&model),
                p(&usage.operation),
                p(&usage.tokens_prompt),
                p(&usage.tokens_cached),
                p(&usage.tokens_completion),
                p(&usage.tokens_reasoning),
                p(&usage.tokens_total),
                p(&usage.estimated),
                p(&usage.cost_nano_usd),
                p(&request),
                p(&started),
                p(&usage.took_ms),
                p(&tool),
            ];
            self.query(DbRole::Tenant(owner.tenant_id), USAGE, &values).await?;
            Ok(())
        })
    }

    fn delete_usage(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, ()> {
        let sql = "DELETE FROM api_usage WHERE tenant_id = $1 AND id = $2";
        Box::pin(async move { self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&id)]).await.map(|_| ()) })
    }
}
