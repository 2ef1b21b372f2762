//! [`Keys`] and [`ManageKeys`] on SQLite.

use jiff::Timestamp;
use rusqlite::params;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::record;
use super::people_write as write;
use super::records::List;
use super::row::{self, all, first};
use super::text::{Id, Stamp};
use crate::audit::{created, revoked, rotated};
use crate::{Author, KeyDigest, KeyRow, KeyUse, Keys, ManageKeys, NewKey, Page, StoreFuture};

impl Keys for SqliteStore {
    fn key_by_digest(&self, digest: KeyDigest) -> StoreFuture<'_, Option<KeyRow>> {
        Box::pin(async move {
            let since = match self.cache.key(&digest.0) {
                Ok(key) => return Ok(Some(key)),
                Err(since) => since,
            };
            let sql = format!("SELECT {} FROM api_keys WHERE digest = ?1", row::KEY);
            let found = self.readers.look_up(|c| first(&mut *c.prepare_cached(&sql)?, params![digest.0], row::key)).await?;
            if let Some(key) = &found {
                self.cache.keep_key(since, digest.0, key.clone());
            }
            Ok(found)
        })
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
}

impl ManageKeys for SqliteStore {
    fn create_key(&self, key: NewKey, by: Author) -> StoreFuture<'_, KeyRow> {
        let recorder = self.recorder.clone();
        Box::pin(self.about_people(move |c| {
            let made = write::create_key(c, key)?;
            record(c, &recorder, made.tenant_id, &by, &[created(&made)], made.created_at)?;
            Ok(made)
        }))
    }

    fn keys(&self, tenant_id: Uuid, page: Page) -> StoreFuture<'_, Vec<KeyRow>> {
        Box::pin(self.readers.list(move |c| List::new(row::KEY, "api_keys", tenant_id).page(c, page, row::key)))
    }

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

    fn delete_key(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let (recorder, at) = (self.recorder.clone(), self.clock.now());
        Box::pin(self.about_people(move |c| {
            let Some(key) = write::key_by_id(c, tenant_id, id)? else { return Ok(false) };
            c.prepare_cached("DELETE FROM api_keys WHERE tenant_id = ?1 AND id = ?2")?
                .execute(params![Id::from(tenant_id), Id::from(id)])?;
            record(c, &recorder, tenant_id, &by, &[revoked(&key)], at)?;
            Ok(true)
        }))
    }
}
