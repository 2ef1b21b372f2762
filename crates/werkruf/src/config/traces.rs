//! Where traces go: the variables that OpenTelemetry names. Without an endpoint there are no traces.

use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use secrecy::SecretString;
use werkruf_runtime::Sampler;

use super::environment::{Environment, Variable};
use super::merge::{reject, switch};
use super::violation::ConfigViolation;

const SERVICE_NAME: &str = "service.name";
/// More than one queue may hold.
const MAX_SPANS: usize = 1_000_000;

/// An OTLP receiver, and how spans are sent to it.
#[derive(Debug, Clone)]
pub struct TracesConfig {
    pub url: Url,
    pub headers: Vec<(HeaderName, SecretString)>,
    /// For one request.
    pub timeout: Duration,
    /// How long a span waits for others at most.
    pub delay: Duration,
    /// The most spans that wait.
    pub queue: usize,
    /// The most spans of one request.
    pub batch: usize,
    /// What every span's process is called, `service.name` among it.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// Spans show messages, arguments and results.
    pub captures_content: bool,
}

pub(super) fn merge(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<TracesConfig> {
    let own = environment.get(Variable::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT);
    let (place, endpoint) = match own {
        Some(url) => (Variable::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, url.to_owned()),
        None => {
            let base = environment.get(Variable::OTEL_EXPORTER_OTLP_ENDPOINT)?;
            (Variable::OTEL_EXPORTER_OTLP_ENDPOINT, format!("{}/v1/traces", base.trim_end_matches('/')))
        }
    };
    if switch(environment, Variable::OTEL_SDK_DISABLED, violations) == Some(true) {
        return None;
    }
    match environment.get(Variable::OTEL_TRACES_EXPORTER) {
        None | Some("otlp") => {}
        Some("none") => return None,
        Some(other) => {
            let message = format!("`{other}` is not supported; write `otlp` or `none`");
            violations.push(ConfigViolation::new(Variable::OTEL_TRACES_EXPORTER.name(), message));
        }
    }
    check_protocol(environment, violations);
    let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() {
        // The message does not contain the address, which may hold a password.
        let message = "must start with http:// or https:// and name a host, such as http://localhost:4318";
        violations.push(ConfigViolation::new(place.name(), message));
    }
    let either = |own: Variable, general: Variable| if environment.get(own).is_some() { own } else { general };
    let headers = either(Variable::OTEL_EXPORTER_OTLP_TRACES_HEADERS, Variable::OTEL_EXPORTER_OTLP_HEADERS);
    let timeout = either(Variable::OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, Variable::OTEL_EXPORTER_OTLP_TIMEOUT);
    let millis = |variable, most: u64, default, violations: &mut Vec<_>| {
        Duration::from_millis(number(environment, variable, 1..=most, default, violations))
    };
    let queue = number(environment, Variable::OTEL_BSP_MAX_QUEUE_SIZE, 1..=MAX_SPANS, 2048, violations);
    let batch = number(environment, Variable::OTEL_BSP_MAX_EXPORT_BATCH_SIZE, 1..=MAX_SPANS, 512, violations);
    let config = TracesConfig {
        url: url?,
        headers: read_headers(environment, headers, violations),
        timeout: millis(timeout, 600_000, 10_000, violations),
        delay: millis(Variable::OTEL_BSP_SCHEDULE_DELAY, 3_600_000, 5000, violations),
        queue,
        batch: batch.min(queue),
        resource: resource(environment, violations),
        sampler: sampler(environment, violations),
        captures_content: switch(environment, Variable::OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, violations).unwrap_or(false),
    };
    Some(config)
}

fn check_protocol(environment: &Environment, violations: &mut Vec<ConfigViolation>) {
    let own =
        environment.get(Variable::OTEL_EXPORTER_OTLP_TRACES_PROTOCOL).map(|text| (Variable::OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, text));
    let general = || environment.get(Variable::OTEL_EXPORTER_OTLP_PROTOCOL).map(|text| (Variable::OTEL_EXPORTER_OTLP_PROTOCOL, text));
    if let Some((variable, other)) = own.or_else(general).filter(|(_, text)| *text != "http/protobuf") {
        let message =
            format!("`{other}` is not supported; write http/protobuf, and name the receiver's HTTP port (usually 4318, not 4317)");
        violations.push(ConfigViolation::new(variable.name(), message));
    }
}

/// `name=value,name=value`, with values encoded as in addresses.
fn pairs(environment: &Environment, variable: Variable, violations: &mut Vec<ConfigViolation>) -> Vec<(String, String)> {
    let text = environment.get(variable).unwrap_or_default();
    let mut pairs = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let value = |value: &str| percent_decode_str(value.trim()).decode_utf8().map(std::borrow::Cow::into_owned).ok();
        let read = pair.split_once('=').and_then(|(name, text)| Some((name.trim().to_owned(), value(text)?)));
        match read.filter(|(name, _)| !name.is_empty()) {
            Some(pair) => pairs.push(pair),
            // The text may be a secret.
            None => {
                let message = "is not a list such as name=value,name=value; write a comma inside a value as %2C";
                violations.push(ConfigViolation::new(variable.name(), message));
                break;
            }
        }
    }
    pairs
}

