//! [`People`] on SQLite: tenants, users and permissions.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{Access, HeldPermission, Permission, Principal, Role, Scope, Uuid};

use super::SqliteStore;
use super::row::{Columns, all, first, person_address, tenant, user};
use super::text::{Id, Stamp};
use crate::{People, PersonAddress, StoreError, StoreFuture, TenantRow, UserRow, canonical_phone};

const BY_CHANNEL_ID: &str = "SELECT id, branch_id, locale, phone, whatsapp_user_id, active FROM users INDEXED BY users_by_whatsapp
    WHERE tenant_id = ?1 AND whatsapp_user_id = ?2 ORDER BY id";
/// ?3 is the id of a channel: a user with another one is another person.
const BY_PHONE: &str = "SELECT id, branch_id, locale, phone, whatsapp_user_id, active FROM users INDEXED BY users_by_phone
    WHERE tenant_id = ?1 AND phone_key = ?2 AND (?3 IS NULL OR whatsapp_user_id IS NULL) ORDER BY id";
const BY_ROLES: &str = "SELECT id, branch_id, locale, phone, whatsapp_user_id FROM users WHERE tenant_id = ?1 AND active AND id IN (
      SELECT held_roles.user_id FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
      WHERE held_roles.tenant_id = ?1 AND since <= ?3 AND ?3 < until AND roles.name IN (SELECT value FROM json_each(?2)))
    ORDER BY id";

impl People for SqliteStore {
    fn tenant(&self, name: String) -> StoreFuture<'_, Option<TenantRow>> {
        Box::pin(async move {
            let since = match self.cache.tenant(&name) {
                Ok(tenant) => return Ok(Some(tenant)),
                Err(since) => since,
            };
            let found = self.readers.look_up(|c| {
                let mut statement = c.prepare_cached("SELECT id, slug FROM tenants WHERE slug = ?1 OR id = lower(?1)")?;
                first(&mut statement, params![name], tenant)
            });
            let found = found.await?;
            if let Some(tenant) = &found {
                self.cache.keep_tenant(since, name, tenant.clone());
            }
            Ok(found)
        })
    }
    fn tenants(&self) -> StoreFuture<'_, Vec<TenantRow>> {
        Box::pin(self.readers.list(move |c| all(&mut *c.prepare_cached("SELECT id, slug FROM tenants ORDER BY slug")?, [], tenant)))
    }
    fn principal(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Option<Arc<Principal>>> {
        Box::pin(async move {
            let now = self.clock.now();
            let since = match self.cache.principal(tenant_id, &user_id, now) {
                Ok(principal) => return Ok(Some(principal)),
                Err(since) => since,
            };
            let found = self.readers.look_up(move |c| principal(c, tenant_id, user_id, now)).await?;
            let Some((principal, until)) = found else { return Ok(None) };
            let principal = Arc::new(principal);
            self.cache.keep_principal(since, &principal, until);
            Ok(Some(principal))
        })
    }
    fn users_by_address(
        &self,
        tenant_id: Uuid,
        channel_user_id: Option<String>,
        phone: Option<String>,
    ) -> StoreFuture<'_, Vec<PersonAddress>> {
        Box::pin(self.readers.look_up(move |c| {
            let (tenant, with_active) = (Id::from(tenant_id), |c: &mut Columns<'_>| Ok((person_address(c)?, c.flag()?)));
            let mut found = match &channel_user_id {
                Some(id) => all(&mut *c.prepare_cached(BY_CHANNEL_ID)?, params![tenant, id], with_active)?,
                None => Vec::new(),
            };
            if let Some(key) = phone.as_deref().and_then(canonical_phone).filter(|_| found.is_empty()) {
                found = all(&mut *c.prepare_cached(BY_PHONE)?, params![tenant, key, channel_user_id], with_active)?;
            }
            let all_active = found.iter().all(|(_, active)| *active);
            Ok(if all_active { found.into_iter().map(|(person, _)| person).collect() } else { Vec::new() })
        }))
    }
    fn users_with_roles(&self, tenant_id: Uuid, roles: Vec<String>) -> StoreFuture<'_, Vec<PersonAddress>> {
        let now = self.clock.now();
        Box::pin(self.readers.list(move |c| {
            let roles = serde_json::to_string(&roles).map_err(|error| StoreError::Broken(error.to_string()))?;
            all(&mut *c.prepare_cached(BY_ROLES)?, params![Id::from(tenant_id), roles, Stamp::from(now)], person_address)
        }))
    }
}

