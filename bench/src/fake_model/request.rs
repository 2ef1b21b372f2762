//! A request as the fake received it, and whether the real API would accept it.

use axum::http::HeaderMap;
use serde_json::Value;

/// Which API a request was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub api: Api,
    pub headers: HeaderMap,
    pub body: Value,
    /// Whether the fake rejected it, as the real API would.
    pub refused: bool,
}

impl RecordedRequest {
    /// The messages sent, or the items of the input.
    pub fn messages(&self) -> &[Value] {
        let field = match self.api {
            Api::Chat => "messages",
            Api::Responses => "input",
        };
        self.body[field].as_array().map_or(&[], Vec::as_slice)
    }

    /// The reason for which the real API would reject it.
    pub(super) fn fault(&self) -> Option<String> {
        let there = match self.api {
            Api::Chat => self.body["messages"].is_array(),
            Api::Responses => self.body["input"].is_array() || self.body["input"].is_string(),
        };
        if !there || !self.body["model"].is_string() {
            return Some("Missing required parameter: 'model', and 'messages' or 'input'.".to_owned());
        }
        match self.api {
            Api::Chat => history_fault(self.messages()),
            Api::Responses => input_fault(self.messages()),
        }
    }

    /// The last message, or null.
    pub fn last_message(&self) -> &Value {
        self.messages().last().unwrap_or(&Value::Null)
    }

    /// The text of the last user message.
    pub fn user_text(&self) -> &str {
        let last = self.messages().iter().rev().find(|message| message["role"] == "user");
        let content = last.map_or(&self.body["input"], |message| &message["content"]);
        content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default()
    }

    /// The names of the tools offered.
    pub fn tool_names(&self) -> Vec<&str> {
        self.body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["function"]["name"].as_str().or_else(|| tool["name"].as_str()))
            .collect()
    }

    /// The tool messages, or outputs of calls, after the last message or item of another kind.
    pub fn tool_results(&self) -> Vec<&Value> {
        let is_result = |message: &&Value| message["role"] == "tool" || message["type"] == "function_call_output";
        let mut results: Vec<_> = self.messages().iter().rev().take_while(is_result).collect();
        results.reverse();
        results
    }
}

/// The error of the real API for a history whose calls and results do not match.
fn history_fault(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(at) = open.iter().position(|open| *open == id) else {
                return Some(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.".into(),
                );
            };
            open.remove(at);
            continue;
        }
        if !open.is_empty() {
            break;
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open = calls.map(|call| call["id"].as_str().unwrap_or_default()).collect();
    }
    (!open.is_empty()).then(|| {
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        )
    })
}

/// The error of the real API for an input whose calls and outputs, or requests for permission and answers, do not match, or with a reasoning item that
/// nothing follows.
fn input_fault(items: &[Value]) -> Option<String> {
    let id_of = |item: &Value| item["call_id"].as_str().unwrap_or_default().to_owned();
    let mut asked: Vec<&str> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match item["type"].as_str().unwrap_or("message") {
            "function_call" => open.push(id_of(item)),
            "function_call_output" => {
                let id = id_of(item);
                let Some(at) = open.iter().position(|open| *open == id) else {
                    return Some(format!("No tool call found for function call output with call_id {id}."));
                };
                open.remove(at);
            }
            "mcp_approval_request" => asked.push(item["id"].as_str().unwrap_or_default()),
            "mcp_approval_response" => {
                let id = item["approval_request_id"].as_str().unwrap_or_default();
                let Some(at) = asked.iter().position(|asked| *asked == id) else {
                    return Some(format!("No approval request found with id '{id}'."));
                };
                asked.remove(at);
            }
            "reasoning" => {
                let follows = items.get(at + 1).is_some_and(|next| next["role"] != "user" && next["type"] != "function_call_output");
                if !follows {
                    let id = item["id"].as_str().unwrap_or_default();
                    return Some(format!("Item '{id}' of type 'reasoning' was provided without its required following item."));
                }
            }
            _ => {}
        }
    }
    let unanswered = asked.first().map(|id| format!("No approval response found for approval request '{id}'."));
    open.first().map(|id| format!("No tool output found for function call {id}.")).or(unanswered)
}
