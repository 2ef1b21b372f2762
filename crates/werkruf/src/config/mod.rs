//! The configuration: flags override the environment, which overrides `werkruf.toml`, which overrides the defaults.
//!
//! [`Config::load`] has no side effects except reading the named files. It finds every violation, not only the first.
//! Secrets are kept in types that never print their contents.

mod alerts;
mod budgets;
mod database;
mod embedding;
mod environment;
mod file;
#[cfg(feature = "flights")]
mod flights;
mod implicit;
mod limits;
mod merge;
mod model;
mod modules;
mod openai;
mod postgres;
mod prices;
mod reader;
mod suggestion;
mod template;
mod tls;
mod tokens;
mod traces;
mod unread;
mod violation;
mod webhooks;
mod whatsapp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
#[cfg(feature = "flights")]
use werkruf_flights::FlightsConfig;
use werkruf_llm::prices::PriceTable;
use werkruf_runtime::{AlertSettings, Assistant, Limits, SafetyProfile};
use werkruf_store::KeyRow;
use werkruf_tools::ToolSection;

pub use budgets::BudgetConfig;
pub(crate) use budgets::BudgetSubject;
pub use database::Database;
pub use embedding::EmbeddingServer;
pub(crate) use environment::Variable;
pub use environment::{Environment, variable_names};
pub use limits::{Connections, RequestRates};
pub(crate) use merge::DEFAULT_DATABASE;
pub use model::{ModelApi, ModelConfig, ModelServer};
pub use modules::ModulesOn;
pub use openai::OnDisconnect;
pub use postgres::PostgresConfig;
pub use reader::ReaderConfig;
pub(crate) use suggestion::advice;
pub use template::template;
pub use tokens::{IssuerKind, TokenIssuer, UnknownRoles};
pub use traces::TracesConfig;
pub use violation::ConfigViolation;
pub use webhooks::WebhookConfig;

use crate::listen::CertificateFiles;
use crate::whatsapp::WhatsAppSettings;
use file::{Document, Places};

/// The config file in the working directory that is read without `--config`.
pub const DEFAULT_FILE: &str = "werkruf.toml";

/// The flags of the command line. They are stored so that a reload uses the same ones.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub listen: Option<String>,
    pub database: Option<String>,
}

/// What to do with a user that does not exist in the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownUsers {
    /// 403 `unknown_user`.
    #[default]
    Refuse,
    /// A user row with the guest role is made.
    Guest,
}

/// `[auth]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    pub unknown_users: UnknownUsers,
    pub guest_role: String,
    /// Every key expires this many days after it was made, whatever its own `expires_at` says.
    pub key_max_age_days: Option<u32>,
}

impl AuthConfig {
    /// From this time on a key no longer counts.
    pub fn key_ends(&self, key: &KeyRow) -> Option<Timestamp> {
        let oldest = |days: u32| key.created_at.checked_add(SignedDuration::from_hours(24 * i64::from(days))).unwrap_or(Timestamp::MAX);
        let by_age = self.key_max_age_days.map(oldest);
        key.expires_at.into_iter().chain(by_age).min()
    }
}

/// `[retention]`: for how many days rows are kept. Rows without a setting are never deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionConfig {
    pub messages_days: Option<u32>,
    pub events_days: Option<u32>,
    pub calls_days: Option<u32>,
    pub usage_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A filter such as `info` or `werkruf=debug,info`.
    pub filter: String,
    /// `None`: text on a terminal, else JSON.
    pub format: Option<LogFormat>,
    /// The lines of function calls show the arguments, not only their names.
    pub arguments: bool,
}

