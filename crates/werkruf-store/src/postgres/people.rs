//! [`People`] on PostgreSQL: tenants, users and their permissions.
//!
//! Nothing is cached between two reads: another process may have changed a row meanwhile, and permissions count as they are now.

use std::sync::Arc;

use tokio_postgres::types::Type;
use werkruf_contract::{Principal, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{clean_or_null, ms, p};
use super::row::{Columns, all, first, person_address, tenant};
use super::text::{clean, clean_json};
use crate::{People, PersonAddress, StoreError, StoreFuture, TenantRow, canonical_phone};

/// The user with roles and permissions, of one snapshot. A function, because every request runs it, and planning it, with row-level
/// security of ten tables, takes ten times as long as running it: a session keeps the plan of a function.
const PRINCIPAL: &str = "SELECT * FROM principal_of($1, $2, $3)";

/// $2 the id of a channel, $3 the canonical phone. A user with another id of the channel is another person, whatever the phone.
const BY_ADDRESS: &str = "WITH by_id AS (SELECT * FROM users WHERE tenant_id = $1 AND whatsapp_user_id = $2),
      by_phone AS (SELECT * FROM users WHERE tenant_id = $1 AND phone_key = $3 AND ($2::text IS NULL OR whatsapp_user_id IS NULL)
        AND NOT EXISTS (SELECT 1 FROM by_id)),
      found AS (SELECT * FROM by_id UNION ALL SELECT * FROM by_phone)
    SELECT id, branch_id, locale, phone, whatsapp_user_id FROM found WHERE (SELECT bool_and(active) FROM found) ORDER BY id";
const BY_ROLES: &str = "SELECT id, branch_id, locale, phone, whatsapp_user_id FROM users WHERE tenant_id = $1 AND active AND id IN (
      SELECT held_roles.user_id FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
      WHERE held_roles.tenant_id = $1 AND since <= $3 AND $3 < until AND roles.name IN (SELECT json_array_elements_text($2::json)))
    ORDER BY id";

impl People for PostgresStore {
    fn tenant(&self, name: String) -> StoreFuture<'_, Option<TenantRow>> {
        Box::pin(async move {
            let (id, slug) = (Uuid::try_parse(&name).ok(), clean(&name));
            let sql = "SELECT id, slug FROM tenants WHERE slug = $1 OR id = $2";
            first(&self.query(DbRole::System, sql, &[p(&slug), p(&id)]).await?, tenant)
        })
    }
    fn tenants(&self) -> StoreFuture<'_, Vec<TenantRow>> {
        Box::pin(async move { all(&self.query(DbRole::System, "SELECT id, slug FROM tenants ORDER BY slug", &[]).await?, tenant) })
    }
    fn principal(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Option<Arc<Principal>>> {
        Box::pin(async move {
            let Ok(number) = user_id.parse::<i64>() else { return Ok(None) };
            let now = ms(self.clock.now());
            let rows = self.query(DbRole::Tenant(tenant_id), PRINCIPAL, &[p(&tenant_id), p(&number), p(&now)]).await?;
            Ok(first(&rows, |columns| principal(columns, tenant_id, user_id))?.map(Arc::new))
        })
    }
    fn users_by_address(
        &self,
        tenant_id: Uuid,
        channel_user_id: Option<String>,
        phone: Option<String>,
    ) -> StoreFuture<'_, Vec<PersonAddress>> {
        Box::pin(async move {
            let (id, key) = (clean_or_null(channel_user_id.as_deref()), phone.as_deref().and_then(canonical_phone));
            let key = key.as_deref();
            let rows = self.query(DbRole::Tenant(tenant_id), BY_ADDRESS, &[p(&tenant_id), p(&id), p(&key)]).await?;
            all(&rows, person_address)
        })
    }
    fn users_with_roles(&self, tenant_id: Uuid, roles: Vec<String>) -> StoreFuture<'_, Vec<PersonAddress>> {
        Box::pin(async move {
            let roles = serde_json::to_string(&roles).map_err(|error| StoreError::Broken(error.to_string()))?;
            let (roles, now) = (clean_json(&roles), ms(self.clock.now()));
            all(&self.query(DbRole::Tenant(tenant_id), BY_ROLES, &[p(&tenant_id), (&roles, Type::TEXT), p(&now)]).await?, person_address)
        })
    }
}

fn principal(c: &mut Columns<'_>, tenant_id: Uuid, user_id: String) -> Result<Principal, StoreError> {
    let name = format!("{} {}", c.text()?, c.text()?).trim().to_owned();
    let (branch_id, locale, time_zone, tenant_slug) = (c.int_or_null()?, c.text()?, c.text()?, c.text()?);
    let roles = c.parsed(|text| serde_json::from_str(text).ok())?;
    let permissions = c.parsed(|text| serde_json::from_str(text).ok())?;
    Ok(Principal { tenant_id, tenant_slug, user_id, name, roles, branch_id, locale, time_zone, permissions })
}
