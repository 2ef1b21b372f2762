//! What a call of a server's tool returned, as a reply or a failure.

use std::error::Error;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Map, Value, json};
use werkruf_contract::{Effect, ErrorCode, Failure, Reply, ToolErrorType};

use super::bearer::TokenRefusal;
use super::http_client::HttpFault;
use super::lines::TOO_LARGE;
use super::oauth::Challenge;

/// Most characters of a server's own words in a failure.
const MESSAGE_CHARS: usize = 2_000;

/// Where a server says in a failed result whether the call has done anything.
const HAPPENED: &str = "werkruf/happened";

/// The reply for what the server answered.
pub(super) fn reply(response: CallToolResponse, effect: Effect) -> Result<Reply, Failure> {
    let result = match response {
        CallToolResponse::Complete(result) => result,
        CallToolResponse::InputRequired(_) => {
            let message = "The server behind this tool asks for input in the middle of a call, which is not supported.";
            return Err(Failure::fatal(ErrorCode::UpstreamRefused, message).nothing_happened());
        }
        _ => {
            return Err(Failure::upstream(
                ErrorCode::BadResponse,
                "The server behind this tool answered in a form that was not asked for.",
            ));
        }
    };
    if result.is_error == Some(true) {
        // The tool's own word that it failed, meant for the model. It may have done something before: only the server can say that it has not.
        let text = texts(&result.content).unwrap_or_default();
        let message = if text.trim().is_empty() { "The tool failed and gave no reason.".to_owned() } else { cut(&text) };
        let happened = result.meta.as_ref().and_then(|meta| meta.get(HAPPENED));
        let failure = Failure::fatal(ErrorCode::UpstreamRefused, message.clone());
        return Err(match happened {
            Some(Value::Bool(false)) => failure.nothing_happened(),
            // An unknown outcome has a message of its own.
            _ if effect == Effect::Once => failure.with_details(Map::from_iter([("server_message".to_owned(), message.into())])),
            _ => failure,
        });
    }
    Ok(Reply::new(data(result)))
}

/// Structured content as it is; texts as one text; everything else as the protocol writes it, in `content`. The runtime attaches pictures there.
fn data(mut result: CallToolResult) -> Value {
    match result.structured_content.take() {
        Some(structured) => with_others(structured, result.content),
        None => match texts(&result.content) {
            Some(text) => json!({"text": text}),
            None => json!({"content": result.content}),
        },
    }
}

/// Structured content is also the text of a result; other content is not in it.
fn with_others(structured: Value, mut content: Vec<ContentBlock>) -> Value {
    content.retain(|block| !matches!(block, ContentBlock::Text(_)));
    match structured {
        Value::Object(object) if content.is_empty() => Value::Object(object),
        Value::Object(mut object) if !object.contains_key("content") => {
            object.insert("content".to_owned(), json!(content));
            Value::Object(object)
        }
        value if content.is_empty() => json!({"result": value}),
        value => json!({"result": value, "content": content}),
    }
}

/// The text, if there is nothing else.
fn texts(content: &[ContentBlock]) -> Option<String> {
    let texts = content.iter().map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect::<Option<Vec<_>>>().map(|texts| texts.join("\n"))
}

fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS).collect()
}

/// The failure for a call that got no result.
pub(super) fn failure(error: &ServiceError) -> Failure {
    let failure = match error {
        ServiceError::McpError(error) => refusal(error),
        ServiceError::TransportSend(error) => transport(&*error.error),
        ServiceError::UnexpectedResponse => {
            Failure::upstream(ErrorCode::BadResponse, "The server behind this tool answered something that is no result of a call.")
        }
        ServiceError::Timeout { .. } => timed_out(),
        _ => lost(),
    };
    failure.because(cut(&error.to_string()))
}

/// A JSON-RPC error.
fn refusal(error: &ErrorData) -> Failure {
    match error.code.0 {
        TOO_LARGE => too_large(),
        // Invalid request, unknown method, invalid parameters: the tool has not run.
        -32_602 => Failure::validation(
            ErrorCode::InvalidArguments,
            format!("The server behind this tool refused the arguments: {}", cut(&error.message)),
        ),
        -32_600 | -32_601 => {
            let message = format!("The server behind this tool refused the request: {}", cut(&error.message));
            Failure::fatal(ErrorCode::UpstreamRefused, message).nothing_happened()
        }
        _ if error.message.contains(&HttpFault::TooLarge.to_string()) => too_large(),
        _ => Failure::upstream(ErrorCode::UpstreamError, "The server behind this tool failed.").may_have_happened(),
    }
}

fn transport(error: &(dyn Error + Send + Sync + 'static)) -> Failure {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<StreamableHttpError<HttpFault>>() {
            return http(fault);
        }
        next = error.source();
    }
    lost()
}

/// How the server refused the credential of a call, if that is what happened.
pub(super) fn refusal_of(error: &ServiceError) -> Option<TokenRefusal> {
    let ServiceError::TransportSend(error) = error else { return None };
    let mut next: Option<&(dyn Error + 'static)> = Some(&*error.error);
    while let Some(error) = next {
        match error.downcast_ref::<StreamableHttpError<HttpFault>>() {
            Some(StreamableHttpError::AuthRequired(refused)) => {
                // Without a demand for a token the status may be that of another server behind this one, and the call is not sent again.
                let challenge = Challenge::read(&refused.www_authenticate_header);
                return challenge.wants_token.then_some(TokenRefusal { challenge, lacks_scope: false });
            }
            Some(StreamableHttpError::InsufficientScope(refused)) => {
                return Some(TokenRefusal { challenge: Challenge::read(&refused.www_authenticate_header), lacks_scope: true });
            }
            _ => next = error.source(),
        }
    }
    None
}

fn http(fault: &StreamableHttpError<HttpFault>) -> Failure {
    match fault {
        StreamableHttpError::Client(HttpFault::TooLarge) => too_large(),
        StreamableHttpError::Client(HttpFault::Connect(_)) => unreachable(),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            let message = "The server behind this tool does not accept the credential of this installation.";
            Failure::fatal(ErrorCode::UpstreamRefused, message).nothing_happened()
        }
        StreamableHttpError::HttpStatus(status) if status.status == 429 => {
            let wait = status.retry_after.as_deref().and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
            let message = "The server behind this tool takes no more requests right now.";
            Failure::new(ToolErrorType::RateLimit, ErrorCode::RateLimited, message).retry_after(wait)
        }
        StreamableHttpError::Deserialize(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::UnexpectedServerResponse(_) => {
            Failure::upstream(ErrorCode::BadResponse, "The server behind this tool answered something that could not be read.")
        }
        _ => lost(),
    }
}

pub(super) fn too_large() -> Failure {
    Failure::fatal(ErrorCode::ResponseTooLarge, "The answer of the server behind this tool is longer than allowed.")
}

pub(super) fn timed_out() -> Failure {
    Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "The server behind this tool did not answer in time.")
}

pub(super) fn unreachable() -> Failure {
    Failure::upstream(ErrorCode::UpstreamUnreachable, "The server behind this tool could not be reached.").nothing_happened()
}

fn lost() -> Failure {
    let message = "The connection to the server behind this tool was lost before its answer was complete.";
    Failure::upstream(ErrorCode::UpstreamError, message).may_have_happened()
}
