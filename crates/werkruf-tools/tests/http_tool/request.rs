//! The request that an HTTP tool sends.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use werkruf_contract::{Happened, ToolContext, ToolObject};

use crate::declared::tool;
use crate::server::{ReceivedRequest, Server};
use crate::support::invocation;

/// Verifies the signature like the author of a tool would.
fn assert_signed(request: &ReceivedRequest, signed: &[u8]) {
    let digits = request.header("x-werkruf-signature-256").strip_prefix("sha256=").unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"geheim").unwrap();
    mac.update(format!("{}.{}.", request.header("x-werkruf-timestamp"), request.header("x-werkruf-nonce")).as_bytes());
    mac.update(signed);
    mac.verify_slice(&bytes).unwrap();
}

#[tokio::test]
async fn a_post_carries_arguments_context_and_ids_but_never_auth() {
    let server = Server::answering(200, &[], "{}").await;
    let mut invocation = invocation();
    let mut context = serde_json::to_value(&*invocation.context).unwrap();
    context["auth"] = json!({"token": "strictly private"});
    context["request_id"] = json!("r-1");
    invocation.context = Arc::new(ToolContext::from_json(context).unwrap());
    invocation.attempt = 2;
    tool(&server.url, &json!({})).call(json!({"q": "ä"}), invocation.clone()).await.unwrap();

    let request = server.only_request();
    assert_eq!((request.method.as_str(), request.uri.path()), ("POST", "/tool"));
    assert_eq!(request.header("idempotency-key"), "key-1");
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("x-werkruf-signature-256"), "", "no secret, no signature");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["arguments", "context", "job_id", "attempt", "turn_id", "conversation_id"]);
    assert_eq!((&body["arguments"], &body["attempt"]), (&json!({"q": "ä"}), &json!(2)));
    assert_eq!(body["job_id"], json!(invocation.job_id));
    assert_eq!(body["turn_id"], json!(invocation.turn_id));
    assert_eq!(body["conversation_id"], json!(invocation.conversation_id));
    let context = &body["context"];
    assert_eq!((&context["user_id"], &context["roles"], &context["branch_id"]), (&json!("3"), &json!(["employee"]), &json!(1)));
    assert_eq!((&context["trace_id"], &context["locale"], &context["request_id"]), (&json!("trace-1"), &json!("de-DE"), &json!("r-1")));
    assert_eq!(context["tenant_id"], json!(invocation.context.tenant_id));
    assert!(context.get("auth").is_none() && !String::from_utf8_lossy(&request.body).contains("strictly private"));
}

#[tokio::test]
async fn only_a_service_that_may_have_it_gets_the_span_of_the_call() {
    let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (declared, expected) in
        [(json!({}), ""), (json!({"traceparent": true}), span), (json!({"traceparent": true, "method": "GET"}), span)]
    {
        let server = Server::answering(200, &[], "{}").await;
        let mut invocation = invocation();
        Arc::make_mut(&mut invocation.context).extra.insert("traceparent".to_owned(), json!(span));
        tool(&server.url, &declared).call(json!({}), invocation).await.unwrap();
        let request = server.only_request();
        assert_eq!(request.header("traceparent"), expected);
        assert!(!String::from_utf8_lossy(&request.body).contains(span), "not in the body");
    }
}

#[tokio::test]
async fn the_signature_covers_the_raw_body() {
    let server = Server::answering(200, &[], "{}").await;
    tool(&server.url, &json!({"secret_env": "TOOL_SECRET", "method": "PUT"})).call(json!({"q": "x"}), invocation()).await.unwrap();
    let request = server.only_request();
    assert_eq!(request.method.as_str(), "PUT");
    assert_signed(&request, &request.body);
}

