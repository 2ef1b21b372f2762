//! The request that an HTTP tool sends.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use werkruf_contract::{ToolContext, ToolObject};

use crate::declared::tool;
use crate::server::Server;
use crate::support::invocation;

/// Verifies the signature header like the author of a tool would.
fn assert_signed(header: &str, signed: &[u8]) {
    let digits = header.strip_prefix("sha256=").unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"geheim").unwrap();
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
async fn the_signature_covers_the_raw_body() {
    let server = Server::answering(200, &[], "{}").await;
    tool(&server.url, &json!({"secret_env": "TOOL_SECRET", "method": "PUT"})).call(json!({"q": "x"}), invocation()).await.unwrap();
    let request = server.only_request();
    assert_eq!(request.method.as_str(), "PUT");
    assert_signed(request.header("x-werkruf-signature-256"), &request.body);
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
    assert_signed(request.header("x-werkruf-signature-256"), query.as_bytes());
    assert_eq!(request.header("idempotency-key"), "key-1");
}

#[tokio::test]
async fn no_argument_changes_the_host_or_the_path() {
    let server = Server::answering(200, &[], "{}").await;
    let args = json!({"url": "http://elsewhere.invalid/", "": "//elsewhere.invalid/../x#y"});
    tool(&server.url, &json!({"method": "GET"})).call(args, invocation()).await.unwrap();
    assert_eq!(server.only_request().uri.path(), "/tool");
}
