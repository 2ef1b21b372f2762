use std::time::Duration;

use secrecy::ExposeSecret;
use werkruf_runtime::Sampler;

use super::super::environment::Environment;
use super::{TracesConfig, merge};

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

fn read(pairs: &[(&str, &str)]) -> (Option<TracesConfig>, Vec<String>) {
    let mut violations = Vec::new();
    let config = merge(&Environment::of(pairs.iter().copied()), &mut violations);
    (config, violations.iter().map(ToString::to_string).collect())
}

#[test]
fn an_endpoint_turns_traces_on_with_the_defaults_of_the_standard() {
    let (config, faults) = read(&[ENDPOINT]);
    let config = config.unwrap();
    assert!(faults.is_empty() && config.headers.is_empty() && !config.captures_content);
    assert_eq!(config.url.as_str(), "http://collector:4318/v1/traces");
    assert_eq!((config.timeout, config.delay), (Duration::from_secs(10), Duration::from_secs(5)));
    assert_eq!((config.queue, config.batch), (2048, 512));
    assert_eq!(config.resource, [("service.name".to_owned(), "werkruf".to_owned())]);
    assert_eq!(config.sampler, Sampler { ratio: 1.0, follows_caller: true });
    for off in [&[][..], &[ENDPOINT, ("OTEL_SDK_DISABLED", "true")], &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]] {
        let (config, faults) = read(off);
        assert!(config.is_none() && faults.is_empty(), "{off:?}");
    }
}

#[test]
fn variables_for_traces_go_before_the_general_ones() {
    let (config, faults) = read(&[
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://langfuse.example/api/public/otel/v1/traces"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization=Basic%20cGs6c2s=, x-b = 2%2C3"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "50"),
        ("OTEL_SERVICE_NAME", "front"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=test"),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
    ]);
    let config = config.unwrap();
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(config.url.as_str(), "https://langfuse.example/api/public/otel/v1/traces");
    let headers: Vec<(&str, &str)> = config.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(headers, [("authorization", "Basic cGs6c2s="), ("x-b", "2,3")]);
    assert_eq!((config.timeout, config.delay), (Duration::from_millis(2500), Duration::from_millis(100)));
    assert_eq!((config.queue, config.batch, config.captures_content), (50, 50, true));
    let names: Vec<&str> = config.resource.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["deployment.environment.name", "service.name"]);
    assert_eq!(config.sampler, Sampler { ratio: 0.25, follows_caller: false });
}

#[test]
fn faults_say_what_to_write_and_show_no_secret() {
    for (variable, value, expected) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "secret-host", "must start with http:// or https://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "write http/protobuf"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "write http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "is not a list such as name=value"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0A", "cannot be sent as a header"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "is not a whole number from 1 to"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5s", "is not a whole number from 1 to"),
        ("OTEL_TRACES_EXPORTER", "console", "write `otlp` or `none`"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "write always_on, always_off or traceidratio"),
    ] {
        let (_, faults) = read(&[ENDPOINT, (variable, value)]);
        assert!(
            matches!(&faults[..], [fault] if fault.starts_with(variable) && fault.contains(expected) && !fault.contains("secret")),
            "{faults:?}"
        );
    }
}
