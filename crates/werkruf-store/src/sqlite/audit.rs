//! [`Audit`] and [`AuditLog`] on SQLite, and the entries that other writes make in their own transaction.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{AUDIT, AUDIT_HEAD, all, audit, audit_head, first};
use super::text::{Id, Stamp, id_or_null};
use crate::{
    Act, Audit, AuditHead, AuditLog, AuditRow, Author, NewUser, Recorder, RoleWithPermissions, SecretKeys, StoreError, StoreFuture,
};

impl Audit for SqliteStore {
    fn secret_keys(&self) -> SecretKeys {
        self.recorder.keys.clone()
    }

    fn record(&self, tenant_id: Uuid, author: Author, act: Act, at: Timestamp) -> StoreFuture<'_, ()> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| record(c, &recorder, tenant_id, &author, &[act], at)))
    }
}

impl AuditLog for SqliteStore {
    fn audit_entries(&self, tenant_id: Uuid, after: i64, limit: u32) -> StoreFuture<'_, Vec<AuditRow>> {
        Box::pin(self.readers.list(move |c| {
            let sql = format!("SELECT {AUDIT} FROM audit_entries WHERE tenant_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3");
            all(&mut *c.prepare_cached(&sql)?, params![Id::from(tenant_id), after, limit], audit)
        }))
    }

    fn audit_head(&self, tenant_id: Uuid) -> StoreFuture<'_, Option<AuditHead>> {
        Box::pin(self.readers.look_up(move |c| head(c, tenant_id)))
    }

    fn audit_chains(&self) -> StoreFuture<'_, Vec<Uuid>> {
        let sql = "SELECT tenant_id FROM audit_heads UNION SELECT tenant_id FROM audit_entries ORDER BY tenant_id";
        Box::pin(self.readers.list(move |c| all(&mut *c.prepare_cached(sql)?, [], |columns| columns.id())))
    }

    fn sign_heads(&self, unsigned_too: bool) -> StoreFuture<'_, u64> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let mut signed = 0;
            let heads = all(&mut *c.prepare_cached(&format!("SELECT {AUDIT_HEAD} FROM audit_heads"))?, [], audit_head)?;
            for mut head in heads.into_iter().filter(|head| head.may_be_signed(&recorder.keys, unsigned_too)) {
                head.sign(&recorder.keys);
                put_head(c, &head)?;
                signed += 1;
            }
            Ok(signed)
        }))
    }
}

impl SqliteStore {
    /// What a module needs to write an entry with [`record`].
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }
}

/// Writes the entries of acts inside the caller's transaction. It must be the last write there.
pub fn record(
    c: &Connection,
    recorder: &Recorder,
    tenant_id: Uuid,
    author: &Author,
    acts: &[Act],
    at: Timestamp,
) -> Result<(), StoreError> {
    let mut head = head(c, tenant_id)?.unwrap_or_else(|| AuditHead::empty(tenant_id));
    let sql = format!("INSERT INTO audit_entries ({AUDIT}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)");
    let mut insert = c.prepare_cached(&sql)?;
    for row in recorder.append(&mut head, author, acts, at) {
        insert.execute(params![
            Id::from(row.tenant_id),
            row.seq,
            Stamp::from(row.at),
            row.actor.user_id,
            id_or_null(row.actor.key_id),
            row.actor.operator,
            row.address,
            row.action,
            row.subject,
            row.person,
            row.salt,
            row.before,
            row.after,
            row.before_digest,
            row.after_digest,
            row.hash,
        ])?;
    }
    put_head(c, &head)
}

/// The names of keys that signed a head and are not among these.
pub(super) fn missing_keys(c: &Connection, keys: &SecretKeys) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT key_name FROM audit_heads WHERE key_name IS NOT NULL";
    let names = all(&mut *c.prepare_cached(sql)?, [], |columns| columns.text())?;
    Ok(names.into_iter().filter(|name| keys.named(name).is_none()).collect())
}

fn head(c: &Connection, tenant_id: Uuid) -> Result<Option<AuditHead>, StoreError> {
    let mut statement = c.prepare_cached(&format!("SELECT {AUDIT_HEAD} FROM audit_heads WHERE tenant_id = ?1"))?;
    first(&mut statement, params![Id::from(tenant_id)], audit_head)
}

fn put_head(c: &Connection, head: &AuditHead) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO audit_heads ({AUDIT_HEAD}) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (tenant_id) DO UPDATE
        SET seq = excluded.seq, hash = excluded.hash, count = excluded.count, key_name = excluded.key_name, signature = excluded.signature"
    );
    let AuditHead { tenant_id, seq, hash, count, key_name, signature } = head;
    c.prepare_cached(&sql)?.execute(params![Id::from(*tenant_id), seq, hash, count, key_name, signature])?;
    Ok(())
}

/// Blanks the values that hold data of a person, and returns the numbers of the entries.
pub(super) fn blank(c: &Connection, tenant_id: Uuid, user_id: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "UPDATE audit_entries SET before = NULL, after = NULL, salt = NULL
        WHERE tenant_id = ?1 AND person = ?2 AND salt IS NOT NULL RETURNING seq";
    all(&mut *c.prepare_cached(sql)?, params![Id::from(tenant_id), user_id], |columns| columns.int())
}

/// The roles and users with these ids, as they are now.
pub(super) fn stored_people(
    c: &Connection,
    tenant: &Id,
    role_ids: &[i64],
    user_ids: &[i64],
) -> Result<(Vec<RoleWithPermissions>, Vec<NewUser>), StoreError> {
    let broken = |error: serde_json::Error| StoreError::Broken(error.to_string());
    let list = |ids: &[i64]| serde_json::to_string(ids).map_err(broken);
    let of =
        |json: &str, table: &str| format!("SELECT {json} FROM {table} WHERE tenant_id = ?1 AND id IN (SELECT value FROM json_each(?2))");
    let roles = all(&mut *c.prepare_cached(&of(ROLE_JSON, "roles"))?, params![tenant, list(role_ids)?], |columns| columns.text())?;
    let users = all(&mut *c.prepare_cached(&of(USER_JSON, "users"))?, params![tenant, list(user_ids)?], |columns| columns.text())?;
    let roles = roles.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>().map_err(broken)?;
    let users = users.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>().map_err(broken)?;
    Ok((roles, users))
}

/// A role with its permissions as JSON.
pub(super) const ROLE_JSON: &str = "json_object('id', id, 'name', name, 'permissions', json((
      SELECT json_group_array(json_object('entity', entity, 'entity_type', entity_type, 'access', access, 'scope', scope) ORDER BY position)
      FROM permissions WHERE permissions.tenant_id = roles.tenant_id AND role_id = roles.id)))";
/// A user with their roles as JSON.
pub(super) const USER_JSON: &str = "json_object('id', id, 'first_name', first_name, 'last_name', last_name, 'email', email, 'phone', phone,
      'whatsapp_user_id', whatsapp_user_id, 'external_id', external_id, 'locale', locale, 'time_zone', time_zone, 'branch_id', branch_id,
      'role_ids', json((SELECT json_group_array(role_id ORDER BY role_id) FROM user_roles
        WHERE user_roles.tenant_id = users.tenant_id AND user_id = users.id)), 'active', json(CASE active WHEN 1 THEN 'true' ELSE 'false' END))";