fn read_headers(environment: &Environment, variable: Variable, violations: &mut Vec<ConfigViolation>) -> Vec<(HeaderName, SecretString)> {
    let mut headers = Vec::new();
    for (name, value) in pairs(environment, variable, violations) {
        match HeaderName::from_str(&name).ok().filter(|_| HeaderValue::from_str(&value).is_ok()) {
            Some(name) => headers.push((name, SecretString::from(value))),
            None => {
                let message = "has a name or a value that cannot be sent as a header";
                violations.push(ConfigViolation::new(variable.name(), message));
            }
        }
    }
    headers
}

fn resource(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Vec<(String, String)> {
    let mut resource = pairs(environment, Variable::OTEL_RESOURCE_ATTRIBUTES, violations);
    if let Some(name) = environment.get(Variable::OTEL_SERVICE_NAME) {
        resource.retain(|(known, _)| known != SERVICE_NAME);
        resource.push((SERVICE_NAME.to_owned(), name.to_owned()));
    }
    if !resource.iter().any(|(known, _)| known == SERVICE_NAME) {
        resource.push((SERVICE_NAME.to_owned(), "werkruf".to_owned()));
    }
    resource
}

fn sampler(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Sampler {
    let named = environment.get(Variable::OTEL_TRACES_SAMPLER).unwrap_or("parentbased_always_on");
    let (own, follows_caller) = named.strip_prefix("parentbased_").map_or((named, false), |own| (own, true));
    let ratio = match own {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => ratio(environment, violations),
        _ => {
            let message = format!("`{named}` is unknown; write always_on, always_off or traceidratio, or one of them after parentbased_");
            reject(violations, ConfigViolation::new(Variable::OTEL_TRACES_SAMPLER.name(), message), 1.0)
        }
    };
    Sampler { ratio, follows_caller }
}

fn ratio(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> f64 {
    let Some(text) = environment.get(Variable::OTEL_TRACES_SAMPLER_ARG) else { return 1.0 };
    text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
        let message = format!("`{text}` is not a number from 0 to 1, such as 0.1");
        reject(violations, ConfigViolation::new(Variable::OTEL_TRACES_SAMPLER_ARG.name(), message), 1.0)
    })
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(
    environment: &Environment,
    variable: Variable,
    allowed: std::ops::RangeInclusive<N>,
    default: N,
    violations: &mut Vec<ConfigViolation>,
) -> N {
    let Some(text) = environment.get(variable) else { return default };
    text.trim().parse().ok().filter(|number| allowed.contains(number)).unwrap_or_else(|| {
        let message = format!("`{text}` is not a whole number from {} to {}", allowed.start(), allowed.end());
        reject(violations, ConfigViolation::new(variable.name(), message), default)
    })
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;
