//! The flight providers. Their keys come from the environment only.

use std::time::Duration;

use secrecy::SecretString;
use werkruf_flights::{AmadeusConfig, DuffelConfig, FlightsConfig, SeatsaeroConfig};

use super::environment::{Environment, Variable};
use super::model::address_fault;
use super::violation::ConfigViolation;

const SEATSAERO: &str = "https://seats.aero/partnerapi";
const DUFFEL: &str = "https://api.duffel.com";
const AMADEUS_TEST: &str = "https://test.api.amadeus.com";
const AMADEUS_PROD: &str = "https://api.amadeus.com";
const DAILY_QUOTA: u32 = 1000;

pub(super) fn merge(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> FlightsConfig {
    let defaults = FlightsConfig::default();
    let seatsaero_url = base_url(environment, Variable::SEATSAERO_BASE_URL, SEATSAERO, violations);
    let daily_quota = number(environment, Variable::SEATSAERO_DAILY_QUOTA, violations).unwrap_or(DAILY_QUOTA);
    let duffel_url = base_url(environment, Variable::DUFFEL_BASE_URL, DUFFEL, violations);
    let amadeus = amadeus(environment, violations);
    let deadline = number(environment, Variable::FLIGHTS_DEADLINE_MS, violations).map(|ms: u32| Duration::from_millis(ms.into()));
    if deadline.is_some_and(|deadline| deadline.is_zero()) {
        violations.push(ConfigViolation::new(Variable::FLIGHTS_DEADLINE_MS.name(), "must be at least 1 millisecond"));
    }
    let cache = number(environment, Variable::FLIGHTS_CACHE_S, violations).map(|seconds: u32| Duration::from_secs(seconds.into()));
    let secret = |variable| environment.get(variable).map(SecretString::from);
    FlightsConfig {
        seatsaero: secret(Variable::SEATSAERO_API_KEY).map(|key| SeatsaeroConfig { key, base_url: seatsaero_url, daily_quota }),
        amadeus,
        duffel: secret(Variable::DUFFEL_API_KEY).map(|key| DuffelConfig { key, base_url: duffel_url }),
        deadline: deadline.unwrap_or(defaults.deadline),
        cache: cache.unwrap_or(defaults.cache),
    }
}

fn amadeus(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<AmadeusConfig> {
    let stage = match environment.get(Variable::AMADEUS_ENV) {
        None | Some("test") => "test",
        Some("prod" | "production") => "prod",
        Some(other) => {
            let message = format!("`{other}` is unknown; write test or prod");
            violations.push(ConfigViolation::new(Variable::AMADEUS_ENV.name(), message));
            "test"
        }
    };
    let default = if stage == "prod" { AMADEUS_PROD } else { AMADEUS_TEST };
    let base_url = base_url(environment, Variable::AMADEUS_BASE_URL, default, violations);
    match (environment.get(Variable::AMADEUS_API_KEY), environment.get(Variable::AMADEUS_API_SECRET)) {
        (Some(key), Some(secret)) => {
            Some(AmadeusConfig { key: key.to_owned(), secret: SecretString::from(secret), environment: stage.to_owned(), base_url })
        }
        (None, None) => None,
        (key, _) => {
            let missing = if key.is_some() { Variable::AMADEUS_API_SECRET } else { Variable::AMADEUS_API_KEY };
            violations.push(ConfigViolation::new(missing.name(), "is missing; Amadeus needs key and secret"));
            None
        }
    }
}

/// Reads an address, or a bare host, without the slash at the end.
fn base_url(environment: &Environment, variable: Variable, default: &str, violations: &mut Vec<ConfigViolation>) -> String {
    let Some(text) = environment.get(variable) else { return default.to_owned() };
    let local = ["127.", "localhost", "[::1]"].iter().any(|host| text.starts_with(host));
    let scheme = if local { "http" } else { "https" };
    let url = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    if let Some(fault) = address_fault(&url) {
        violations.push(ConfigViolation::new(variable.name(), fault));
    }
    url.trim_end_matches('/').to_owned()
}

fn number(environment: &Environment, variable: Variable, violations: &mut Vec<ConfigViolation>) -> Option<u32> {
    let text = environment.get(variable)?;
    let read = text.trim().parse().ok();
    if read.is_none() {
        violations.push(ConfigViolation::new(variable.name(), "must be a whole number"));
    }
    read
}
