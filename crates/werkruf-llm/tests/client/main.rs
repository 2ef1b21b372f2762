//! The clients against the fake model: requests, decoded answers and errors.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]

mod chat;
mod responses;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use werkruf_llm::{
    Answer, Delta, HttpLimits, Message, ModelError, ModelRequest, Provider, ServerConfig, ToolChoice, ToolDefinition, http_client,
};

const KEY: &str = "sk-test-0123456789abcdef";
/// Long enough never to expire in a passing test, short enough to end a test that hangs.
const PATIENT: Duration = Duration::from_secs(20);
const IMPATIENT: Duration = Duration::from_millis(50);

fn config(base_url: String) -> ServerConfig {
    ServerConfig {
        name: "fake".into(),
        base_url,
        api_key: Some(KEY.into()),
        model: "fake-1".into(),
        headers: vec![("x-extra".into(), "header-secret".into())],
        max_output_tokens: 1000,
        first_byte: PATIENT,
        idle: PATIENT,
        record: None,
        client: http_client(&HttpLimits::default()).unwrap(),
    }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let parameters = json!({"type": "object", "properties": {"value": {"type": "string"}}});
    ModelRequest {
        model: None,
        system: "Be brief.".into(),
        messages: Arc::new(messages),
        tools: Arc::new(vec![ToolDefinition {
            name: "test_echo".into(),
            description: "Echoes.".into(),
            parameters,
            strict: false,
            texts: None,
        }]),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        locale: "en-US".to_owned(),
        today: jiff::civil::Date::constant(2026, 1, 1),
        temperature: None,
        max_output_tokens: None,
        options: Default::default(),
        approvals: Arc::default(),
        client_max_tokens: None,
    }
}

fn hello() -> ModelRequest {
    request(vec![Message::user("Hello")])
}

/// The text deltas and the result.
async fn answer(provider: &dyn Provider, request: ModelRequest) -> (Vec<String>, Result<Answer, ModelError>) {
    let mut texts = Vec::new();
    let mut stream = match provider.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (texts, Err(error)),
    };
    let mut end = None;
    while let Some(delta) = stream.next().await {
        assert!(end.is_none(), "nothing follows the end");
        match delta {
            Ok(Delta::Text(text)) => texts.push(text),
            Ok(Delta::ItemStarted(_) | Delta::ItemFinished(_)) => {}
            Ok(Delta::Done(answer)) => end = Some(Ok(*answer)),
            Err(error) => end = Some(Err(error)),
        }
    }
    (texts, end.expect("an end"))
}
