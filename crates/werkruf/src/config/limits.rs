//! `[limits]` and `WERKRUF_LIMIT_<NAME>`: one number each, checked one by one. Most limit turns; the others limit connections, requests
//! and the memory of requests.

use werkruf_runtime::Limits;

use super::environment::{Environment, limit_variable};
use super::file::Document;
use super::suggestion::advice;
use super::violation::ConfigViolation;
use crate::listen::Bounds;

/// Limits for which 0 means "off". For every other limit, 0 would stop all work.
const MAY_BE_ZERO: [&str; 6] = [
    "turns_per_minute_user",
    "turns_per_minute_key",
    "requests_per_minute_user",
    "requests_per_minute_key",
    "model_concurrency",
    "drain_ms",
];

/// Limits on open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    pub all: u32,
    /// For one remote address. Loopback and trusted proxies are exempt: many clients share those addresses.
    pub per_address: u32,
}

impl Default for Connections {
    fn default() -> Self {
        let Bounds { connections: all, per_address, .. } = Bounds::default();
        Self { all, per_address }
    }
}

impl Connections {
    const NAMES: [&'static str; 2] = ["connections", "connections_per_address"];
    /// Connections are counted with a semaphore, and each is an open file.
    const MAX: u32 = 1_000_000;
}

/// How many requests a user and a key may send per minute; 0 is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRates {
    pub per_minute_user: u32,
    pub per_minute_key: u32,
}

impl Default for RequestRates {
    fn default() -> Self {
        Self { per_minute_user: 600, per_minute_key: 6000 }
    }
}

impl RequestRates {
    const NAMES: [&'static str; 2] = ["requests_per_minute_user", "requests_per_minute_key"];
}

/// Everything under `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllLimits {
    pub(super) turns: Limits,
    pub(super) connections: Connections,
    pub(super) requests: RequestRates,
    pub(super) bytes_in_flight: u64,
}

/// The default of `bytes_in_flight`.
const BYTES_IN_FLIGHT: u64 = 256 * 1024 * 1024;

impl Default for AllLimits {
    fn default() -> Self {
        let (turns, connections, requests) = (Limits::default(), Connections::default(), RequestRates::default());
        Self { turns, connections, requests, bytes_in_flight: BYTES_IN_FLIGHT }
    }
}

/// The names of all limits.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    Limits::NAMES.into_iter().chain(Connections::NAMES).chain(RequestRates::NAMES).chain(["bytes_in_flight"])
}

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> AllLimits {
    let mut limits = AllLimits::default();
    for (name, value) in &document.file.limits {
        if let Err(message) = set(&mut limits, name, *value) {
            violations.push(document.violation(&format!("/limits/{name}"), message));
        }
    }
    for name in names() {
        let Some(text) = environment.limit(name) else { continue };
        let outcome = text.trim().parse().map_err(|_| "is not a whole number".to_owned()).and_then(|value| set(&mut limits, name, value));
        if let Err(message) = outcome {
            violations.push(ConfigViolation::new(limit_variable(name), message));
        }
    }
    limits
}

fn set(all: &mut AllLimits, name: &str, value: u64) -> Result<(), String> {
    if value == 0 && !MAY_BE_ZERO.contains(&name) && names().any(|known| known == name) {
        return Err("must be at least 1; leave it out for the default".to_owned());
    }
    let AllLimits { turns: limits, connections, requests, bytes_in_flight } = all;
    let connection_count =
        || u32::try_from(value).ok().filter(|value| *value <= Connections::MAX).ok_or_else(|| format!("{value} is too large"));
    let narrow = || u32::try_from(value).map_err(|_| format!("{value} is too large"));
    let count = || usize::try_from(value).map_err(|_| format!("{value} is too large"));
    match name {
        "steps" => limits.steps = narrow()?,
        "turn_ms" => limits.turn_ms = value,
        "tool_ms" => limits.tool_ms = value,
        "model_first_byte_ms" => limits.model_first_byte_ms = value,
        "model_idle_ms" => limits.model_idle_ms = value,
        "drain_ms" => limits.drain_ms = value,
        "lease_ttl_ms" => limits.lease_ttl_ms = value,
        "calls_per_step" => limits.calls_per_step = count()?,
        "parallel" => limits.parallel = count()?,
        "turns_per_minute_user" => limits.turns_per_minute_user = narrow()?,
        "turns_per_minute_key" => limits.turns_per_minute_key = narrow()?,
        "model_concurrency" => limits.model_concurrency = count()?,
        "queue" => limits.queue = count()?,
        "approval_ttl_s" => limits.approval_ttl_s = narrow()?,
        "requests_per_minute_user" => requests.per_minute_user = narrow()?,
        "requests_per_minute_key" => requests.per_minute_key = narrow()?,
        "state_bytes" => limits.state_bytes = count()?,
        "bytes_in_flight" => *bytes_in_flight = value,
        "connections" => connections.all = connection_count()?,
        "connections_per_address" => connections.per_address = connection_count()?,
        _ => {
            let known = format!("there are {}", names().collect::<Vec<_>>().join(", "));
            return Err(format!("there is no such limit; {}", advice(name, names(), &known)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_by_its_variable() {
        for name in names() {
            let variable = limit_variable(name);
            let environment = Environment::of([(variable.as_str(), "7")]);
            let mut violations = Vec::new();
            let limits = merge(&Document::absent(), &environment, &mut violations);
            assert_eq!(violations, vec![], "{name}");
            assert_ne!(limits, AllLimits::default(), "{name} changed nothing");
        }
    }

    #[test]
    fn invalid_values_are_reported_by_variable() {
        let environment = Environment::of([("WERKRUF_LIMIT_STEPS", "many"), ("WERKRUF_LIMIT_QUEUE", "0"), ("WERKRUF_LIMIT_DRAIN_MS", "0")]);
        let mut violations = Vec::new();
        merge(&Document::absent(), &environment, &mut violations);
        let paths: Vec<&str> = violations.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["WERKRUF_LIMIT_STEPS", "WERKRUF_LIMIT_QUEUE"]);
    }
}
