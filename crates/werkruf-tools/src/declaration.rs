//! An entry of `[[tools]]`: the keys of all kinds, and which kind may have which.
//!
//! The file is read into one flat type, so that a wrong value keeps its own line. `ToolSection::config` then makes the type of its kind.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use werkruf_contract::Trust;

use crate::declared_fields::ConfigFault;
use crate::http_tool::HttpToolConfig;
use crate::mcp::{McpServerConfig, McpToolSettings};
use crate::sql_tool::SqlToolConfig;

/// The keys of every kind.
const OF_ALL: &[&str] =
    &["name", "approval", "permission", "tenants", "trust", "timeout_ms", "attempts", "reuse_s", "repeat_limit", "max_response_bytes"];
const OF_HTTP: &[&str] =
    &["description", "url", "method", "effect", "external", "price_usd", "headers", "traceparent", "secret_env", "answer", "parameters"];
const OF_SQL: &[&str] = &["description", "database", "query", "parameters", "max_rows", "concurrency"];
const OF_MCP: &[&str] = &[
    "url",
    "command",
    "args",
    "env",
    "headers",
    "auth",
    "client_id",
    "client_secret_env",
    "scopes",
    "issuer",
    "effect",
    "external",
    "concurrency",
    "refresh_s",
    "tools",
];

macro_rules! section {
    ($($name:ident: $type:ty,)*) => {
        /// One of `[[tools]]` as it is written. The types of the kinds say what each key means.
        #[derive(Clone, Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct ToolSection {
            /// `http` if it is left out.
            #[serde(skip_serializing)]
            pub kind: Option<String>,
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }
    };
}

section! {
    name: String,
    description: String,
    url: String,
    method: String,
    effect: String,
    timeout_ms: u64,
    attempts: u32,
    reuse_s: u64,
    repeat_limit: u32,
    approval: String,
    permission: String,
    tenants: Vec<String>,
    trust: Trust,
    external: bool,
    price_usd: String,
    max_response_bytes: u64,
    headers: BTreeMap<String, String>,
    traceparent: bool,
    secret_env: String,
    answer: String,
    parameters: String,
    database: String,
    query: String,
    max_rows: usize,
    concurrency: usize,
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    auth: String,
    client_id: String,
    client_secret_env: String,
    scopes: Vec<String>,
    issuer: String,
    refresh_s: u64,
    tools: BTreeMap<String, McpToolSettings>,
}

/// Prints only the name, because values may be secrets from the file.
impl std::fmt::Debug for ToolSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSection").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A declaration by its kind.
#[derive(Debug, Clone)]
pub enum ToolConfig {
    Http(Box<HttpToolConfig>),
    Sql(Box<SqlToolConfig>),
    Mcp(Box<McpServerConfig>),
}

impl ToolSection {
    /// The name; empty where it is missing.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Whether a tool of this name is, or may be, one of the entry: the tools of an MCP server are known when it answers.
    pub fn may_have(&self, tool: &str) -> bool {
        match self.kind.as_deref() {
            Some("mcp") => tool.strip_prefix(self.name()).is_some_and(|rest| rest.len() > 1 && rest.starts_with('_')),
            _ => self.name() == tool,
        }
    }

    /// The texts in which `${ENV_NAME}` stands for a variable, each with its place.
    pub fn texts_with_variables(&self) -> Vec<(String, &str)> {
        let tables = [("headers", &self.headers), ("env", &self.env)];
        let in_tables = tables
            .into_iter()
            .flat_map(|(list, table)| table.iter().flatten().map(move |(name, text)| (format!("/{list}/{name}"), text.as_str())));
        in_tables.chain(self.database.as_deref().map(|text| ("/database".to_owned(), text))).collect()
    }

    /// The type of its kind, or the keys that do not belong to it.
    pub fn config(&self) -> Result<ToolConfig, Vec<ConfigFault>> {
        match self.kind.as_deref() {
            None | Some("http") => self.as_kind("http", OF_HTTP).map(ToolConfig::Http),
            Some("sql") => self.as_kind("sql", OF_SQL).map(ToolConfig::Sql),
            Some("mcp") => self.as_kind("mcp", OF_MCP).map(ToolConfig::Mcp),
            Some(other) => {
                let message = format!("`{other}` is no kind of tool; write \"http\", \"sql\" or \"mcp\"");
                Err(vec![ConfigFault::new("/kind", message)])
            }
        }
    }

    fn as_kind<T: DeserializeOwned>(&self, kind: &str, own: &[&str]) -> Result<Box<T>, Vec<ConfigFault>> {
        // A section has only texts, numbers, lists and tables of them, which always serialize.
        let Ok(Value::Object(keys)) = serde_json::to_value(self) else { return Err(Vec::new()) };
        let belongs = |key: &String| OF_ALL.contains(&key.as_str()) || own.contains(&key.as_str());
        let (known, foreign): (Map<String, Value>, Map<String, Value>) = keys.into_iter().partition(|(key, _)| belongs(key));
        if !foreign.is_empty() {
            let fault = |key: &String| ConfigFault::new(&format!("/{key}"), format!("is no key of kind = \"{kind}\"; remove it"));
            return Err(foreign.keys().map(fault).collect());
        }
        serde_json::from_value(Value::Object(known)).map(Box::new).map_err(|error| vec![ConfigFault::new("", error.to_string())])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ToolConfig, ToolSection};

    fn section(value: serde_json::Value) -> ToolSection {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_kind_decides_which_keys_are_allowed() {
        assert!(matches!(section(json!({"name": "a", "url": "http://x"})).config(), Ok(ToolConfig::Http(_))));
        assert!(
            matches!(section(json!({"kind": "sql", "name": "a", "max_rows": 3})).config(), Ok(ToolConfig::Sql(config)) if config.max_rows == 3)
        );
        assert!(matches!(section(json!({"kind": "mcp", "name": "a", "command": "x"})).config(), Ok(ToolConfig::Mcp(_))));
        let faults = |value| section(value).config().unwrap_err().into_iter().map(|fault| fault.path).collect::<Vec<_>>();
        assert_eq!(faults(json!({"kind": "sql", "url": "http://x", "query": "q"})), ["/url"]);
        assert_eq!(faults(json!({"kind": "mcp", "parameters": "{}"})), ["/parameters"]);
        assert_eq!(faults(json!({"query": "q"})), ["/query"]);
        assert_eq!(faults(json!({"kind": "grpc"})), ["/kind"]);
    }

    #[test]
    fn the_tools_of_a_server_are_known_by_their_prefix() {
        let server = section(json!({"kind": "mcp", "name": "files"}));
        assert!(server.may_have("files_read") && !server.may_have("files") && !server.may_have("filesread") && !server.may_have("files_"));
        assert!(section(json!({"name": "files"})).may_have("files"));
    }

    #[test]
    fn texts_with_variables_have_their_places() {
        let server = section(json!({"kind": "mcp", "headers": {"A": "${X}"}, "env": {"B": "${Y}"}, "database": "${Z}"}));
        let texts: Vec<(String, &str)> = server.texts_with_variables();
        assert_eq!(texts, [("/headers/A".to_owned(), "${X}"), ("/env/B".to_owned(), "${Y}"), ("/database".to_owned(), "${Z}")]);
    }
}