#[tokio::test]
async fn every_request_has_its_own_nonce_and_the_time() {
    let server = Server::answering(200, &[], "{}").await;
    let signed = tool(&server.url, &json!({"secret_env": "TOOL_SECRET"}));
    for _ in 0..2 {
        signed.call(json!({}), invocation()).await.unwrap();
    }
    let requests = server.requests();
    let of = |name: &str| requests.iter().map(|request| request.header(name).to_owned()).collect::<Vec<_>>();
    let nonces = of("x-werkruf-nonce");
    assert!(nonces.len() == 2 && nonces[0] != nonces[1] && nonces[0].len() == 32, "{nonces:?}");
    let now = werkruf_contract::Clock::system(0).now().as_second();
    assert!(of("x-werkruf-timestamp").iter().all(|time| (now - 60..=now).contains(&time.parse().unwrap())));
}

#[tokio::test]
async fn header_values_come_from_the_environment() {
    let server = Server::answering(200, &[], "{}").await;
    let headers = json!({"headers": {"Authorization": "Bearer ${TOOL_SECRET}", "X-Fixed": "yes"}});
    tool(&server.url, &headers).call(json!({}), invocation()).await.unwrap();
    let request = server.only_request();
    assert_eq!((request.header("authorization"), request.header("x-fixed")), ("Bearer geheim", "yes"));
}

#[tokio::test]
async fn a_get_puts_the_arguments_into_the_query_and_signs_it() {
    let server = Server::answering(200, &[], "{}").await;
    let args = json!({"city": "Köln & Bonn", "days": 3, "wet": true, "tags": ["a", "b"], "none": null});
    let url = format!("{}?fixed=1", server.url);
    tool(&url, &json!({"method": "GET", "secret_env": "TOOL_SECRET"})).call(args, invocation()).await.unwrap();
    let request = server.only_request();
    assert_eq!((request.method.as_str(), request.body.len()), ("GET", 0));
    let query = request.uri.query().unwrap();
    assert_eq!(query, "fixed=1&city=K%C3%B6ln+%26+Bonn&days=3&wet=true&tags=%5B%22a%22%2C%22b%22%5D");
    assert_signed(&request, query.as_bytes());
    assert_eq!(request.header("idempotency-key"), "key-1");
}

#[tokio::test]
async fn a_get_names_the_caller_in_headers() {
    let server = Server::answering(200, &[], "{}").await;
    let invocation = invocation();
    tool(&server.url, &json!({"method": "GET"})).call(json!({}), invocation.clone()).await.unwrap();
    let request = server.only_request();
    let named = ["x-werkruf-user", "x-werkruf-tenant", "x-werkruf-job"].map(|name| request.header(name).to_owned());
    assert_eq!(named, ["3".to_owned(), invocation.principal.tenant_id.to_string(), invocation.job_id.to_string()]);
}

#[tokio::test]
async fn an_argument_cannot_repeat_a_fixed_parameter() {
    let server = Server::answering(200, &[], "{}").await;
    let url = format!("{}?tenant=ours", server.url);
    let failure = tool(&url, &json!({"method": "GET"})).call(json!({"tenant": "theirs"}), invocation()).await.unwrap_err();
    assert_eq!((failure.code.as_ref(), failure.happened), ("invalid_arguments", Happened::No));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_not_reached() {
    let server = Server::answering(200, &[], "{}").await;
    let names = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    // A name of this machine other than localhost, as a rebound name would be.
    let names: Vec<&str> = names.lines().filter(|line| line.starts_with("127.")).flat_map(|line| line.split_whitespace().skip(1)).collect();
    let Some(host) = names.into_iter().find(|name| !name.eq_ignore_ascii_case("localhost")) else { return };
    let url = server.url.replace("127.0.0.1", host);
    let failure = tool(&url, &json!({})).call(json!({}), invocation()).await.unwrap_err();
    assert_eq!((failure.code.as_ref(), failure.happened), ("upstream_unreachable", Happened::No));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn no_argument_changes_the_host_or_the_path() {
    let server = Server::answering(200, &[], "{}").await;
    let args = json!({"url": "http://elsewhere.invalid/", "": "//elsewhere.invalid/../x#y"});
    tool(&server.url, &json!({"method": "GET"})).call(args, invocation()).await.unwrap();
    assert_eq!(server.only_request().uri.path(), "/tool");
}