/// The statements whose query plans a test checks. `BY_ROLES` is not among them: it runs once per approval, and looks at the token roles
/// of every user of the tenant.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    [BY_CHANNEL_ID, BY_PHONE].map(str::to_owned).to_vec()
}

impl SqliteStore {
    /// A write about people, which clears the cache.
    pub(super) async fn about_people<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        // The cache is also cleared when the caller drops this future: the write still happens.
        let clear = ClearCache(self);
        let written = self.writer.submit(work).await;
        drop(clear);
        written
    }
}

struct ClearCache<'a>(&'a SqliteStore);

impl Drop for ClearCache<'_> {
    fn drop(&mut self) {
        self.0.cache.clear();
    }
}

pub(super) fn by_external_id(c: &Connection, tenant: &Id, external_id: &str) -> Result<Option<UserRow>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT id, first_name, last_name, token_roles, token_roles_until FROM users WHERE tenant_id = ?1 AND external_id = ?2",
    )?;
    first(&mut statement, params![tenant, external_id], user)
}

/// The user as of now, and when their roles change next: at the expiry of a token that is valid now.
fn principal(
    c: &Connection,
    tenant_id: Uuid,
    user_id: String,
    now: Timestamp,
) -> Result<Option<(Principal, Option<Timestamp>)>, StoreError> {
    let Ok(number) = user_id.parse::<i64>() else { return Ok(None) };
    let tenant = Id::from(tenant_id);
    // One snapshot, so that a role and its permissions belong together.
    let snapshot = c.unchecked_transaction()?;
    let mut person = snapshot.prepare_cached(
        "SELECT users.first_name, users.last_name, users.branch_id, users.locale,
           coalesce(users.time_zone, branches.time_zone, 'UTC'), tenants.slug, users.token_roles_until
         FROM users JOIN tenants ON tenants.id = users.tenant_id
           LEFT JOIN branches ON branches.tenant_id = users.tenant_id AND branches.id = users.branch_id
         WHERE users.tenant_id = ?1 AND users.id = ?2 AND users.active",
    )?;
    let found = first(&mut person, params![tenant, number], |columns| {
        let name = format!("{} {}", columns.text()?, columns.text()?).trim().to_owned();
        let (branch_id, locale, time_zone) = (columns.int_or_null()?, columns.text()?, columns.text()?);
        let (tenant_slug, until) = (columns.text()?, columns.time_or_null()?);
        let principal =
            Principal { tenant_id, tenant_slug, user_id, name, roles: Vec::new(), branch_id, locale, time_zone, permissions: Vec::new() };
        Ok((principal, until.filter(|until| *until > now)))
    })?;
    let Some((mut principal, until)) = found else { return Ok(None) };
    let now = Stamp::from(now);
    let mut roles = snapshot.prepare_cached(
        "SELECT roles.id, roles.name FROM held_roles JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
         WHERE held_roles.tenant_id = ?1 AND held_roles.user_id = ?2 AND since <= ?3 AND ?3 < until ORDER BY roles.id",
    )?;
    principal.roles = all(&mut roles, params![tenant, number, now], |columns| Ok(Role { id: columns.int()?, name: columns.text()? }))?;
    let mut permissions = snapshot.prepare_cached(
        "SELECT roles.name, entity, entity_type, access, scope FROM held_roles
         JOIN roles ON roles.tenant_id = held_roles.tenant_id AND roles.id = held_roles.role_id
         JOIN permissions ON permissions.tenant_id = held_roles.tenant_id AND permissions.role_id = held_roles.role_id
         WHERE held_roles.tenant_id = ?1 AND held_roles.user_id = ?2 AND since <= ?3 AND ?3 < until ORDER BY permissions.role_id, permissions.position",
    )?;
    principal.permissions = all(&mut permissions, params![tenant, number, now], |columns| {
        let (role, entity, entity_type) = (columns.text()?, columns.text()?, columns.text()?);
        let (access, scope) = (columns.parsed(Access::parse)?, columns.parsed(Scope::parse)?);
        Ok(HeldPermission { role, permission: Permission { entity, entity_type, access, scope } })
    })?;
    Ok(Some((principal, until)))
}
