//! [`UsageRows`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::text::{Id, Stamp, id_or_null};
use crate::{NewUsage, StoreError, StoreFuture, UsageOwner, UsageRows};

impl UsageRows for SqliteStore {
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| put_usage_row(c, &owner, &usage, now)))
    }

    fn delete_usage(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| delete_usage_row(c, tenant_id, id)))
    }
}

pub(super) fn put_usage_row(c: &Connection, who: &UsageOwner, usage: &NewUsage, now: Timestamp) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model,
           operation, tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd,
           request_id, started_at, took_ms, tool_name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
         ON CONFLICT (id) DO UPDATE SET model = excluded.model, request_id = excluded.request_id, took_ms = excluded.took_ms, tokens_prompt = excluded.tokens_prompt,
           tokens_cached = excluded.tokens_cached, tokens_completion = excluded.tokens_completion,
           tokens_reasoning = excluded.tokens_reasoning, tokens_total = excluded.tokens_total, estimated = excluded.estimated,
           cost_nano_usd = excluded.cost_nano_usd WHERE api_usage.estimated",
    )?
    .execute(params![
        Id::from(usage.id),
        Id::from(who.tenant_id),
        who.user_id,
        id_or_null(who.conversation_id),
        id_or_null(who.turn_id),
        id_or_null(usage.call_id),
        id_or_null(usage.key_id),
        Stamp::from(now),
        usage.provider,
        usage.model,
        usage.operation,
        usage.tokens_prompt,
        usage.tokens_cached,
        usage.tokens_completion,
        usage.tokens_reasoning,
        usage.tokens_total,
        usage.estimated,
        usage.cost_nano_usd,
        usage.request_id,
        usage.started_at.map(Stamp::from),
        usage.took_ms,
        usage.tool_name,
    ])?;
    Ok(())
}

/// Does nothing where there is no such row.
fn delete_usage_row(c: &Connection, tenant_id: Uuid, id: Uuid) -> Result<(), StoreError> {
    c.prepare_cached("DELETE FROM api_usage WHERE tenant_id = ?1 AND id = ?2")?.execute(params![Id::from(tenant_id), Id::from(id)])?;
    Ok(())
}
