//! [`IdentityStore`] on PostgreSQL.

use std::sync::Arc;

use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::DbRole;
use super::param::{clean_or_null, ms_or_null, p};
use super::people_write as write;
use super::row::{all, first, user};
use super::text::{clean, clean_json};
use crate::{IdentityStore, StoreError, StoreFuture, TokenRoles, UserRow};

impl IdentityStore for PostgresStore {
    fn user_by_external_id(&self, tenant_id: Uuid, external_id: String) -> StoreFuture<'_, Option<UserRow>> {
        Box::pin(async move {
            let external_id = clean(&external_id);
            let rows = self.query(DbRole::Tenant(tenant_id), write::BY_EXTERNAL_ID, &[p(&tenant_id), p(&external_id)]).await?;
            first(&rows, user)
        })
    }

    fn create_guest(&self, tenant_id: Uuid, user_id: Option<i64>, external_id: Option<String>, role: String) -> StoreFuture<'_, UserRow> {
        Box::pin(async move {
            let external_id = clean_or_null(external_id.as_deref()).map(|text| text.into_owned());
            let guest = Arc::new(write::Guest { tenant_id, user_id, external_id, role: clean(&role).into_owned() });
            self.with(DbRole::Tenant(tenant_id), move |transaction| {
                let guest = Arc::clone(&guest);
                Box::pin(async move { guest.make(transaction).await })
            })
            .await
        })
    }

    fn put_token_roles(&self, tenant_id: Uuid, user_id: i64, roles: Option<TokenRoles>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let text = roles.as_ref().map(serde_json::to_string).transpose().map_err(|error| StoreError::Broken(error.to_string()))?;
            let (text, until) = (text.as_deref().map(clean_json), ms_or_null(roles.map(|roles| roles.until)));
            let sql = "UPDATE users SET token_roles = $3::json, token_roles_until = $4 WHERE tenant_id = $1 AND id = $2 RETURNING id";
            let values = [p(&tenant_id), p(&user_id), (&text, Type::TEXT), p(&until)];
            match self.query(DbRole::Tenant(tenant_id), sql, &values).await?.len() {
                1 => Ok(()),
                _ => Err(StoreError::Moved { what: "user", id: user_id.to_string() }),
            }
        })
    }

    fn unknown_roles(&self, tenant_id: Uuid, names: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move {
            let names: Vec<String> = names.iter().map(|name| clean(name).into_owned()).collect();
            let sql = "SELECT named.name FROM unnest($2) AS named (name)
                       WHERE NOT EXISTS (SELECT 1 FROM roles WHERE roles.tenant_id = $1 AND roles.name = named.name)";
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), (&names as _, Type::TEXT_ARRAY)]).await?;
            all(&rows, |columns| columns.text())
        })
    }

    fn active_users(&self, users: Vec<(Uuid, i64)>) -> StoreFuture<'_, Vec<(Uuid, i64)>> {
        Box::pin(async move {
            let (tenants, ids): (Vec<Uuid>, Vec<i64>) = users.into_iter().unzip();
            let sql = "SELECT users.tenant_id, users.id FROM unnest($1::uuid[], $2::bigint[]) AS asked (tenant_id, id)
                JOIN users ON users.tenant_id = asked.tenant_id AND users.id = asked.id WHERE users.active";
            let rows = self.query(DbRole::System, sql, &[p(&tenants), p(&ids)]).await?;
            all(&rows, |columns| Ok((columns.id()?, columns.int()?)))
        })
    }
}
