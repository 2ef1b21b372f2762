//! Parses a request to `/v1/responses`. Unknown fields and items are ignored. No I/O.

use serde_json::{Map, Value, json};
use werkruf_contract::Uuid;

use super::echo::RequestEcho;
use super::summary;
use crate::api::ApiError;
use crate::openai::tools;

/// The fields that are read. All others are skipped.
pub(crate) const FIELDS: [&str; 28] = [
    "input",
    "model",
    "stream",
    "instructions",
    "metadata",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_output_tokens",
    "reasoning",
    "text",
    "max_tool_calls",
    "truncation",
    "user",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "top_logprobs",
    "prompt",
    "presence_penalty",
    "frequency_penalty",
    "include",
];

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Request {
    /// The usable input items. References are not resolved yet.
    pub(crate) items: Vec<Value>,
    pub(crate) stream: bool,
    pub(crate) echo: RequestEcho,
    /// The conversation that the field `conversation` names.
    pub(crate) conversation: Option<Uuid>,
    pub(crate) body: Map<String, Value>,
}

impl Request {
    /// Parses a request body.
    pub(crate) fn read(mut body: Map<String, Value>) -> Result<Self, ApiError> {
        let items = match body.remove("input") {
            Some(Value::Array(items)) => items.into_iter().flat_map(usable).collect(),
            Some(Value::String(text)) if !text.is_empty() => vec![user_message(text)],
            _ => Vec::new(),
        };
        let conversation = conversation(body.get("conversation"))?;
        let flag = |name: &str| body.get(name).and_then(Value::as_bool);
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let echo = RequestEcho {
            model: text("model").unwrap_or_default(),
            instructions: body.get("instructions").filter(|value| !value.is_null()).cloned(),
            metadata: body.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
            store: flag("store").unwrap_or(true),
            background: flag("background").unwrap_or(false),
            previous_response_id: text("previous_response_id"),
            tools: own_tools(body.get("tools")),
            options: RequestEcho::options_of(&body),
            results: items.iter().filter(|item| is_result(item)).cloned().collect(),
        };
        Ok(Self { items, stream: flag("stream").unwrap_or(false), echo, conversation, body })
    }

    /// Model options, under their Chat Completions names.
    pub(crate) fn options(&self) -> Map<String, Value> {
        let mut options = Map::new();
        let at = |path: [&str; 2]| self.body.get(path[0]).and_then(|value| value.get(path[1])).filter(|value| !value.is_null());
        let mut put = |name: &str, value: Option<&Value>| {
            if let Some(value) = value {
                options.insert(name.to_owned(), value.clone());
            }
        };
        for name in ["top_p", "presence_penalty", "frequency_penalty"] {
            put(name, self.body.get(name).filter(|value| value.is_number()));
        }
        put("reasoning_effort", at(["reasoning", "effort"]));
        put("verbosity", at(["text", "verbosity"]));
        put("response_format", at(["text", "format"]).and_then(response_format).as_ref());
        options
    }

    /// The value of a numeric field.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.body.get(name).and_then(Value::as_f64)
    }
}

/// Converts `text.format`, which is flat, into `response_format` of Chat Completions, which nests the schema.
fn response_format(format: &Value) -> Option<Value> {
    match format["type"].as_str()? {
        "json_object" => Some(json!({"type": "json_object"})),
        "json_schema" => {
            let mut schema = format.as_object()?.clone();
            schema.remove("type");
            Some(json!({"type": "json_schema", "json_schema": schema}))
        }
        _ => None,
    }
}

/// The tools of the request that the client runs.
fn own_tools(value: Option<&Value>) -> Vec<Value> {
    let flat = |tool: werkruf_runtime::ClientTool| match tool.custom {
        true => json!({"type": "custom", "name": tool.name, "description": tool.description}),
        false => {
            json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict})
        }
    };
    tools::tools(value).into_iter().map(flat).collect()
}

fn conversation(value: Option<&Value>) -> Result<Option<Uuid>, ApiError> {
    let Some(name) = value.and_then(|value| value.as_str().or_else(|| value["id"].as_str())) else { return Ok(None) };
    let id = Uuid::parse_str(name.strip_prefix("conv_").unwrap_or(name));
    id.map(Some).map_err(|_| ApiError::not_found("conversation"))
}

fn user_message(text: impl Into<Value>) -> Value {
    json!({"type": "message", "role": "user", "content": text.into()})
}

/// Whether an item is the result of a call that the client ran.
pub(crate) fn is_result(item: &Value) -> bool {
    matches!(item["type"].as_str(), Some("function_call_output" | "custom_tool_call_output"))
}

