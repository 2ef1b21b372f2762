//! Why the server does not start.

use werkruf_store::StoreError;

use crate::config::{Config, ConfigViolation};

/// Why the server does not start. The operator can correct every one of these.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the configuration has {} error(s)", .0.len())]
    Config(Vec<ConfigViolation>),
    #[error("another werkruf holds {0}; stop it, or name another file with --database")]
    InUse(String),
    #[error("the database cannot be opened: {0}")]
    Store(StoreError),
    #[error("{name} cannot be opened: {error}{}", advice(.error))]
    Database { name: String, error: StoreError },
    #[error("cannot listen on {address}: {source}; stop the program that uses it, or choose another address with --listen")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("{0}")]
    Unusable(String),
    #[error("{0}")]
    Model(String),
    #[error("the HTTP client cannot be made: {0}")]
    Client(#[from] reqwest::Error),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(
        "{0} is not a loopback address, and there is no key to protect it (the demo key and expired keys do not count); set WERKRUF_ADMIN_KEY or make a key with `werkruf keys create`"
    )]
    Unprotected(std::net::SocketAddr),
    #[error(
        "Amadeus' token is stored in PostgreSQL, and nothing seals it; give every server the same WERKRUF_SECRET_KEY (`openssl rand -base64 32` makes one)"
    )]
    Unsealed,
    #[error("the sample data cannot be read: {0}")]
    Sample(#[from] serde_json::Error),
}

impl StartError {
    /// The code of a configuration with errors.
    pub const INVALID_CONFIG: &'static str = "invalid_config";

    /// The error of a PostgreSQL that cannot be opened, with its address.
    pub(crate) fn of_postgres(config: &Config, error: StoreError) -> Self {
        Self::Database { name: config.database.to_string(), error }
    }

    /// The code of a configuration with these errors: the special one that an error has, else the general one.
    pub fn code_of(violations: &[ConfigViolation]) -> &'static str {
        violations.iter().find_map(|violation| violation.code).unwrap_or(Self::INVALID_CONFIG)
    }

    /// The stable error code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Config(violations) => Self::code_of(violations),
            Self::InUse(_) => "database_in_use",
            Self::Store(error) | Self::Database { error, .. } => match error {
                StoreError::Full(_) => "storage_full",
                StoreError::Replaced(_) => "database_replaced",
                StoreError::Prerelease(_) => "schema_prerelease",
                StoreError::Foreign(_) => "database_unusable",
                _ => "database_unavailable",
            },
            Self::Unusable(_) => "database_unusable",
            Self::Model(_) => "model_not_configured",
            Self::Client(_) => "http_client",
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => "storage_full",
            Self::Io { .. } | Self::Listen { .. } => "io",
            Self::Unprotected(_) => "key_required",
            Self::Unsealed => "secret_key_required",
            Self::Sample(_) => "sample_data",
        }
    }
}

/// What to do about a database that cannot be used.
const fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable(_) => "; check the address in --database (WERKRUF_DATABASE), and that the database runs there",
        StoreError::Foreign(_) => {
            "; name another one with --database (WERKRUF_DATABASE), or another schema of PostgreSQL with WERKRUF_DATABASE_SCHEMA"
        }
        _ => "",
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InUse(path) => Self::InUse(path),
            other => Self::Store(other),
        }
    }
}
