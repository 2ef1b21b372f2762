//! The declaration of an MCP server, and its validation. Nothing is opened.

use std::collections::BTreeMap;

use http::HeaderMap;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use werkruf_contract::{Effect, Need, Trust};
use werkruf_llm::Egress;

use super::oauth::LoginSettings;
use crate::declared_fields::{self, ConfigFault, Variables, expand, variable};

/// A name leaves room for the names of the server's tools.
const LONGEST_NAME: usize = 32;
/// The protocol sets these itself.
const RESERVED_HEADERS: [&str; 8] =
    ["accept", "content-type", "content-length", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id", "transfer-encoding"];

/// What the operator says about one tool of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpToolSettings {
    pub effect: Option<String>,
    pub permission: Option<String>,
    pub approval: Option<String>,
    pub external: Option<bool>,
}

/// One `[[tools]]` entry with `kind = "mcp"`: a server whose tools all become tools here.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The prefix of the tools' names.
    #[serde(default)]
    pub name: String,
    /// The address of a server that speaks streamable HTTP.
    #[serde(default)]
    pub url: Option<String>,
    /// The program of a server that speaks over its standard input and output.
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub args: Vec<String>,
    /// The variables that the program gets, beside a few harmless ones; `${ENV_NAME}` stands for a variable of the server's own environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Additional request headers; `${ENV_NAME}` stands for an environment variable.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `oauth`: each person has an account of their own at the server; `none`: all calls have the credential of `headers`.
    #[serde(default)]
    pub auth: Option<String>,
    /// The client that this installation is at the authorization server; without it the installation registers itself.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The variable with the secret of that client.
    #[serde(default)]
    pub client_secret_env: Option<String>,
    /// The rights to ask for; without them, those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The only authorization server that is used, as its metadata names it; without it, the one that the server names.
    #[serde(default)]
    pub issuer: Option<String>,
    /// The effect of tools without settings of their own.
    #[serde(default = "once")]
    pub effect: String,
    /// The permission that the caller needs, as `entity:entity_type:access`, or `none`.
    #[serde(default)]
    pub permission: Option<String>,
    /// The role that must approve each call.
    #[serde(default)]
    pub approval: Option<String>,
    /// Whether the arguments leave the company.
    #[serde(default)]
    pub external: bool,
    /// The slugs or ids of the tenants that have the tools; empty: all tenants.
    #[serde(default)]
    pub tenants: Vec<String>,
    #[serde(default = "untrusted")]
    pub trust: Trust,
    /// The timeout of one attempt of a call.
    #[serde(default = "one_minute")]
    pub timeout_ms: u64,
    /// Attempts in all, the first included; a `once` tool has one.
    #[serde(default = "declared_fields::three")]
    pub attempts: u32,
    #[serde(default)]
    pub reuse_s: Option<u64>,
    #[serde(default = "declared_fields::three")]
    pub repeat_limit: u32,
    /// Calls of all tools of the server at the same time, at most.
    #[serde(default = "eight")]
    pub concurrency: usize,
    /// The largest answer.
    #[serde(default = "declared_fields::one_mebibyte")]
    pub max_response_bytes: u64,
    /// How often the list of tools is asked for.
    #[serde(default = "sixty")]
    pub refresh_s: u64,
    /// Settings of single tools, by the server's own names.
    #[serde(default)]
    pub tools: BTreeMap<String, McpToolSettings>,
}

fn once() -> String {
    "once".to_owned()
}

const fn untrusted() -> Trust {
    Trust::Untrusted
}

const fn one_minute() -> u64 {
    60_000
}

const fn sixty() -> u64 {
    60
}

const fn eight() -> usize {
    8
}

/// How a server is reached, with all variables filled in.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Reach {
    Http { url: Url, headers: HeaderMap },
    Child { command: String, args: Vec<String>, env: Vec<(String, String)> },
}

/// What counts for one tool: its own settings, else those of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolRules {
    pub(super) effect: Effect,
    pub(super) permission: Option<Need>,
    pub(super) approval: Option<String>,
    pub(super) external: bool,
}

/// Prints only the name, because headers may contain a secret from the file.
impl std::fmt::Debug for McpServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServerConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

impl McpServerConfig {
    /// Everything that is wrong with the declaration; `env` reads the environment.
    pub fn faults(&self, env: Variables<'_>) -> Vec<ConfigFault> {
        let mut faults: Vec<ConfigFault> = declared_fields::name_faults(&self.name).into_iter().collect();
        if self.name.len() > LONGEST_NAME {
            faults.push(ConfigFault::new("/name", format!("is the prefix of the tools' names; use at most {LONGEST_NAME} characters")));
        }
        faults.extend(declared_fields::zero_faults([
            ("/timeout_ms", self.timeout_ms),
            ("/attempts", u64::from(self.attempts)),
            ("/repeat_limit", u64::from(self.repeat_limit)),
            ("/concurrency", self.concurrency as u64),
            ("/refresh_s", self.refresh_s),
            ("/max_response_bytes", self.max_response_bytes),
        ]));
        faults.extend(self.reach(env).err());
        faults.extend(self.login(env).err());
        faults.extend(self.rule_faults());
        faults
    }

