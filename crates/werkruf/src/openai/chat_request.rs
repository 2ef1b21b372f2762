//! The body of a Chat Completions request. It is read field by field: a field that is unknown, null or of an unexpected type is
//! ignored, because clients send fields that only some servers understand.

use serde_json::{Map, Value, json};
use werkruf_llm::history_formats::HistoryFormat;

use super::start::TurnRequest;
use super::{tools, unsupported};
use crate::api::body::RawBody;
use crate::api::error::ApiError;

/// Options that are passed to the model under their own names.
const MODEL_OPTIONS: [&str; 9] =
    ["top_p", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "response_format", "reasoning_effort", "verbosity"];
/// Fields that are stored with the turn.
const STORED_FIELDS: [&str; 4] = ["model", "metadata", "user", "store"];

/// The fields that are read. All others are skipped.
pub(crate) const FIELDS: [&str; 30] = [
    "messages",
    "model",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "parallel_tool_calls",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "reasoning",
    "top_p",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "metadata",
    "user",
    "store",
    "n",
    "logprobs",
    "top_logprobs",
    "modalities",
    "audio",
];

/// How the client wants the response to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseOptions {
    pub(crate) stream: bool,
    /// Whether the stream ends with a chunk that has the usage.
    pub(crate) include_usage: bool,
    /// Whether the request uses the older `functions` instead of `tools`: the answer then has one call without an id.
    pub(crate) legacy: bool,
    /// The model as the request names it.
    pub(crate) model: Option<String>,
    /// The client's tools that take a free text.
    pub(crate) custom_tools: Vec<String>,
}

/// Parses a request body.
pub(crate) fn read(raw: RawBody, mut body: Map<String, Value>) -> Result<(TurnRequest, ResponseOptions), ApiError> {
    unsupported::check_chat(&body)?;
    let Some(Value::Array(mut values)) = body.remove("messages") else {
        return Err(ApiError::invalid("The field messages is missing; send a list of messages."));
    };
    add_call_ids(&mut values);
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    let number = |name: &str| body.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let client_tools = tools::tools(body.get("tools"));
    let legacy = client_tools.is_empty() && body.get("functions").is_some_and(Value::is_array);
    let limit = number("max_completion_tokens").or_else(|| number("max_tokens"));
    let model = text("model").filter(|name| !name.is_empty());
    let response_options = ResponseOptions {
        stream: flag("stream") == Some(true),
        include_usage: body.get("stream_options").is_some_and(|options| options["include_usage"] == true),
        legacy,
        model: model.clone(),
        custom_tools: client_tools.iter().filter(|tool| tool.custom).map(|tool| tool.name.clone()).collect(),
    };
    let request = TurnRequest {
        format: HistoryFormat::Openai,
        values,
        instructions: None,
        conversation: None,
        after: None,
        earlier: Vec::new(),
        continues: None,
        model,
        tool_choice: tools::choice(body.get("tool_choice").or_else(|| body.get("function_call"))),
        parallel_tool_calls: if legacy { Some(false) } else { flag("parallel_tool_calls") },
        tools: if legacy { tools::functions(body.get("functions")) } else { client_tools },
        temperature: body.get("temperature").and_then(Value::as_f64),
        max_output_tokens: limit,
        max_tool_calls: None,
        options: model_options(&body),
        allowed_tools: tools::allowed(body.get("tool_choice")),
        stops_on_leave: response_options.stream,
        echo: json!({"api": "chat", "request": pick(&body, &STORED_FIELDS)}),
        raw,
    };
    Ok((request, response_options))
}

fn pick(body: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let field = |name: &&str| Some(((*name).to_owned(), body.get(*name).filter(|value| !value.is_null())?.clone()));
    names.iter().filter_map(field).collect()
}

fn model_options(body: &Map<String, Value>) -> Map<String, Value> {
    let mut options = pick(body, &MODEL_OPTIONS);
    // Some gateways send the effort in this form.
    if let Some(effort) = body.get("reasoning").and_then(|reasoning| reasoning["effort"].as_str()) {
        options.entry("reasoning_effort").or_insert_with(|| effort.into());
    }
    options
}

/// Calls and results of the older `functions` have no ids. Each gets an id from its position, so a resent history has the same ids.
fn add_call_ids(messages: &mut [Value]) {
    let mut open_call_id: Option<String> = None;
    for (at, message) in messages.iter_mut().enumerate() {
        let Some(message) = message.as_object_mut() else { continue };
        match message.get("role").and_then(Value::as_str) {
            Some("assistant") => {
                let Some(call) = message.get("function_call").filter(|call| call.is_object()).cloned() else { continue };
                if message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty()) {
                    continue;
                }
                message.remove("function_call");
                let id = format!("call_function_{at}");
                message.insert("tool_calls".to_owned(), json!([{"id": id, "type": "function", "function": call}]));
                open_call_id = Some(id);
            }
            Some("function") => {
                message.insert("role".to_owned(), "tool".into());
                if !message.contains_key("tool_call_id") {
                    message.insert("tool_call_id".to_owned(), open_call_id.take().into());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "chat_request_tests.rs"]
mod tests;
