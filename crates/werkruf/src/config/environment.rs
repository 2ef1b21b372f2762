//! The environment variables, read once. Nothing else in this crate reads the process environment, so tests can pass their
//! own.

use std::collections::HashMap;
use std::sync::Arc;

use super::limits;

/// A variable this release reads. The documentation lists exactly these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable(&'static str);

macro_rules! variables {
    ($($name:ident),+ $(,)?) => {
        impl Variable {
            $(pub(crate) const $name: Self = Self(stringify!($name));)+
            /// All but the limits.
            const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}

variables! {
    OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL, OPENAI_API, OPENAI_MAX_OUTPUT_TOKENS,
    WERKRUF_MODEL, WERKRUF_LISTEN, WERKRUF_DATABASE, WERKRUF_ADMIN_KEY, WERKRUF_SERVER, WERKRUF_KEY,
    WERKRUF_CORS_ORIGINS, WERKRUF_PUBLIC_URL, WERKRUF_TRUSTED_PROXIES, WERKRUF_METRICS_LISTEN, WERKRUF_LOG, WERKRUF_LOG_FORMAT, WERKRUF_LOG_ARGUMENTS,
    WERKRUF_SAMPLE_DATA, WERKRUF_TEST_TOOLS, WERKRUF_CLOCK_OFFSET_S, WERKRUF_RECORD_WIRE, SUPABASE_URL, SUPABASE_JWT_SECRET,
    WERKRUF_PRICES, SEATSAERO_API_KEY, SEATSAERO_BASE_URL, SEATSAERO_DAILY_QUOTA, AMADEUS_API_KEY, AMADEUS_API_SECRET, AMADEUS_ENV,
    AMADEUS_BASE_URL, DUFFEL_API_KEY, DUFFEL_BASE_URL, FLIGHTS_DEADLINE_MS, FLIGHTS_CACHE_S, WERKRUF_SECRET_KEY,
    WERKRUF_DATABASE_SCHEMA, WERKRUF_DATABASE_CONNECTIONS, WERKRUF_DATABASE_POLL_ONLY,
    OPENAI_EMBEDDING_MODEL, OPENAI_EMBEDDING_BASE_URL, OPENAI_EMBEDDING_API_KEY, OPENAI_EMBEDDING_LANGUAGES,
    WERKRUF_EMBEDDING_DIR, WERKRUF_READER, WERKRUF_TLS_CERT, WERKRUF_TLS_KEY, WERKRUF_ALERT_WEBHOOK_URL, WERKRUF_ALERT_WEBHOOK_SECRET,
    WHATSAPP_ACCESS_TOKEN, WHATSAPP_APP_SECRET, WHATSAPP_VERIFY_TOKEN, WHATSAPP_BASE_URL, WHATSAPP_API_VERSION,
    WHATSAPP_PHONE_NUMBER_ID, WHATSAPP_TENANT, WHATSAPP_BRANCH_ID, WHATSAPP_RECONCILE_S,
}

impl Variable {
    /// The secrets of the server itself.
    pub(crate) const SECRETS: [Self; 14] = [
        Self::OPENAI_API_KEY,
        Self::OPENAI_EMBEDDING_API_KEY,
        Self::WERKRUF_ADMIN_KEY,
        Self::WERKRUF_SECRET_KEY,
        Self::WERKRUF_KEY,
        Self::SUPABASE_JWT_SECRET,
        Self::SEATSAERO_API_KEY,
        Self::AMADEUS_API_KEY,
        Self::AMADEUS_API_SECRET,
        Self::DUFFEL_API_KEY,
        Self::WERKRUF_ALERT_WEBHOOK_SECRET,
        Self::WHATSAPP_ACCESS_TOKEN,
        Self::WHATSAPP_APP_SECRET,
        Self::WHATSAPP_VERIFY_TOKEN,
    ];

    /// The variable's name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// The names of all variables this release reads, limits included.
pub fn variable_names() -> Vec<String> {
    Variable::ALL.iter().map(|variable| variable.0.to_owned()).chain(limits::names().map(limit_variable)).collect()
}

pub(super) fn limit_variable(limit: &str) -> String {
    format!("WERKRUF_LIMIT_{}", limit.to_ascii_uppercase())
}

/// A snapshot of the variables. Its debug form shows none of them, because some are secrets.
#[derive(Clone, Default)]
pub struct Environment(Arc<HashMap<String, String>>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        // Variables that are not UTF-8 are ignored.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self(Arc::new(std::env::vars_os().filter_map(text).collect()))
    }

    /// Given variables, for tests.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(Arc::new(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    /// The value of a variable; an empty value counts as not set.
    pub(crate) fn get(&self, variable: Variable) -> Option<&str> {
        self.lookup(variable.0)
    }

    /// The names of all variables that have a value.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.as_str())
    }

    /// The value of a limit's variable.
    pub(super) fn limit(&self, limit: &str) -> Option<&str> {
        self.lookup(&limit_variable(limit))
    }

    /// The value of any variable, such as one that a configured tool names.
    pub(crate) fn lookup(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}