    fn rule_faults(&self) -> Vec<ConfigFault> {
        let mut faults: Vec<ConfigFault> = declared_fields::effect("/effect", &self.effect).err().into_iter().collect();
        faults.extend(declared_fields::need("/permission", self.permission.as_ref()).err());
        faults.extend(declared_fields::approval_fault("/approval", self.approval.as_ref()));
        for (name, settings) in &self.tools {
            let path = |key: &str| format!("/tools/{name}/{key}");
            faults.extend(settings.effect.as_ref().and_then(|effect| declared_fields::effect(&path("effect"), effect).err()));
            let permission = settings.permission.as_ref();
            faults.extend(permission.and_then(|_| declared_fields::need(&path("permission"), permission).err()));
            faults.extend(declared_fields::approval_fault(&path("approval"), settings.approval.as_ref()));
        }
        faults
    }

    /// What counts for the tool that the server calls by this name.
    pub(super) fn rules(&self, tool: &str) -> Result<ToolRules, ConfigFault> {
        let none = McpToolSettings::default();
        let own = self.tools.get(tool).unwrap_or(&none);
        Ok(ToolRules {
            effect: declared_fields::effect("/effect", own.effect.as_ref().unwrap_or(&self.effect))?,
            permission: declared_fields::need("/permission", own.permission.as_ref().or(self.permission.as_ref()))?,
            approval: own.approval.clone().or_else(|| self.approval.clone()),
            external: own.external.unwrap_or(self.external),
        })
    }

    /// How the server is reached.
    pub(super) fn reach(&self, env: Variables<'_>) -> Result<Reach, ConfigFault> {
        match (&self.url, &self.command) {
            (Some(url), None) => {
                if !self.args.is_empty() || !self.env.is_empty() {
                    return Err(ConfigFault::new(
                        "/url",
                        "`args` and `env` are for a program; remove them, or write `command` instead of `url`",
                    ));
                }
                Ok(Reach::Http {
                    url: declared_fields::address(url)?,
                    headers: declared_fields::header_map(&self.headers, &RESERVED_HEADERS, env)?,
                })
            }
            (None, Some(command)) => {
                if !self.headers.is_empty() {
                    return Err(ConfigFault::new("/headers", "are for a server with a `url`; remove them"));
                }
                if command.trim().is_empty() {
                    return Err(ConfigFault::new("/command", "is empty; name the program"));
                }
                let expanded = |(name, text): (&String, &String)| {
                    let text = expand(text, env).map_err(|message| ConfigFault::new(&format!("/env/{name}"), message))?;
                    Ok((name.clone(), text))
                };
                let env = self.env.iter().map(expanded).collect::<Result<Vec<_>, _>>()?;
                Ok(Reach::Child { command: command.clone(), args: self.args.clone(), env })
            }
            (Some(_), Some(_)) => Err(ConfigFault::new("/command", "and `url` are both set; write one of them")),
            (None, None) => Err(ConfigFault::new("/url", "is missing; write the `url` of the server, or the `command` that starts it")),
        }
    }

    /// How a person logs in at the server; `None` where people have no accounts of their own there.
    pub(super) fn login(&self, env: Variables<'_>) -> Result<Option<LoginSettings>, ConfigFault> {
        match self.auth.as_deref() {
            None | Some("none") => {
                let set = [
                    ("/client_id", self.client_id.is_some()),
                    ("/client_secret_env", self.client_secret_env.is_some()),
                    ("/scopes", !self.scopes.is_empty()),
                    ("/issuer", self.issuer.is_some()),
                ];
                let fault = |(path, _): (&str, bool)| ConfigFault::new(path, "is for auth = \"oauth\"; remove it, or set auth");
                set.into_iter().find(|(_, is_set)| *is_set).map(fault).map_or(Ok(None), Err)
            }
            Some("oauth") => self.oauth(env).map(Some),
            Some(other) => Err(ConfigFault::new("/auth", format!("`{other}` is no way to log in; write \"oauth\" or \"none\""))),
        }
    }

