//! `werkruf knowledge rights COLLECTION`: shows or changes who may read and write a collection.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::backend::Backend;
use crate::cli::error::CliError;
use crate::cli::{encode, print};

#[derive(Debug, Args)]
pub(in crate::cli) struct Rights {
    collection: String,
    /// Roles that may read, separated by commas; * for everybody, an empty list for administrators only
    #[arg(long, value_name = "ROLES")]
    read: Option<String>,
    /// Roles that may add and delete documents, separated by commas; administrators always may
    #[arg(long, value_name = "ROLES")]
    write: Option<String>,
    /// Whether its texts may steer an assistant
    #[arg(long, value_parser = ["trusted", "untrusted"])]
    trust: Option<String>,
}

impl Rights {
    /// Whether rights are set and not only shown.
    pub(in crate::cli) const fn changes(&self) -> bool {
        self.read.is_some() || self.write.is_some() || self.trust.is_some()
    }

    pub(super) async fn run(&self, backend: &Backend, as_json: bool) -> Result<(), CliError> {
        let path = format!("/api/knowledge/collections/{}/rights", encode(&self.collection));
        let known = backend.get(&path).await;
        if self.read.is_none() && self.write.is_none() && self.trust.is_none() {
            return known.map(|rights| show(&rights, as_json));
        }
        let known = match known {
            Err(CliError::Refused { code, .. }) if code == "not_found" => json!({"read": ["*"], "write": []}),
            other => other?,
        };
        let list = |given: &Option<String>, name: &str| given.as_deref().map_or_else(|| known[name].clone(), roles);
        let mut body = json!({"read": list(&self.read, "read"), "write": list(&self.write, "write")});
        if let Some(trust) = &self.trust {
            body["trust"] = json!(trust);
        }
        backend.put(&path, &body).await.map(|rights| show(&rights, as_json))
    }
}

fn roles(list: &str) -> Value {
    list.split(',').map(str::trim).filter(|role| !role.is_empty()).collect()
}

fn show(rights: &Value, as_json: bool) {
    if as_json {
        return print::json(rights);
    }
    for name in ["read", "write"] {
        let roles: Vec<&str> = rights[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let roles = if roles.is_empty() { "administrators only".to_owned() } else { roles.join(", ") };
        print::line(&print::harmless(&format!("{name:<6} {roles}")));
    }
    print::line(&format!("trust  {}", print::field(rights, "trust")));
}
