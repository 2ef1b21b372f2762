//! The declaration of an MCP server, and its validation. Nothing is opened.

use std::collections::BTreeMap;

use http::HeaderMap;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use werkruf_contract::{Effect, Need, Trust};

use crate::declared_fields::{self, ConfigFault, Variables, expand};

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
    #[serde(default = "three")]
    pub attempts: u32,
    #[serde(default)]
    pub reuse_s: Option<u64>,
    #[serde(default = "three")]
    pub repeat_limit: u32,
    /// Calls of all tools of the server at the same time, at most.
    #[serde(default = "eight")]
    pub concurrency: usize,
    /// The largest answer.
    #[serde(default = "one_mebibyte")]
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

const fn three() -> u32 {
    3
}

const fn eight() -> usize {
    8
}

const fn one_mebibyte() -> u64 {
    1_048_576
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

    /// Identifies the declaration with its variables: another one needs another connection.
    pub(super) fn digest(&self, reach: &Reach) -> String {
        let mut digest = Sha256::new();
        digest.update(serde_json::to_vec(self).unwrap_or_default());
        match reach {
            Reach::Http { headers, .. } => headers.iter().for_each(|(name, value)| {
                digest.update(name.as_str());
                digest.update(value.as_bytes());
            }),
            Reach::Child { env, .. } => env.iter().for_each(|(name, value)| {
                digest.update(name);
                digest.update(value);
            }),
        }
        werkruf_contract::hex(&digest.finalize())
    }
}
