//! Writes people. A batch is sent as JSON, one statement per table, however many rows it has.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio_postgres::types::{ToSql, Type};
use werkruf_contract::Uuid;

use super::fault::Fault;
use super::flush::{Param, Statement, Transaction};
use super::param::p;
use super::row::{first, user};
use super::text::clean_json;
use crate::{PeopleBatch, StoreError, UserRow, canonical_phone};

macro_rules! user_where {
    ($condition:literal) => {
        concat!("SELECT id, first_name, last_name, token_roles, token_roles_until FROM users WHERE tenant_id = $1 AND ", $condition)
    };
}

pub(super) const BY_EXTERNAL_ID: &str = user_where!("external_id = $2");
const BY_NUMBER: &str = user_where!("id = $2");

/// Two processes may choose the same new number; the later one tries the next.
pub(super) const MAX_ATTEMPTS: usize = 100;

/// A user who is created unless one exists.
pub(super) struct Guest {
    pub(super) tenant_id: Uuid,
    pub(super) user_id: Option<i64>,
    pub(super) external_id: Option<String>,
    pub(super) role: String,
}

impl Guest {
    /// A user with the number or the external id is returned unchanged.
    pub(super) async fn make(&self, transaction: &Transaction) -> Result<UserRow, Fault> {
        let Self { tenant_id, user_id, external_id, role } = self;
        create_guest(transaction, *tenant_id, *user_id, external_id.as_deref(), role).await
    }
}

async fn create_guest(
    transaction: &Transaction,
    tenant_id: Uuid,
    user_id: Option<i64>,
    external_id: Option<&str>,
    role: &str,
) -> Result<UserRow, Fault> {
    let named = "SELECT id FROM roles WHERE tenant_id = $1 AND name = $2 ORDER BY id LIMIT 1";
    for _ in 0..MAX_ATTEMPTS {
        if let Some(number) = user_id
            && let Some(known) = first(&transaction.query(BY_NUMBER, &[p(&tenant_id), p(&number)]).await?, user)?
        {
            return Ok(known);
        }
        if let Some(external_id) = external_id
            && let Some(known) = first(&transaction.query(BY_EXTERNAL_ID, &[p(&tenant_id), p(&external_id)]).await?, user)?
        {
            return Ok(known);
        }
        let role_id = first(&transaction.query(named, &[p(&tenant_id), p(&role)]).await?, |columns| columns.int())?
            .ok_or_else(|| StoreError::Moved { what: "role", id: role.to_owned() })?;
        let sql = "INSERT INTO users (tenant_id, id, first_name, last_name, external_id, locale)
                   VALUES ($1, coalesce($2, (SELECT coalesce(max(id), 0) + 1 FROM users WHERE tenant_id = $1)), 'Guest', '', $3, 'en-US')
                   ON CONFLICT DO NOTHING RETURNING id, first_name, last_name, token_roles, token_roles_until";
        let created = transaction.query(sql, &[p(&tenant_id), p(&user_id), p(&external_id)]).await?;
        if let Some(created) = first(&created, user)? {
            let sql = "INSERT INTO user_roles (tenant_id, user_id, role_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            transaction.query(sql, &[p(&tenant_id), p(&created.id), p(&role_id)]).await?;
            return Ok(created);
        }
    }
    Err(StoreError::Unavailable("other processes took every new user number".to_owned()).into())
}

const BRANCHES: &str = "INSERT INTO branches (tenant_id, id, name, time_zone)
    SELECT $1, id, name, time_zone FROM json_to_recordset($2::json) AS given (id bigint, name text, time_zone text)
    ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name, time_zone = excluded.time_zone";

const ROLES: &str = "INSERT INTO roles (tenant_id, id, name)
    SELECT $1, id, name FROM json_to_recordset($2::json) AS given (id bigint, name text)
    ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name";

const NO_PERMISSIONS: &str = "DELETE FROM permissions WHERE tenant_id = $1
    AND role_id IN (SELECT id FROM json_to_recordset($2::json) AS given (id bigint))";

const PERMISSIONS: &str = "INSERT INTO permissions (tenant_id, role_id, position, entity, entity_type, access, scope)
    SELECT $1, role_id, position, entity, entity_type, access, scope FROM json_to_recordset($2::json)
      AS given (role_id bigint, position bigint, entity text, entity_type text, access text, scope text)";

