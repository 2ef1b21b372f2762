//! Requests of commands: over a socket, or to the API in this process. Errors say what happened in the words of the command line.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderMap, Request, header};
use reqwest::Client;
use serde_json::Value;
use tower::ServiceExt;
use werkruf_llm::cause;

use super::error::CliError;

/// A tool call may last as long as a turn. A server that sends nothing for longer counts as gone.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// A stream begins within this time, however long it lasts.
const STREAM_START_TIMEOUT: Duration = Duration::from_secs(60);

/// No response of the API is larger.
const MAX_RESPONSE_BYTES: usize = 256 * 1024 * 1024;

/// A response body as it arrives.
pub(super) type ByteStream = BoxStream<'static, Result<Bytes, CliError>>;

/// Why a stream could not be opened.
pub(super) enum StreamError {
    /// The server refused the request; `location` is the value of its Location header.
    Refused { status: u16, location: Option<String>, error: CliError },
    /// No response arrived. `sent` is true if the server may have received the request.
    Unreachable { sent: bool, error: CliError },
}

pub(super) fn unusable(error: &http::Error) -> CliError {
    CliError::Usage(format!("this cannot be sent as a request: {error}"))
}

pub(super) async fn over_socket(client: &Client, base: &str, request: Request<String>) -> Result<(u16, Value), CliError> {
    let failed = |error: reqwest::Error| unreachable(base, &cause(&error));
    let mut request = reqwest::Request::try_from(request).map_err(failed)?;
    *request.timeout_mut() = Some(REQUEST_TIMEOUT);
    let response = client.execute(request).await.map_err(failed)?;
    let status = response.status().as_u16();
    let body = parse(&response.bytes().await.map_err(failed)?);
    // Every response of the API is JSON, and every error names its code; `/readyz` says why the server is not ready.
    let is_ours =
        if (200..300).contains(&status) { !body.is_string() } else { body["error"]["code"].is_string() || body["ready"] == false };
    if is_ours { Ok((status, body)) } else { Err(stranger(base, status)) }
}

pub(super) async fn stream_over_socket(client: &Client, base: &str, request: Request<String>) -> Result<ByteStream, StreamError> {
    let request = reqwest::Request::try_from(request)
        .map_err(|error| StreamError::Unreachable { sent: false, error: unreachable(base, &cause(&error)) })?;
    let response = match tokio::time::timeout(STREAM_START_TIMEOUT, client.execute(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(StreamError::Unreachable { sent: !error.is_connect(), error: unreachable(base, &cause(&error)) }),
        Err(_) => {
            return Err(StreamError::Unreachable {
                sent: true,
                error: unreachable(base, &format!("no response within {} s", STREAM_START_TIMEOUT.as_secs())),
            });
        }
    };
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(response.bytes_stream().map_err(|error| CliError::refused("server_unavailable", cause(&error))).boxed());
    }
    let location = location(response.headers());
    let body = response.bytes().await.map_err(|error| StreamError::Unreachable { sent: true, error: unreachable(base, &cause(&error)) })?;
    let body = parse(&body);
    let error = if body["error"]["code"].is_string() { refusal(status, &body) } else { stranger(base, status) };
    Err(StreamError::Refused { status, location, error })
}

pub(super) async fn stream_in_process(router: Router, request: Request<Body>) -> Result<ByteStream, StreamError> {
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let broken = |error: axum::Error| CliError::refused("bad_answer", format!("the response broke off: {error}"));
    if (200..300).contains(&status) {
        return Ok(response.into_body().into_data_stream().map_err(broken).boxed());
    }
    let location = location(response.headers());
    let body = to_bytes(response.into_body(), MAX_RESPONSE_BYTES)
        .await
        .map_err(|error| StreamError::Unreachable { sent: true, error: broken(error) })?;
    Err(StreamError::Refused { status, location, error: refusal(status, &parse(&body)) })
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

pub(super) async fn in_process(router: Router, request: Request<Body>) -> Result<(u16, Value), CliError> {
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), MAX_RESPONSE_BYTES)
        .await
        .map_err(|error| CliError::refused("bad_answer", format!("the response broke off: {error}")))?;
    Ok((status, parse(&bytes)))
}

/// Parses a body: JSON as JSON, an empty body as null, anything else as text.
fn parse(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// The error of a server that does not answer.
fn unreachable(base: &str, why: &str) -> CliError {
    CliError::refused(
        "server_unavailable",
        format!("{base} does not answer: {why}; start the server there, or correct --server (WERKRUF_SERVER)"),
    )
}

/// The error of a program that does not answer like this one.
fn stranger(base: &str, status: u16) -> CliError {
    let message = format!(
        "{base} answered {status}, but not as Werkruf answers; another program or a proxy is there: correct --server (WERKRUF_SERVER)"
    );
    CliError::refused("bad_answer", message)
}

/// The error in a response, in the words of the command line.
pub(super) fn refusal(status: u16, response: &Value) -> CliError {
    let error = &response["error"];
    let code = error["code"].as_str().map_or_else(|| format!("http_{status}"), str::to_owned);
    let mut message = error["message"].as_str().map_or_else(|| format!("the server answered {status}"), in_words);
    if status == 401 {
        message.push_str(" Check --key (WERKRUF_KEY).");
    }
    CliError::Refused { code, message, details: error.get("details").cloned() }
}

/// Replaces the names of HTTP headers and routes with the flags and commands that stand for them.
fn in_words(message: &str) -> String {
    let words = [
        ("send X-User-Id with", "name a user with --user and"),
        ("X-User-Id", "--user"),
        ("X-Tenant-Id", "--tenant"),
        ("GET /api/tools lists them", "`werkruf tools list` lists them"),
    ];
    words.iter().fold(message.to_owned(), |text, (from, to)| text.replace(from, to))
}
