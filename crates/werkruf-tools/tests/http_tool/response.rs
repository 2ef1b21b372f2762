//! How responses are parsed.

use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{Failure, Happened, Reply, ToolErrorType};

use crate::declared::call;
use crate::server::Server;

async fn answered(body: Value) -> Result<Reply, Failure> {
    let server = Server::answering(200, &[("content-type", "application/json")], body.to_string()).await;
    call(&server.url).await
}

async fn refused(status: u16, headers: &[(&'static str, &str)], body: &'static str) -> Failure {
    let server = Server::answering(status, headers, body).await;
    let failure = call(&server.url).await.unwrap_err();
    assert_eq!((failure.upstream_status, failure.endpoint.as_deref()), (Some(status), Some(server.url.as_str())));
    failure
}

#[tokio::test]
async fn any_json_is_the_data() {
    for value in [json!({"a": 1}), json!([1, 2]), json!("text"), json!(7), json!(null), json!({"status": "ok"}), json!({"status": "error"})]
    {
        assert_eq!(answered(value.clone()).await.unwrap(), Reply::new(value));
    }
    let created = Server::answering(201, &[], r#"{"id": 5}"#).await;
    assert_eq!(call(&created.url).await.unwrap().data, json!({"id": 5}));
    let nothing = Server::answering(204, &[], "").await;
    assert_eq!(call(&nothing.url).await.unwrap().data, json!(null));
}

#[tokio::test]
async fn message_and_state_patch_are_taken_from_plain_data() {
    let reply = answered(json!({"n": 1, "state_patch": {"a": null, "b": 2}, "message": "Done."})).await.unwrap();
    assert_eq!(reply.data, json!({"n": 1, "message": "Done."}));
    assert_eq!(reply.message.as_deref(), Some("Done."));
    assert_eq!(reply.state_patch.map(Value::Object), Some(json!({"a": null, "b": 2})));
    let reply = answered(json!({"state_patch": null})).await.unwrap();
    assert_eq!((reply.data, reply.state_patch), (json!({}), None));
    let reply = answered(json!({"state_patch": "no object"})).await.unwrap();
    assert_eq!((reply.data, reply.state_patch), (json!({"state_patch": "no object"}), None));
}

#[tokio::test]
async fn a_tool_output_envelope_is_unwrapped() {
    let meta = json!({"took_ms": 5, "source_counts": {"db": 2}, "routing": {"via": "x"}, "token_usage": {"prompt": 3}});
    let output = json!({"status": "ok", "input": {}, "data": {"n": 1, "message": "Inner."}, "meta": meta, "state_patch": {"seen": true}});
    let reply = answered(output.clone()).await.unwrap();
    assert_eq!(reply.data, json!({"n": 1, "message": "Inner."}));
    assert_eq!(reply.message.as_deref(), Some("Inner."));
    assert_eq!(reply.state_patch.map(Value::Object), Some(json!({"seen": true})));
    assert_eq!(reply.source_counts.unwrap()["db"], 2);
    assert_eq!(reply.routing.unwrap()["via"], "x");
    assert_eq!(reply.token_usage.unwrap()["prompt"], 3);
    let mut outer = output;
    outer["message"] = json!("Outer.");
    assert_eq!(answered(outer).await.unwrap().message.as_deref(), Some("Outer."));
}

#[tokio::test]
async fn an_error_envelope_becomes_the_failure() {
    let error = json!({"type": "RATE_LIMIT", "code": "too_fast", "message": "Slow down.", "retry_after_ms": 1500, "details": {"left": 0}});
    let failure = answered(json!({"status": "error", "input": {}, "error": error, "meta": {"took_ms": 1}})).await.unwrap_err();
    assert_eq!((failure.kind, failure.code.as_ref(), failure.message.as_str()), (ToolErrorType::RateLimit, "too_fast", "Slow down."));
    assert_eq!(failure.retry_after, Some(Duration::from_millis(1500)));
    assert_eq!(failure.details.unwrap()["left"], 0);
    assert_eq!(failure.happened, Happened::No);
}

#[tokio::test]
async fn an_error_envelope_says_whether_it_may_have_happened() {
    let cases = [
        (json!({"type": "FATAL", "code": "no_seats", "message": "m"}), "no_seats", Happened::No),
        (json!({"type": "FATAL", "code": "outcome_unknown", "message": "m"}), "outcome_unknown", Happened::Unknown),
        (json!({"type": "VALIDATION", "message": "m"}), "upstream_refused", Happened::No),
        (json!({"type": "UPSTREAM", "code": "Not A Code!", "message": "m"}), "upstream_error", Happened::Unknown),
        (json!({"type": "TIMEOUT", "message": "m"}), "tool_timeout", Happened::Unknown),
        (json!({"type": "PERMISSION", "message": "m"}), "bad_response", Happened::Unknown),
        (json!("words"), "bad_response", Happened::Unknown),
    ];
    for (error, code, happened) in cases {
        let failure = answered(json!({"status": "error", "error": error})).await.unwrap_err();
        assert_eq!((failure.code.as_ref(), failure.happened), (code, happened), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_is_a_bad_response() {
    let page = "<html>private words</html>";
    for body in [page, "", "{\"a\": 1", "NaN"] {
        let failure = refused(200, &[], body).await;
        assert_eq!((failure.kind, failure.code.as_ref(), failure.happened), (ToolErrorType::Upstream, "bad_response", Happened::Unknown));
        assert!(!failure.message.contains("private"));
        assert!(body != page || failure.cause.unwrap().contains("private words"));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let failure = refused(302, &[("location", "http://127.0.0.1:1/elsewhere")], "").await;
    assert_eq!((failure.kind, failure.code.as_ref()), (ToolErrorType::Upstream, "bad_response"));
}

#[tokio::test]
async fn statuses_map_to_error_types_and_bodies_stay_in_the_cause() {
    let body = "the body of the upstream: password=1234";
    let cases = [
        (400, ToolErrorType::Fatal, "upstream_refused", Happened::No),
        (404, ToolErrorType::Fatal, "upstream_refused", Happened::No),
        (429, ToolErrorType::RateLimit, "rate_limited", Happened::No),
        (500, ToolErrorType::Upstream, "upstream_error", Happened::Unknown),
        (503, ToolErrorType::Upstream, "upstream_error", Happened::Unknown),
    ];
    for (status, kind, code, happened) in cases {
        let failure = refused(status, &[], body).await;
        assert_eq!((failure.kind, failure.code.as_ref(), failure.happened), (kind, code, happened), "{status}");
        assert!(!failure.message.contains("password"));
        assert_eq!(failure.cause.as_deref(), Some(body));
    }
}

#[tokio::test]
async fn a_long_error_body_is_truncated() {
    let server = Server::answering(500, &[], "ü".repeat(100_000)).await;
    let cause = call(&server.url).await.unwrap_err().cause.unwrap();
    assert!(cause.len() <= 512 && cause.len() > 500, "{}", cause.len());
}

#[tokio::test]
async fn retry_after_is_read_as_seconds_and_as_a_date() {
    let after = |value: &'static str| async move { refused(429, &[("retry-after", value)], "").await.retry_after };
    assert_eq!(after("17").await, Some(Duration::from_secs(17)));
    assert_eq!(after("soon").await, None);
    assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT").await, Some(Duration::ZERO));
    let dated = [("date", "Wed, 21 Oct 2015 07:27:15 GMT"), ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")];
    assert_eq!(refused(429, &dated, "").await.retry_after, Some(Duration::from_secs(45)));
    assert_eq!(refused(503, &[("retry-after", "2")], "").await.retry_after, Some(Duration::from_secs(2)));
}
