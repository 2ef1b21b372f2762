//! [`UsageRows`] on PostgreSQL.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::{Usage, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::{only, usage};
use super::text::clean;
use super::turn_documents::document;
use super::usage_documents::UsageRow;
use crate::{NewUsage, RequestsOf, StoreFuture, UsageOwner, UsageRows};

impl UsageRows for PostgresStore {
    fn put_usage(&self, owner: UsageOwner, row: NewUsage, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sql = "SELECT write_usage($1, $2, $3, $4, $5, $6::text::jsonb, false, NULL, false)::text";
            let (user, rows) = (clean(&owner.user_id), document(&[UsageRow::new(&row, now)])?);
            let now = ms(now);
            let values = [p(&owner.tenant_id), p(&user), p(&owner.conversation_id), p(&owner.turn_id), p(&now), (&rows as _, Type::TEXT)];
            self.query(DbRole::Tenant(owner.tenant_id), sql, &values).await?;
            Ok(())
        })
    }

    fn delete_usage(&self, tenant_id: Uuid, id: Option<Uuid>, reservation: Option<Uuid>) -> StoreFuture<'_, ()> {
        let sql = "SELECT drop_usage($1, $2, $3)::text";
        Box::pin(async move { self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&id), p(&reservation)]).await.map(|_| ()) })
    }

    fn turn_usage(&self, tenant_id: Uuid, turn_id: Uuid, of: RequestsOf) -> StoreFuture<'_, Usage> {
        Box::pin(async move {
            let all = of == RequestsOf::TurnAndTools;
            only(&self.query(DbRole::Tenant(tenant_id), TURN_USAGE, &[p(&tenant_id), p(&turn_id), p(&all)]).await?, usage)
        })
    }
}

/// A sum of bigints is a numeric, which no reader here accepts.
const TURN_USAGE: &str = "SELECT coalesce(sum(tokens_prompt), 0)::bigint, coalesce(sum(tokens_cached), 0)::bigint,
    coalesce(sum(tokens_completion), 0)::bigint, coalesce(sum(tokens_reasoning), 0)::bigint, coalesce(sum(tokens_total), 0)::bigint,
    CASE WHEN count(cost_nano_usd) = count(*) THEN sum(cost_nano_usd)::bigint END, count(*)
    FROM api_usage WHERE tenant_id = $1 AND turn_id = $2 AND ($3 OR operation = 'chat')";
