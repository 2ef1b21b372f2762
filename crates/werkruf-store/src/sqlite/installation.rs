//! [`Installation`] on SQLite.

use jiff::Timestamp;
use rusqlite::params;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::people_write as write;
use super::row::first;
use crate::{Installation, StoreFuture, TenantRow};

impl Installation for SqliteStore {
    fn ensure_tenant(&self, id: Uuid, slug: String, now: Timestamp) -> StoreFuture<'_, TenantRow> {
        Box::pin(self.about_people(move |c| write::ensure_tenant(c, id, &slug, now)))
    }

    fn setting(&self, name: String) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached("SELECT value FROM settings WHERE name = ?1")?;
            first(&mut statement, params![name], |columns| columns.text())
        }))
    }

    fn put_setting(&self, name: String, value: String) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            c.prepare_cached(sql)?.execute(params![name, value])?;
            Ok(())
        }))
    }
}
