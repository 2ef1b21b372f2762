//! Writes of people, tenants and API keys.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::people::by_external_id;
use super::row::{KEY, first, key, tenant, user};
use super::text::{Id, Stamp, id_or_null, stamp_or_null};
use crate::{
    Branch, KeyRow, NewKey, NewUser, PeopleBatch, RoleWithPermissions, StoreError, TenantRow, TokenRoles, UserRow, canonical_phone,
};

pub(super) fn ensure_tenant(c: &Connection, id: Uuid, slug: &str, now: Timestamp) -> Result<TenantRow, StoreError> {
    let id = Id::from(id);
    c.prepare_cached("INSERT INTO tenants (id, slug, created_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?.execute(params![
        id,
        slug,
        Stamp::from(now)
    ])?;
    // Where slug and id belong to different tenants, the slug decides, because it is what people type.
    let mut statement = c.prepare_cached("SELECT id, slug FROM tenants WHERE slug = ?1 OR id = ?2 ORDER BY slug = ?1 DESC LIMIT 1")?;
    first(&mut statement, params![slug, id], tenant)?.ok_or_else(|| StoreError::Broken(format!("tenant {slug} was not stored")))
}

/// A user with this id or external id is returned unchanged.
pub(super) fn create_guest(
    c: &Connection,
    tenant: &Id,
    user_id: Option<i64>,
    external_id: Option<&str>,
    role: &str,
) -> Result<UserRow, StoreError> {
    let mut by_number =
        c.prepare_cached("SELECT id, first_name, last_name, token_roles, token_roles_until FROM users WHERE tenant_id = ?1 AND id = ?2")?;
    if let Some(number) = user_id
        && let Some(known) = first(&mut by_number, params![tenant, number], user)?
    {
        return Ok(known);
    }
    if let Some(external_id) = external_id
        && let Some(known) = by_external_id(c, tenant, external_id)?
    {
        return Ok(known);
    }
    let mut by_name = c.prepare_cached("SELECT id FROM roles WHERE tenant_id = ?1 AND name = ?2 ORDER BY id LIMIT 1")?;
    let role_id = first(&mut by_name, params![tenant, role], |columns| columns.int())?
        .ok_or_else(|| StoreError::Moved { what: "role", id: role.to_owned() })?;
    let mut insert = c.prepare_cached(
        "INSERT INTO users (tenant_id, id, first_name, last_name, external_id, locale)
         VALUES (?1, coalesce(?2, (SELECT coalesce(max(id), 0) + 1 FROM users WHERE tenant_id = ?1)), 'Guest', '', ?3, 'en-US')
         RETURNING id, first_name, last_name, token_roles, token_roles_until",
    )?;
    let made = first(&mut insert, params![tenant, user_id, external_id], user)?
        .ok_or_else(|| StoreError::Broken("a guest was not stored".to_owned()))?;
    hold_role(c, tenant, made.id, role_id)?;
    Ok(made)
}

/// Stores the roles of a token. They count until the token expires, another token replaces them, or [`put`] writes the user.
pub(super) fn put_token_roles(c: &Connection, tenant: &Id, user_id: i64, roles: Option<&TokenRoles>) -> Result<(), StoreError> {
    let text = roles.map(serde_json::to_string).transpose().map_err(|error| StoreError::Broken(error.to_string()))?;
    let mut statement = c.prepare_cached("UPDATE users SET token_roles = ?3, token_roles_until = ?4 WHERE tenant_id = ?1 AND id = ?2")?;
    match statement.execute(params![tenant, user_id, text, stamp_or_null(roles.map(|roles| roles.until))])? {
        1 => Ok(()),
        _ => Err(StoreError::Moved { what: "user", id: user_id.to_string() }),
    }
}

