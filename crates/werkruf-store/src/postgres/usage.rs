//! [`UsageRows`] on PostgreSQL.

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::only;
use super::text::clean;
use super::turn_documents::document;
use super::usage_documents::UsageRow;
use crate::{NewUsage, StoreFuture, UsageOwner, UsageRows};

impl UsageRows for PostgresStore {
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sql = "SELECT write_usage($1, $2, $3, $4, $5, $6::text::jsonb, false, NULL, false)::text";
            let (user, rows) = (clean(&owner.user_id), document(&[UsageRow::new(&usage, now)])?);
            let now = ms(now);
            let values = [p(&owner.tenant_id), p(&user), p(&owner.conversation_id), p(&owner.turn_id), p(&now), (&rows as _, Type::TEXT)];
            self.query(DbRole::Tenant(owner.tenant_id), sql, &values).await?;
            Ok(())
        })
    }

    fn delete_usage(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, ()> {
        let sql = "SELECT drop_usage($1, $2, NULL)::text";
        Box::pin(async move { self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&id)]).await.map(|_| ()) })
    }

    fn turn_tokens(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, i64> {
        // Ids sort by time, so all usage rows of a turn have ids above the turn's.
        let sql = "SELECT coalesce(sum(tokens_total), 0)::bigint FROM api_usage WHERE tenant_id = $1 AND turn_id = $2 AND id > $2";
        Box::pin(async move {
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&turn_id)]).await?;
            only(&rows, |columns| columns.int())
        })
    }
}
