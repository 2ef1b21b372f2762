//! The declaration of a SQL tool, and its validation. Nothing is opened.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{Need, Shape, Trust};
use werkruf_store::{Dialect, NamedQuery, OperatorDatabase, OperatorPostgres, OperatorSqlite};

use crate::declared_fields::{self, ConfigFault, Variables, expand};

/// The parameters that say who calls.
const OF_THE_CALLER: [&str; 3] = ["tenant_id", "user_id", "branch_id"];

/// One `[[tools]]` entry with `kind = "sql"`. A missing field is read as an empty one, so that all faults are found in one pass.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SqlToolConfig {
    /// The name that the model calls.
    #[serde(default)]
    pub name: String,
    /// What the query finds, for the model.
    #[serde(default)]
    pub description: String,
    /// `postgres://…` or `sqlite:FILE`; `${ENV_NAME}` stands for an environment variable.
    #[serde(default)]
    pub database: String,
    /// One statement that reads, with parameters as `:name`.
    #[serde(default)]
    pub query: String,
    /// A JSON Schema of type object, as text.
    #[serde(default)]
    pub parameters: String,
    /// At most so many rows are returned.
    #[serde(default = "two_hundred")]
    pub max_rows: usize,
    /// The timeout of one attempt; ten seconds if it is left out.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Attempts in all, the first included.
    #[serde(default = "declared_fields::three")]
    pub attempts: u32,
    /// How long an identical call may reuse the result; inside the turn if it is left out.
    #[serde(default)]
    pub reuse_s: Option<u64>,
    /// How often one turn may make the very same call.
    #[serde(default = "declared_fields::three")]
    pub repeat_limit: u32,
    /// Calls at the same time at most, which is also the number of connections.
    #[serde(default = "four")]
    pub concurrency: usize,
    /// The role that must approve each call.
    #[serde(default)]
    pub approval: Option<String>,
    /// The permission that the caller needs, as `entity:entity_type:access`, or `none`.
    #[serde(default)]
    pub permission: Option<String>,
    /// The slugs or ids of the tenants that have the tool; empty: all tenants.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// `untrusted`: strangers may write what the rows hold.
    #[serde(default)]
    pub trust: Trust,
    /// The largest result as JSON.
    #[serde(default = "declared_fields::one_mebibyte")]
    pub max_response_bytes: u64,
}

const fn two_hundred() -> usize {
    200
}

const fn four() -> usize {
    4
}

/// Prints only the name, because the address may contain a password.
impl std::fmt::Debug for SqlToolConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlToolConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SqlToolConfig {
    /// Bounds the timeout of a tool that names none by the limit for tools.
    pub fn bound_timeout(&mut self, limit_ms: u64) {
        self.timeout_ms = declared_fields::bounded_timeout(self.timeout_ms, limit_ms);
    }

    /// Everything that is wrong with the declaration; `env` reads the environment.
    pub fn faults(&self, env: Variables<'_>) -> Vec<ConfigFault> {
        let mut faults: Vec<ConfigFault> = declared_fields::name_faults(&self.name).into_iter().collect();
        faults.extend(declared_fields::description_fault(&self.description));
        faults.extend(declared_fields::zero_faults([
            ("/timeout_ms", declared_fields::timeout_ms(self.timeout_ms)),
            ("/attempts", u64::from(self.attempts)),
            ("/repeat_limit", u64::from(self.repeat_limit)),
            ("/max_rows", self.max_rows as u64),
            ("/concurrency", self.concurrency as u64),
            ("/max_response_bytes", self.max_response_bytes),
        ]));
        faults.extend(declared_fields::approval_fault("/approval", self.approval.as_ref()));
        faults.extend(self.need().err());
        let schema = self.schema();
        let query = self.query(env);
        if let (Ok((schema, _)), Ok(query)) = (&schema, &query) {
            faults.extend(parameter_faults(schema, query));
        }
        faults.extend(schema.err());
        match query {
            Ok(query) => faults.extend(self.open(query, env).err()),
            Err(fault) => faults.push(fault),
        }
        faults
    }

    pub(super) fn need(&self) -> Result<Option<Need>, ConfigFault> {
        declared_fields::need("/permission", self.permission.as_ref())
    }

    pub(super) fn schema(&self) -> Result<(Value, Shape), ConfigFault> {
        declared_fields::schema(&self.parameters)
    }

    /// The query, by the rules of its database.
    pub(super) fn query(&self, env: Variables<'_>) -> Result<NamedQuery, ConfigFault> {
        let dialect = match self.address(env)? {
            Address::Postgres(_) => Dialect::Postgres,
            Address::Sqlite(_) => Dialect::Sqlite,
        };
        NamedQuery::parse(&self.query, dialect).map_err(|message| ConfigFault::new("/query", message))
    }

    /// The database with its query. Opens nothing.
    pub(super) fn open(&self, query: NamedQuery, env: Variables<'_>) -> Result<Arc<dyn OperatorDatabase>, ConfigFault> {
        match self.address(env)? {
            Address::Sqlite(path) => Ok(Arc::new(OperatorSqlite::new(path, query))),
            Address::Postgres(url) => {
                let opened = OperatorPostgres::new(&url, self.concurrency, query);
                // The message of a wrong address may quote it.
                let opened =
                    opened.map_err(|_| ConfigFault::new("/database", "is no address of a PostgreSQL; write postgres://USER@HOST/DATABASE"));
                Ok(Arc::new(opened?))
            }
        }
    }

    fn address(&self, env: Variables<'_>) -> Result<Address, ConfigFault> {
        let fault = |message: String| ConfigFault::new("/database", message);
        let text = expand(&self.database, env).map_err(fault)?;
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Address::Postgres(text));
        }
        match text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")) {
            Some(file) if !file.is_empty() && file != ":memory:" => Ok(Address::Sqlite(PathBuf::from(file))),
            _ => Err(fault(
                "names no database; write postgres://USER@HOST/DATABASE or sqlite:FILE, or ${ENV_NAME} with one of them".to_owned(),
            )),
        }
    }

    /// Identifies this declaration, so that results of a different declaration are never reused.
    pub(super) fn digest(&self) -> String {
        declared_fields::digest(self)
    }
}

enum Address {
    Postgres(String),
    Sqlite(PathBuf),
}

/// Every parameter of the query is an argument or the caller's, and every argument is used.
fn parameter_faults(schema: &Value, query: &NamedQuery) -> Vec<ConfigFault> {
    let arguments: Vec<&String> = declared_fields::properties(schema).map(|(name, _)| name).collect();
    let mut faults = Vec::new();
    for name in &arguments {
        if OF_THE_CALLER.contains(&name.as_str()) {
            let message = format!("`{name}` is always the caller's, so it is no argument; remove it from `parameters`");
            faults.push(ConfigFault::new("/parameters", message));
        } else if !query.names().contains(name) {
            faults.push(ConfigFault::new("/parameters", format!("`{name}` is not used in the query; use it as :{name}, or remove it")));
        }
    }
    let unknown = query.names().iter().filter(|name| !OF_THE_CALLER.contains(&name.as_str()) && !arguments.contains(name));
    let message = |name: &String| format!("`:{name}` is no argument; add `{name}` to the properties of `parameters`");
    faults.extend(unknown.map(|name| ConfigFault::new("/query", message(name))));
    faults
}
