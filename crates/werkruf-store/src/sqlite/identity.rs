//! [`IdentityStore`] on SQLite.

use rusqlite::params;
use serde_json::json;
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::people::by_external_id;
use super::people_write as write;
use super::row::all;
use super::text::Id;
use crate::{IdentityStore, StoreFuture, TokenRoles, UserRow};

impl IdentityStore for SqliteStore {
    fn user_by_external_id(&self, tenant_id: Uuid, external_id: String) -> StoreFuture<'_, Option<UserRow>> {
        Box::pin(self.readers.look_up(move |c| by_external_id(c, &Id::from(tenant_id), &external_id)))
    }

    fn create_guest(&self, tenant_id: Uuid, user_id: Option<i64>, external_id: Option<String>, role: String) -> StoreFuture<'_, UserRow> {
        Box::pin(self.about_people(move |c| write::create_guest(c, &Id::from(tenant_id), user_id, external_id.as_deref(), &role)))
    }

    fn put_token_roles(&self, tenant_id: Uuid, user_id: i64, roles: Option<TokenRoles>) -> StoreFuture<'_, ()> {
        Box::pin(self.about_people(move |c| write::put_token_roles(c, &Id::from(tenant_id), user_id, roles.as_ref())))
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

    fn active_users(&self, users: Vec<(Uuid, i64)>) -> StoreFuture<'_, Vec<(Uuid, i64)>> {
        Box::pin(self.readers.list(move |c| {
            let sql = "SELECT users.tenant_id, users.id FROM json_each(?1) AS asked
                JOIN users ON users.tenant_id = asked.value ->> 0 AND users.id = asked.value ->> 1 WHERE users.active";
            all(&mut *c.prepare_cached(sql)?, params![json!(users).to_string()], |columns| Ok((columns.id()?, columns.int()?)))
        }))
    }
}