/// The complete configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    pub listen: SocketAddr,
    pub database: Database,
    pub postgres: PostgresConfig,
    pub admin_key: Option<SecretString>,
    pub cors_origins: Vec<String>,
    /// The public address of this server, without a slash at the end.
    pub public_url: Option<String>,
    pub trusted_proxies: Vec<String>,
    /// `None`: plain HTTP.
    pub tls: Option<CertificateFiles>,
    pub limits: Limits,
    pub connections: Connections,
    pub requests: RequestRates,
    /// What the requests in progress may take of the memory, in bytes.
    pub bytes_in_flight: u64,
    pub auth: AuthConfig,
    pub retention: RetentionConfig,
    pub alerts: AlertSettings,
    /// The issuers whose tokens are accepted.
    pub tokens: Vec<TokenIssuer>,
    pub model: ModelConfig,
    /// The server that makes vectors; `None` means lexical search only.
    pub embedding: Option<EmbeddingServer>,
    /// The program that reads files.
    pub reader: ReaderConfig,
    /// The prices of models: the built-in table, overridden by the operator's.
    pub prices: Arc<PriceTable>,
    pub modules: ModulesOn,
    #[cfg(feature = "flights")]
    pub flights: FlightsConfig,
    pub whatsapp: WhatsAppSettings,
    /// The tools that `[whatsapp.keywords]` names, each with its place in the file.
    pub(crate) keyword_tools: Vec<(String, String)>,
    /// The variables that hold secrets of `[[whatsapp.numbers]]`.
    pub(crate) whatsapp_secrets: Vec<String>,
    /// Encrypts stored secrets; `None`: the key is in a file next to the database.
    pub secret_key: Option<SecretString>,
    pub log: LogConfig,
    /// Where metrics are served without a credential; `None`: only on the server's own address, for the operator.
    pub metrics_listen: Option<SocketAddr>,
    /// `None`: no traces are made.
    pub traces: Option<TracesConfig>,
    pub assistants: Vec<Assistant>,
    pub tools: Vec<ToolSection>,
    pub webhooks: Vec<WebhookConfig>,
    pub budgets: Vec<BudgetConfig>,
    /// Private networks that a tool may reach by a host name.
    pub egress: Vec<IpNet>,
    pub disabled_tools: Vec<String>,
    pub safety: HashMap<String, SafetyProfile>,
    /// What becomes of a turn whose client leaves its stream under `/v1`.
    pub on_disconnect: OnDisconnect,
    /// Whoever asked for a call cannot approve it. By default off where a demo runs: on a loopback bind without a config file.
    pub four_eyes: bool,
    /// Who decides whether the model's provider may run a call for which it asks.
    pub provider_role: String,
    /// `None`: on a loopback bind, for a new database, without a config file.
    pub sample_data: Option<bool>,
    pub test_tools: bool,
    pub clock_offset_s: i64,
    pub flags: Flags,
    pub environment: Environment,
    /// Variables that were probably meant as settings.
    pub warnings: Vec<ConfigViolation>,
    pub(crate) places: Places,
}

impl Config {
    /// Reads the configuration, or returns everything that is wrong with it.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, Vec<ConfigViolation>> {
        let (config, violations) = Self::examine(flags, environment);
        if violations.is_empty() { Ok(config) } else { Err(violations) }
    }

    /// Like [`Self::load`], but also returns the valid part of a configuration with violations, so that later checks can find
    /// more of them.
    pub(crate) fn examine(flags: &Flags, environment: &Environment) -> (Self, Vec<ConfigViolation>) {
        let mut violations = Vec::new();
        let document = read(flags, &mut violations);
        let config = merge::merge(&document, flags, environment, &mut violations);
        (config, violations)
    }

    /// The lock file to which `serve` writes its address and token; PostgreSQL has none.
    pub fn lock_path(&self) -> Option<PathBuf> {
        self.database.file().map(lock_path)
    }
}

/// `<db>.lock`.
pub(crate) fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

fn read(flags: &Flags, violations: &mut Vec<ConfigViolation>) -> Document {
    let path = flags.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    match std::fs::read_to_string(&path) {
        Ok(text) => Document::parse(path, &text, violations),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && flags.config.is_none() => Document::absent(),
        Err(error) => {
            let message = format!("cannot read {}: {error}; `werkruf init` writes a template", path.display());
            violations.push(ConfigViolation::new("--config", message));
            Document::absent()
        }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