pub(super) fn hold_role(c: &Connection, tenant: &Id, user_id: i64, role_id: i64) -> Result<(), StoreError> {
    c.prepare_cached("INSERT INTO user_roles (tenant_id, user_id, role_id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
        .execute(params![tenant, user_id, role_id])?;
    Ok(())
}

/// Writes branches, then roles, then users: each may refer to the ones before.
pub(super) fn put(c: &Connection, tenant: &Id, batch: &PeopleBatch) -> Result<(), StoreError> {
    for branch in &batch.branches {
        put_branch(c, tenant, branch)?;
    }
    for role in &batch.roles {
        put_role(c, tenant, role)?;
    }
    for person in &batch.users {
        put_user(c, tenant, person)?;
    }
    Ok(())
}

pub(super) fn put_branch(c: &Connection, tenant: &Id, branch: &Branch) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO branches (tenant_id, id, name, time_zone) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name, time_zone = excluded.time_zone",
    )?
    .execute(params![tenant, branch.id, branch.name, branch.time_zone])?;
    Ok(())
}

pub(super) fn put_role(c: &Connection, tenant: &Id, role: &RoleWithPermissions) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO roles (tenant_id, id, name) VALUES (?1, ?2, ?3)
         ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name",
    )?
    .execute(params![tenant, role.id, role.name])?;
    c.prepare_cached("DELETE FROM permissions WHERE tenant_id = ?1 AND role_id = ?2")?.execute(params![tenant, role.id])?;
    for (permission, position) in role.permissions.iter().zip(0_i64..) {
        c.prepare_cached(
            "INSERT INTO permissions (tenant_id, role_id, position, entity, entity_type, access, scope)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            tenant,
            role.id,
            position,
            permission.entity,
            permission.entity_type,
            permission.access.as_str(),
            permission.scope.as_str(),
        ])?;
    }
    Ok(())
}

fn put_user(c: &Connection, tenant: &Id, person: &NewUser) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO users (tenant_id, id, first_name, last_name, email, phone, whatsapp_user_id, external_id, locale, time_zone,
           branch_id, phone_key, active) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, coalesce(?13, true))
         ON CONFLICT (tenant_id, id) DO UPDATE SET first_name = excluded.first_name, last_name = excluded.last_name,
           email = excluded.email, phone = excluded.phone, whatsapp_user_id = excluded.whatsapp_user_id,
           external_id = excluded.external_id, locale = excluded.locale, time_zone = excluded.time_zone, branch_id = excluded.branch_id,
           token_roles = NULL, token_roles_until = NULL, phone_key = excluded.phone_key, active = coalesce(?13, active)",
    )?
    .execute(params![
        tenant,
        person.id,
        person.first_name,
        person.last_name,
        person.email,
        person.phone,
        person.whatsapp_user_id,
        person.external_id,
        person.locale,
        person.time_zone,
        person.branch_id,
        person.phone.as_deref().and_then(canonical_phone),
        person.active,
    ])?;
    c.prepare_cached("DELETE FROM user_roles WHERE tenant_id = ?1 AND user_id = ?2")?.execute(params![tenant, person.id])?;
    for role_id in &person.role_ids {
        hold_role(c, tenant, person.id, *role_id)?;
    }
    Ok(())
}

pub(super) fn key_by_id(c: &Connection, tenant_id: Uuid, id: Uuid) -> Result<Option<KeyRow>, StoreError> {
    let mut statement = c.prepare_cached(&format!("SELECT {KEY} FROM api_keys WHERE tenant_id = ?1 AND id = ?2"))?;
    first(&mut statement, params![Id::from(tenant_id), Id::from(id)], key)
}

pub(super) fn create_key(c: &Connection, key: NewKey) -> Result<KeyRow, StoreError> {
    c.prepare_cached(
        "INSERT INTO api_keys (id, tenant_id, digest, user_id, scopes, name, expires_at, created_at, allow_ips, safety_mode, collection,
           root_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        Id::from(key.id),
        Id::from(key.tenant_id),
        key.digest.0,
        key.user_id,
        key.scopes.names().join(","),
        key.name,
        stamp_or_null(key.expires_at),
        Stamp::from(key.created_at),
        key.stored_ips(),
        key.safety_mode,
        key.collection,
        id_or_null(key.root_id),
    ])?;
    Ok(key.into_row())
}
