//! [`Audit`] and [`AuditLog`] on PostgreSQL, and the entries that other writes make in their own transaction.

use std::sync::Arc;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::param::{clean_or_null, p};
use super::row::{AUDIT, AUDIT_HEAD, all, audit, audit_head, first, only};
use crate::{
    Act, Audit, AuditHead, AuditLog, AuditRow, Author, NewUser, Recorder, RoleWithPermissions, SecretKeys, StoreError, StoreFuture,
};

impl Audit for PostgresStore {
    fn secret_keys(&self) -> SecretKeys {
        self.recorder.keys.clone()
    }

    fn record(&self, tenant_id: Uuid, author: Author, act: Act, at: Timestamp) -> StoreFuture<'_, ()> {
        let entry = Arc::new((self.recorder.clone(), author, [act]));
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move { record(transaction, &entry.0, tenant_id, &entry.1, &entry.2, at).await })
        }))
    }
}

impl AuditLog for PostgresStore {
    fn audit_entries(&self, tenant_id: Uuid, after: i64, limit: u32) -> StoreFuture<'_, Vec<AuditRow>> {
        Box::pin(async move {
            let sql = format!("SELECT {AUDIT} FROM audit_entries WHERE tenant_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
            let limit = i64::from(limit);
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&after), p(&limit)]).await?, audit)
        })
    }

    fn audit_head(&self, tenant_id: Uuid) -> StoreFuture<'_, Option<AuditHead>> {
        Box::pin(async move {
            let sql = format!("SELECT {AUDIT_HEAD} FROM audit_heads WHERE tenant_id = $1 AND count > 0");
            first(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id)]).await?, audit_head)
        })
    }

    fn audit_chains(&self) -> StoreFuture<'_, Vec<Uuid>> {
        let sql = "SELECT tenant_id FROM audit_heads UNION SELECT tenant_id FROM audit_entries ORDER BY tenant_id";
        Box::pin(async move { all(&self.query(DbRole::System, sql, &[]).await?, |columns| columns.id()) })
    }

    fn sign_heads(&self, unsigned_too: bool) -> StoreFuture<'_, u64> {
        let recorder = self.recorder.clone();
        Box::pin(self.with(DbRole::System, move |transaction| {
            let keys = recorder.keys.clone();
            Box::pin(async move {
                let sql = format!("SELECT {AUDIT_HEAD} FROM audit_heads ORDER BY tenant_id FOR UPDATE");
                let heads = all(&transaction.query(&sql, &[]).await?, audit_head)?;
                let mut signed = 0;
                for mut head in heads.into_iter().filter(|head| head.may_be_signed(&keys, unsigned_too)) {
                    head.sign(&keys);
                    put_head(transaction, &head).await?;
                    signed += 1;
                }
                Ok(signed)
            })
        }))
    }
}

impl PostgresStore {
    /// What a module needs to write an entry with [`record`].
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }
}

/// Writes the entries of acts inside the caller's transaction, as the role of the tenant or of the system. It must be the last write
/// there: the head of the chain stays locked until the end.
pub async fn record(
    transaction: &Transaction,
    recorder: &Recorder,
    tenant_id: Uuid,
    author: &Author,
    acts: &[Act],
    at: Timestamp,
) -> Result<(), Fault> {
    let (head, rows) = entries(transaction, recorder, tenant_id, author, acts, at).await?;
    if let Some(row) = rows.first().filter(|_| transaction.is_retry())
        && is_recorded(transaction, row).await?
    {
        return Ok(());
    }
    put_entries(transaction, &head, &rows).await
}

/// The same for a transaction that knows that no earlier attempt was committed.
pub(super) async fn append(
    transaction: &Transaction,
    recorder: &Recorder,
    tenant_id: Uuid,
    author: &Author,
    acts: &[Act],
    at: Timestamp,
) -> Result<(), Fault> {
    let (head, rows) = entries(transaction, recorder, tenant_id, author, acts, at).await?;
    put_entries(transaction, &head, &rows).await
}

/// Locks the head of the chain, and makes the entries that follow it.
async fn entries(
    transaction: &Transaction,
    recorder: &Recorder,
    tenant_id: Uuid,
    author: &Author,
    acts: &[Act],
    at: Timestamp,
) -> Result<(AuditHead, Vec<AuditRow>), Fault> {
    let make = "INSERT INTO audit_heads (tenant_id, seq, hash, count) VALUES ($1, 0, '', 0) ON CONFLICT (tenant_id) DO NOTHING";
    let lock = format!("SELECT {AUDIT_HEAD} FROM audit_heads WHERE tenant_id = $1 FOR UPDATE");
    let tenant = [p(&tenant_id)];
    let found = transaction.run(&[Statement { sql: make, params: &tenant }, Statement { sql: &lock, params: &tenant }]).await?;
    let mut head = only(found.last().map_or(&[], Vec::as_slice), audit_head)?;
    let rows = recorder.append(&mut head, author, acts, at);
    Ok((head, rows))
}

async fn put_entries(transaction: &Transaction, head: &AuditHead, rows: &[AuditRow]) -> Result<(), Fault> {
    for row in rows {
        insert(transaction, row).await?;
    }
    put_head(transaction, head).await
}

