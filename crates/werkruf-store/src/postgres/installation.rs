//! [`Installation`] on PostgreSQL.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::param::{ms, p};
use super::row::{first, only, tenant};
use super::text::clean;
use crate::{Installation, StoreFuture, TenantRow};

impl Installation for PostgresStore {
    fn ensure_tenant(&self, id: Uuid, slug: String, now: Timestamp) -> StoreFuture<'_, TenantRow> {
        Box::pin(async move {
            let (slug, now) = (clean(&slug), ms(now));
            let values = [p(&id), p(&slug), p(&now)];
            let statements = [
                Statement { sql: "INSERT INTO tenants (id, slug, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", params: &values },
                // Where slug and id name different tenants, the slug is what people type.
                Statement {
                    sql: "SELECT id, slug FROM tenants WHERE slug = $2 OR id = $1 ORDER BY slug = $2 DESC LIMIT 1",
                    params: &values[..2],
                },
            ];
            only(&self.run(DbRole::System, &statements).await?.pop().unwrap_or_default(), tenant)
        })
    }

    fn setting(&self, name: String) -> StoreFuture<'_, Option<String>> {
        Box::pin(async move {
            let name = clean(&name);
            first(&self.query(DbRole::System, "SELECT value FROM settings WHERE name = $1", &[p(&name)]).await?, |columns| columns.text())
        })
    }

    fn put_setting(&self, name: String, value: String) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (name, value) = (clean(&name), clean(&value));
            let sql = "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            self.query(DbRole::System, sql, &[p(&name), p(&value)]).await?;
            Ok(())
        })
    }
}