/// The usable items for an input item. The summary of a compaction is a question and its answer.
pub(crate) fn usable(given: Value) -> Vec<Value> {
    if given["type"] != "compaction" {
        return item(given).into_iter().collect();
    }
    let opened = given["encrypted_content"].as_str().and_then(summary::opened);
    let pair = |text: String| {
        let answer = json!({"type": "message", "role": "assistant", "content": text});
        vec![user_message(summary::QUESTION), answer]
    };
    opened.map(pair).unwrap_or_default()
}

/// Converts an input item; `None` for items that are not used, such as reasoning and the built-in tool calls of other servers.
fn item(mut item: Value) -> Option<Value> {
    if let Value::String(text) = item {
        return Some(user_message(text));
    }
    let known = match item["type"].as_str() {
        Some("function_call" | "custom_tool_call" | "function_call_output" | "custom_tool_call_output" | "item_reference") => {
            return Some(item);
        }
        None => item.get("role").is_some() && item.get("content").is_some(),
        Some("message") => true,
        Some(_) => false,
    };
    if !known {
        // Some clients send a reference that has only an id.
        return item.get("id").filter(|_| item.get("type").is_none()).map(|id| json!({"type": "item_reference", "id": id}));
    }
    if !matches!(item["role"].as_str(), Some("user" | "assistant" | "system" | "developer")) {
        item["role"] = "user".into();
    }
    Some(item)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use werkruf_contract::Uuid;

    use super::{FIELDS, Request, RequestEcho, summary};

    fn read(body: &Value) -> Request {
        let mut body = body.as_object().unwrap().clone();
        body.retain(|name, _| FIELDS.contains(&name.as_str()));
        Request::read(body).ok().unwrap()
    }

    #[test]
    fn an_input_is_a_text_or_items() {
        let user = json!({"type": "message", "role": "user", "content": "hi"});
        assert_eq!(read(&json!({"input": "hi"})).items, [user]);
        let items = json!([
            "hi",
            {"role": "owner", "content": "x"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "compaction", "encrypted_content": "…"},
            {"type": "compaction", "encrypted_content": summary::sealed("They met.")},
            {"type": "additional_tools", "role": "developer", "tools": []},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"id": "msg_1"},
            17,
        ]);
        let request = read(&json!({"input": items}));
        let kinds: Vec<&str> = request.items.iter().map(|item| item["type"].as_str().unwrap_or("plain")).collect();
        assert_eq!(kinds, ["message", "plain", "message", "message", "function_call", "function_call_output", "item_reference"]);
        assert_eq!((&request.items[3]["role"], &request.items[3]["content"]), (&json!("assistant"), &json!("They met.")));
        assert_eq!(request.items[1]["role"], "user");
        assert_eq!(request.echo.results.len(), 1);
        assert!(read(&json!({})).items.is_empty());
    }

    #[test]
    fn options_get_their_chat_completions_names() {
        let request = read(&json!({"top_p": 0.5, "reasoning": {"effort": "low"}, "text": {"verbosity": "low",
            "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true}}}));
        let options = request.options();
        assert_eq!(options["response_format"], json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": true}}));
        assert_eq!((&options["reasoning_effort"], &options["verbosity"], &options["top_p"]), (&json!("low"), &json!("low"), &json!(0.5)));
        assert!(read(&json!({"text": {"format": {"type": "text"}}, "top_p": null})).options().is_empty());
    }

    #[test]
    fn every_option_that_is_repeated_is_read() {
        let body = FIELDS.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        assert_eq!(RequestEcho::options_of(&body).len(), RequestEcho::OPTIONS);
    }

    #[test]
    fn missing_fields_have_their_defaults() {
        let request = read(&json!({"model": "m", "store": null, "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}]}));
        assert!(request.echo.store && !request.echo.background && !request.stream);
        assert_eq!(request.echo.tools.len(), 1);
        let parts =
            json!([{"role": "developer", "content": "One."}, {"role": "developer", "content": [{"type": "input_text", "text": "Two."}]}]);
        assert_eq!(read(&json!({"instructions": parts})).echo.instructions_text().as_deref(), Some("One.\n\nTwo."));
    }

    #[test]
    fn a_conversation_is_named_with_or_without_its_prefix() {
        let id = Uuid::from_u128(7);
        for name in [json!(id), json!(format!("conv_{}", id.simple())), json!({"id": format!("conv_{id}")})] {
            assert_eq!(read(&json!({"conversation": name})).conversation, Some(id));
        }
        assert_eq!(read(&json!({"conversation": null})).conversation, None);
        assert!(Request::read(json!({"conversation": "conv_68"}).as_object().unwrap().clone()).is_err());
    }
}