/// Whether an earlier attempt, whose answer was lost, has written this entry. Entries of other writes may have come after it.
async fn is_recorded(transaction: &Transaction, row: &AuditRow) -> Result<bool, Fault> {
    let sql = "SELECT true FROM audit_entries WHERE tenant_id = $1 AND seq > $2 AND at = $3 AND action = $4 AND subject = $5
               AND user_id IS NOT DISTINCT FROM $6 AND key_id IS NOT DISTINCT FROM $7 LIMIT 1";
    let (after, action, subject) = (row.seq - 1000, row.action.as_str(), row.subject.as_str());
    let user_id = clean_or_null(row.actor.user_id.as_deref());
    let values = [p(&row.tenant_id), p(&after), p(&row.at), p(&action), p(&subject), p(&user_id), p(&row.actor.key_id)];
    Ok(!transaction.query(sql, &values).await?.is_empty())
}

async fn insert(transaction: &Transaction, row: &AuditRow) -> Result<(), Fault> {
    let sql = format!("INSERT INTO audit_entries ({AUDIT}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)");
    let (user_id, address) = (clean_or_null(row.actor.user_id.as_deref()), clean_or_null(row.address.as_deref()));
    let (action, subject, hash) = (row.action.as_str(), row.subject.as_str(), row.hash.as_str());
    let (person, salt) = (clean_or_null(row.person.as_deref()), row.salt.as_deref());
    let (before, after) = (row.before.as_deref(), row.after.as_deref());
    let (before_digest, after_digest) = (row.before_digest.as_deref(), row.after_digest.as_deref());
    let values = [
        p(&row.tenant_id),
        p(&row.seq),
        p(&row.at),
        p(&user_id),
        p(&row.actor.key_id),
        p(&row.actor.operator),
        p(&address),
        p(&action),
        p(&subject),
        p(&person),
        p(&salt),
        p(&before),
        p(&after),
        p(&before_digest),
        p(&after_digest),
        p(&hash),
    ];
    transaction.query(&sql, &values).await.map(|_| ())
}

async fn put_head(transaction: &Transaction, head: &AuditHead) -> Result<(), Fault> {
    let sql = "UPDATE audit_heads SET seq = $2, hash = $3, count = $4, key_name = $5, signature = $6 WHERE tenant_id = $1";
    let (hash, key_name, signature) = (head.hash.as_str(), head.key_name.as_deref(), head.signature.as_deref());
    let values = [p(&head.tenant_id), p(&head.seq), p(&hash), p(&head.count), p(&key_name), p(&signature)];
    transaction.query(sql, &values).await.map(|_| ())
}

/// Blanks the values that hold data of a person, and returns the numbers of the entries.
pub(super) async fn blank(transaction: &Transaction, tenant_id: Uuid, user_id: &str) -> Result<Vec<i64>, Fault> {
    let rows = transaction.query("SELECT blank_audit_values($1, $2)", &[p(&tenant_id), p(&user_id)]).await?;
    Ok(all(&rows, |columns| columns.int())?)
}

/// The roles and users with these ids, as they are now.
pub(super) async fn stored_people(
    transaction: &Transaction,
    tenant_id: Uuid,
    role_ids: Vec<i64>,
    user_ids: Vec<i64>,
) -> Result<(Vec<RoleWithPermissions>, Vec<NewUser>), Fault> {
    let (of_roles, of_users) = ([p(&tenant_id), p(&role_ids)], [p(&tenant_id), p(&user_ids)]);
    let of = |json: &str, table: &str| format!("SELECT {json} FROM {table} WHERE tenant_id = $1 AND id = ANY ($2)");
    let (roles, users) = (of(ROLE_JSON, "roles"), of(USER_JSON, "users"));
    let found = transaction.run(&[Statement { sql: &roles, params: &of_roles }, Statement { sql: &users, params: &of_users }]).await?;
    let [roles, users] = &found[..] else { return Err(StoreError::Broken("a result is missing".to_owned()).into()) };
    Ok((parsed(roles)?, parsed(users)?))
}

fn parsed<T: DeserializeOwned>(rows: &[Row]) -> Result<Vec<T>, StoreError> {
    all(rows, |columns| serde_json::from_str(&columns.text()?).map_err(|error| StoreError::Broken(error.to_string())))
}

/// A role with its permissions as JSON.
pub(super) const ROLE_JSON: &str = "json_build_object('id', id, 'name', name, 'permissions', coalesce((
      SELECT json_agg(json_build_object('entity', entity, 'entity_type', entity_type, 'access', access, 'scope', scope) ORDER BY position)
      FROM permissions WHERE permissions.tenant_id = roles.tenant_id AND role_id = roles.id), '[]'))::text";
/// A user with their roles as JSON.
pub(super) const USER_JSON: &str =
    "json_build_object('id', id, 'first_name', first_name, 'last_name', last_name, 'email', email, 'phone', phone,
      'whatsapp_user_id', whatsapp_user_id, 'external_id', external_id, 'locale', locale, 'time_zone', time_zone, 'branch_id', branch_id,
      'role_ids', coalesce((SELECT json_agg(role_id ORDER BY role_id) FROM user_roles
        WHERE user_roles.tenant_id = users.tenant_id AND user_id = users.id), '[]'), 'active', active)::text";
