//! [`Credentials`] on SQLite.

use jiff::Timestamp;
use rusqlite::params;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::record;
use super::people_write as write;
use super::row::{self, all};
use super::text::{Id, Stamp};
use crate::audit::rotated;
use crate::{Author, Credentials, KeyRow, KeyUse, NewKey, StoreFuture};

impl Credentials for SqliteStore {
    fn rotate_key(&self, old: Uuid, old_ends: Timestamp, new: NewKey, by: Author) -> StoreFuture<'_, Option<KeyRow>> {
        let recorder = self.recorder.clone();
        Box::pin(self.about_people(move |c| {
            let Some(before) = write::key_by_id(c, new.tenant_id, old)? else { return Ok(None) };
            let sql = "UPDATE api_keys SET expires_at = min(coalesce(expires_at, ?3), ?3), replaced_by = ?4
                       WHERE tenant_id = ?1 AND id = ?2 AND replaced_by IS NULL";
            let values = params![Id::from(new.tenant_id), Id::from(old), Stamp::from(old_ends), Id::from(new.id)];
            if c.prepare_cached(sql)?.execute(values)? == 0 {
                return Ok(None);
            }
            let at = new.created_at;
            let made = write::create_key(c, new)?;
            record(c, &recorder, made.tenant_id, &by, &[rotated(&before, &made, old_ends)], at)?;
            Ok(Some(made))
        }))
    }

    fn keys_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(self.readers.list(move |c| {
            // One parameter: there may be more ids than a statement may have parameters.
            let sql = format!("SELECT {} FROM api_keys WHERE id IN (SELECT value FROM json_each(?1))", row::KEY);
            let mut statement = c.prepare_cached(&sql)?;
            all(&mut statement, params![serde_json::json!(ids).to_string()], row::key)
        }))
    }

    fn record_key_uses(&self, uses: Vec<KeyUse>) -> StoreFuture<'_, ()> {
        // The cache keeps its rows: nobody decides anything by this column.
        Box::pin(self.writer.submit(move |c| {
            let sql = "UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, ?3), ?3) WHERE tenant_id = ?1 AND id = ?2";
            let mut statement = c.prepare_cached(sql)?;
            for KeyUse { tenant_id, id, at } in &uses {
                statement.execute(params![Id::from(*tenant_id), Id::from(*id), Stamp::from(*at)])?;
            }
            Ok(())
        }))
    }

    fn unknown_roles(&self, tenant_id: Uuid, names: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.readers.list(move |c| {
            let mut statement = c.prepare_cached("SELECT 1 FROM roles WHERE tenant_id = ?1 AND name = ?2")?;
            let mut unknown = Vec::new();
            for name in names {
                if !statement.exists(params![Id::from(tenant_id), name])? {
                    unknown.push(name);
                }
            }
            Ok(unknown)
        }))
    }
}