    fn oauth(&self, env: Variables<'_>) -> Result<LoginSettings, ConfigFault> {
        if self.url.is_none() {
            return Err(ConfigFault::new("/auth", "is for a server with a `url`; a program gets its credential in `env`"));
        }
        if let Some(name) = self.headers.keys().find(|name| name.eq_ignore_ascii_case("authorization")) {
            let message = "is the credential of the person with auth = \"oauth\"; remove one of them";
            return Err(ConfigFault::new(&format!("/headers/{name}"), message));
        }
        if self.client_secret_env.is_some() && self.client_id.is_none() {
            return Err(ConfigFault::new("/client_secret_env", "belongs to a client_id, which is missing"));
        }
        if self.client_secret_env.is_some() && self.issuer.is_none() {
            let message = "is missing; without it client_secret_env is sent to whatever authorization server the MCP server names";
            return Err(ConfigFault::new("/issuer", message));
        }
        if self.issuer.as_deref().is_some_and(|issuer| !is_issuer(issuer)) {
            let message =
                "is no issuer; write the address that the authorization server's metadata has as `issuer`, https and without a query";
            return Err(ConfigFault::new("/issuer", message));
        }
        if let Some(at) = self.scopes.iter().position(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
            return Err(ConfigFault::new(&format!("/scopes/{at}"), "is no scope; write each scope as a text of its own, without spaces"));
        }
        let secret = |name: &String| variable(name, env).map_err(|message| ConfigFault::new("/client_secret_env", message));
        Ok(LoginSettings {
            client_id: self.client_id.clone(),
            client_secret: self.client_secret_env.as_ref().map(secret).transpose()?,
            scopes: self.scopes.clone(),
            issuer: self.issuer.clone(),
        })
    }

    /// Identifies the declaration with its variables, and the addresses that may be reached: another one needs another connection.
    pub(super) fn digest(&self, reach: &Reach, login: Option<&LoginSettings>, egress: &Egress) -> String {
        let mut digest = Sha256::new();
        digest.update(serde_json::to_vec(self).unwrap_or_default());
        match reach {
            Reach::Http { headers, .. } => {
                digest.update(egress.to_string());
                headers.iter().for_each(|(name, value)| {
                    digest.update(name.as_str());
                    digest.update(value.as_bytes());
                });
            }
            Reach::Child { env, .. } => env.iter().for_each(|(name, value)| {
                digest.update(name);
                digest.update(value);
            }),
        }
        digest.update(login.and_then(|login| login.client_secret.as_deref()).unwrap_or_default());
        werkruf_contract::hex(&digest.finalize())
    }
}

/// Whether an authorization server may be called so (RFC 8414). Which addresses may be plain HTTP is decided where they are used.
fn is_issuer(text: &str) -> bool {
    let is_plain = |url: &Url| url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "https" | "http") && url.has_host() && is_plain(&url))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::McpServerConfig;

    fn faults(more: &Value) -> Vec<String> {
        let mut config = json!({"name": "calendar", "permission": "none", "url": "https://mcp.example/mcp"});
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let config: McpServerConfig = serde_json::from_value(config).unwrap();
        let env = |name: &str| (name == "SECRET").then(|| "secret".to_owned());
        config.faults(&env).into_iter().map(|fault| fault.path).collect()
    }

    #[test]
    fn a_login_of_each_person_needs_an_address_and_no_other_credential() {
        assert_eq!(faults(&json!({"auth": "oauth"})), Vec::<String>::new());
        assert_eq!(
            faults(
                &json!({"auth": "oauth", "client_id": "a", "client_secret_env": "SECRET", "scopes": ["read"], "issuer": "https://a.example"})
            ),
            Vec::<String>::new()
        );
        assert_eq!(faults(&json!({"auth": "oauth", "client_id": "a", "client_secret_env": "SECRET"})), ["/issuer"], "sent to anybody");
        for wrong in ["", "login.example", "https://a.example/?x", "https://a.example/#x", "ftp://a.example", "https://u:p@a.example"] {
            assert_eq!(faults(&json!({"auth": "oauth", "issuer": wrong})), ["/issuer"], "{wrong}");
        }
        assert_eq!(faults(&json!({"issuer": "https://a.example"})), ["/issuer"]);
        assert_eq!(faults(&json!({"auth": "oauth", "headers": {"Authorization": "Bearer x"}})), ["/headers/Authorization"]);
        assert_eq!(faults(&json!({"auth": "oauth", "url": null, "command": "python3"})), ["/auth"]);
        assert_eq!(faults(&json!({"auth": "basic"})), ["/auth"]);
        assert_eq!(faults(&json!({"auth": "oauth", "client_secret_env": "SECRET"})), ["/client_secret_env"]);
        assert_eq!(
            faults(&json!({"auth": "oauth", "client_id": "a", "client_secret_env": "UNSET", "issuer": "https://a.example"})),
            ["/client_secret_env"]
        );
        assert_eq!(faults(&json!({"auth": "oauth", "scopes": ["read write"]})), ["/scopes/0"]);
        assert_eq!(faults(&json!({"scopes": ["read"]})), ["/scopes"]);
    }
}