const USERS: &str =
    "INSERT INTO users (tenant_id, id, first_name, last_name, email, phone, whatsapp_user_id, external_id, locale, time_zone,
      branch_id, phone_key, active)
    SELECT $1, given.id, given.first_name, given.last_name, given.email, given.phone, given.whatsapp_user_id, given.external_id, given.locale,
      given.time_zone, given.branch_id, given.phone_key, coalesce(given.active, users.active, true)
    FROM json_to_recordset($2::json) AS given (id bigint, first_name text, last_name text, email text, phone text, whatsapp_user_id text,
      external_id text, locale text, time_zone text, branch_id bigint, phone_key text, active boolean)
      LEFT JOIN users ON users.tenant_id = $1 AND users.id = given.id
    ON CONFLICT (tenant_id, id) DO UPDATE SET first_name = excluded.first_name, last_name = excluded.last_name, email = excluded.email,
      phone = excluded.phone, whatsapp_user_id = excluded.whatsapp_user_id, external_id = excluded.external_id,
      locale = excluded.locale, time_zone = excluded.time_zone, branch_id = excluded.branch_id, token_roles = NULL,
      token_roles_until = NULL, phone_key = excluded.phone_key, active = excluded.active";

const NO_USER_ROLES: &str = "DELETE FROM user_roles WHERE tenant_id = $1
    AND user_id IN (SELECT id FROM json_to_recordset($2::json) AS given (id bigint))";

const USER_ROLES: &str = "INSERT INTO user_roles (tenant_id, user_id, role_id)
    SELECT $1, user_id, role_id FROM json_to_recordset($2::json) AS given (user_id bigint, role_id bigint) ON CONFLICT DO NOTHING";

/// A batch as JSON, table by table, in the order in which it is written: each may refer to the ones before.
pub(super) struct People {
    steps: Vec<(&'static str, String)>,
}

impl People {
    pub(super) fn new(batch: &PeopleBatch) -> Self {
        let branches = batch.branches.iter().map(|branch| json!({"id": branch.id, "name": branch.name, "time_zone": branch.time_zone}));
        // The same id twice in one batch: the last one counts, as it would row by row.
        let roles = text(last(batch.roles.iter().map(|role| (role.id, json!({"id": role.id, "name": role.name})))));
        let permissions = last(batch.roles.iter().map(|role| (role.id, &role.permissions))).into_iter().flat_map(|(role_id, list)| {
            list.iter().zip(0_i64..).map(move |(permission, position)| {
                json!({"role_id": role_id, "position": position, "entity": permission.entity, "entity_type": permission.entity_type,
                       "access": permission.access.as_str(), "scope": permission.scope.as_str()})
            })
        });
        let users = text(last(batch.users.iter().map(|user| {
            let row = json!({"id": user.id, "first_name": user.first_name, "last_name": user.last_name, "email": user.email,
                "phone": user.phone, "whatsapp_user_id": user.whatsapp_user_id, "external_id": user.external_id, "locale": user.locale,
                "time_zone": user.time_zone, "branch_id": user.branch_id, "phone_key": user.phone.as_deref().and_then(canonical_phone),
                "active": user.active});
            (user.id, row)
        })));
        let role_ids = last(batch.users.iter().map(|user| (user.id, &user.role_ids)));
        let user_roles = role_ids
            .into_iter()
            .flat_map(|(user_id, roles)| roles.iter().map(move |role_id| json!({"user_id": user_id, "role_id": role_id})));
        Self {
            steps: vec![
                (BRANCHES, text(last(branches.map(|row| (row["id"].as_i64().unwrap_or(0), row))))),
                (ROLES, roles.clone()),
                (NO_PERMISSIONS, roles),
                (PERMISSIONS, Value::from_iter(permissions).to_string()),
                (USERS, users.clone()),
                (NO_USER_ROLES, users),
                (USER_ROLES, Value::from_iter(user_roles).to_string()),
            ]
            .into_iter()
            .map(|(sql, rows)| (sql, clean_json(&rows).into_owned()))
            .collect(),
        }
    }

    /// The values of each step, for one tenant.
    pub(super) fn params<'a>(&'a self, tenant_id: &'a Uuid) -> Vec<[Param<'a>; 2]> {
        self.steps.iter().map(|(_, rows)| [p(tenant_id), (rows as &(dyn ToSql + Sync), Type::TEXT)]).collect()
    }

    pub(super) fn statements<'a>(&self, params: &'a [[Param<'a>; 2]]) -> Vec<Statement<'a>> {
        self.steps.iter().zip(params).map(|((sql, _), params)| Statement { sql, params }).collect()
    }
}

/// The last of each id.
fn last<T>(rows: impl Iterator<Item = (i64, T)>) -> BTreeMap<i64, T> {
    rows.collect()
}

fn text(rows: BTreeMap<i64, Value>) -> String {
    Value::from_iter(rows.into_values()).to_string()
}
