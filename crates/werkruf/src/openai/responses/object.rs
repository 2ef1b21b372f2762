//! The response object: what a request asked for, said back, and what the turn has come to. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use werkruf_contract::{ClientCall, ErrorEvent, FinishReason, Usage, Uuid};

/// What a request said that its response says again. Stored with the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequestEcho {
    pub(crate) model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Value>,
    pub(crate) store: bool,
    pub(crate) background: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_response_id: Option<String>,
    /// Function tools only: others are not used, so they are not claimed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Value>,
    /// Everything else that is said back as it came (`temperature`, `text`, `reasoning`, …).
    #[serde(rename = "wishes", skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
    /// Results of client calls that came with the request: they take places in an earlier turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) results: Vec<Value>,
}

/// Fields that are said back as they came, and what they are where nothing came.
const ECHOED_OPTIONS: [(&str, &str); 15] = [
    ("temperature", "1.0"),
    ("top_p", "1.0"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("parallel_tool_calls", "true"),
    ("tool_choice", "\"auto\""),
    ("truncation", "\"disabled\""),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("service_tier", "\"default\""),
    ("top_logprobs", "0"),
    ("user", "null"),
    ("safety_identifier", "null"),
    ("prompt_cache_key", "null"),
    ("prompt", "null"),
];

impl RequestEcho {
    /// The fields of a request that are said back unchanged.
    pub(crate) fn options_of(body: &Map<String, Value>) -> Map<String, Value> {
        let given = |(name, _): &(&str, &str)| Some(((*name).to_owned(), body.get(*name).filter(|value| !value.is_null())?.clone()));
        ECHOED_OPTIONS.iter().filter_map(given).collect()
    }
}

/// Where a response stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStatus {
    Queued,
    InProgress,
    Completed,
    /// Cut off: by a limit, or by a filter.
    Incomplete(FinishReason),
    Failed,
    Cancelled,
}

impl ResponseStatus {
    /// How a turn stands that has an answer.
    pub(crate) fn of_answer(finish: FinishReason, calls: &[ClientCall]) -> Self {
        if calls.is_empty() && finish != FinishReason::Stop { Self::Incomplete(finish) } else { Self::Completed }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One response: its names and what was asked.
#[derive(Debug, Clone)]
pub(crate) struct ResponseBase {
    pub(crate) turn_id: Uuid,
    pub(crate) conversation_id: Uuid,
    pub(crate) echo: RequestEcho,
}

/// What a response has come to.
#[derive(Debug, Clone)]
pub(crate) struct ResponseState<'a> {
    pub(crate) status: ResponseStatus,
    pub(crate) output: &'a [Value],
    pub(crate) usage: Option<&'a Usage>,
    pub(crate) error: Option<&'a ErrorEvent>,
    /// The wish a person has to decide.
    pub(crate) approval_id: Option<Uuid>,
}

impl ResponseState<'_> {
    /// Nothing but its standing.
    pub(crate) const fn with_status(status: ResponseStatus) -> Self {
        Self { status, output: &[], usage: None, error: None, approval_id: None }
    }
}

/// The name of a turn at this door.
pub(crate) fn response_id(turn_id: Uuid) -> String {
    format!("resp_{}", turn_id.simple())
}

/// The turn behind a name, as given with or without its prefix.
pub(crate) fn turn_of(name: &str) -> Option<Uuid> {
    Uuid::parse_str(name.strip_prefix("resp_").unwrap_or(name)).ok()
}

/// The turn and the place behind an item's name.
pub(crate) fn item_of(name: &str) -> Option<(Uuid, usize)> {
    let (turn, place) = name.strip_prefix("msg_").or_else(|| name.strip_prefix("fc_"))?.rsplit_once('_')?;
    Some((Uuid::parse_str(turn).ok()?, place.parse().ok()?))
}

impl ResponseBase {
    /// The whole object.
    pub(crate) fn object(&self, state: &ResponseState<'_>) -> Value {
        let echo = &self.echo;
        let mut metadata = echo.metadata.clone();
        if let Some(id) = state.approval_id {
            metadata.insert("approval_id".to_owned(), id.to_string().into());
        }
        let error = state.error.map(|error| json!({"code": error.code, "message": error.message}));
        let incomplete = match state.status {
            ResponseStatus::Incomplete(FinishReason::ContentFilter) => Some(json!({"reason": "content_filter"})),
            ResponseStatus::Incomplete(_) => Some(json!({"reason": "max_output_tokens"})),
            _ => None,
        };
        let mut object = Map::new();
        for (name, default) in ECHOED_OPTIONS {
            let value = echo.options.get(name).cloned().unwrap_or_else(|| serde_json::from_str(default).unwrap_or_default());
            object.insert(name.to_owned(), value);
        }
        let rest = json!({
            "id": response_id(self.turn_id),
            "object": "response",
            "created_at": self.created_at(),
            "status": state.status.as_str(),
            "background": echo.background,
            "conversation": {"id": format!("conv_{}", self.conversation_id.simple())},
            "error": if state.status == ResponseStatus::Failed { error } else { None },
            "incomplete_details": incomplete,
            "instructions": echo.instructions,
            "metadata": metadata,
            "model": echo.model,
            "output": state.output,
            "previous_response_id": echo.previous_response_id,
            "store": echo.store,
            "tools": echo.tools,
            "usage": state.usage.map(usage),
        });
        if let Value::Object(rest) = rest {
            object.extend(rest);
        }
        Value::Object(object)
    }

    /// When the turn was made: its id says so, on every process.
    fn created_at(&self) -> u64 {
        self.turn_id.get_timestamp().map_or(0, |time| time.to_unix().0)
    }

    /// The name of the message at this place of the output.
    pub(crate) fn message_id(&self, place: usize) -> String {
        format!("msg_{}_{place}", self.turn_id.simple())
    }

    /// A message item; without a text it has just begun.
    pub(crate) fn message(&self, place: usize, text: Option<&str>) -> Value {
        let status = if text.is_some() { "completed" } else { "in_progress" };
        let content: Vec<Value> = text.map(text_part).into_iter().collect();
        json!({"id": self.message_id(place), "type": "message", "status": status, "role": "assistant", "content": content})
    }

    /// The name of the call at this place of the output.
    pub(crate) fn call_id(&self, place: usize) -> String {
        format!("fc_{}_{place}", self.turn_id.simple())
    }

    /// A call of the client's.
    pub(crate) fn call(&self, place: usize, call: &ClientCall) -> Value {
        let (id, arguments) = (self.call_id(place), arguments(call));
        let mut item = json!({"id": id, "type": "function_call", "status": "completed", "arguments": arguments});
        item["call_id"] = call.id.as_str().into();
        item["name"] = call.name.as_str().into();
        item
    }
}

/// The text of a message.
pub(crate) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The arguments as clients can read them: some drop a call without any.
pub(crate) fn arguments(call: &ClientCall) -> &str {
    if call.arguments.trim().is_empty() { "{}" } else { &call.arguments }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use werkruf_contract::{ClientCall, FinishReason, Usage, Uuid};

    use super::{RequestEcho, ResponseBase, ResponseState, ResponseStatus, item_of, response_id, turn_of};

    fn base() -> ResponseBase {
        let turn_id = Uuid::parse_str("018bcfe5-6800-7000-8000-000000000001").unwrap();
        let options = json!({"temperature": 0.5, "model": "x", "user": null, "strange": 1});
        let echo = RequestEcho {
            model: "m".into(),
            store: true,
            options: RequestEcho::options_of(options.as_object().unwrap()),
            ..RequestEcho::default()
        };
        ResponseBase { turn_id, conversation_id: Uuid::nil(), echo }
    }

    #[test]
    fn every_field_is_there_whatever_was_asked() {
        let usage = Usage { input_tokens: 3, cached_tokens: 1, output_tokens: 4, reasoning_tokens: 2, total_tokens: 7, ..Usage::default() };
        let state = ResponseState { usage: Some(&usage), ..ResponseState::with_status(ResponseStatus::Completed) };
        let object = base().object(&state);
        assert_eq!(object["id"], "resp_018bcfe5680070008000000000000001");
        assert_eq!(object["created_at"], 1_700_000_000);
        assert_eq!((&object["temperature"], &object["top_p"], &object["tool_choice"]), (&json!(0.5), &json!(1.0), &json!("auto")));
        assert_eq!(object["usage"]["output_tokens_details"], json!({"reasoning_tokens": 2}));
        for name in ["error", "incomplete_details", "instructions", "previous_response_id", "user", "max_output_tokens"] {
            assert_eq!(object.get(name), Some(&Value::Null), "{name}");
        }
        assert_eq!(object["strange"], Value::Null);
    }

    #[test]
    fn an_answer_that_was_cut_off_is_incomplete() {
        let details = |finish: FinishReason| {
            let object = base().object(&ResponseState::with_status(ResponseStatus::of_answer(finish, &[])));
            (object["status"].clone(), object["incomplete_details"]["reason"].clone())
        };
        assert_eq!(details(FinishReason::Stop), (json!("completed"), Value::Null));
        assert_eq!(details(FinishReason::Length), (json!("incomplete"), json!("max_output_tokens")));
        assert_eq!(details(FinishReason::ContentFilter), (json!("incomplete"), json!("content_filter")));
        let call = ClientCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
        assert_eq!(ResponseStatus::of_answer(FinishReason::Length, &[call]), ResponseStatus::Completed);
    }

    #[test]
    fn a_wish_that_waits_is_named_in_the_metadata() {
        let state = ResponseState { approval_id: Some(Uuid::nil()), ..ResponseState::with_status(ResponseStatus::InProgress) };
        assert_eq!(base().object(&state)["metadata"], json!({"approval_id": Uuid::nil()}));
    }

    #[test]
    fn names_lead_back_to_the_turn() {
        let base = base();
        let turn_id = base.turn_id;
        assert_eq!(turn_of(&response_id(turn_id)), Some(turn_id));
        assert_eq!(turn_of(&turn_id.to_string()), Some(turn_id));
        assert_eq!(item_of(&base.message_id(2)), Some((turn_id, 2)));
        let call = ClientCall { id: "call_1".into(), name: "f".into(), arguments: " ".into() };
        let item = base.call(0, &call);
        assert_eq!((item_of(item["id"].as_str().unwrap()), &item["arguments"]), (Some((turn_id, 0)), &json!("{}")));
        assert_eq!((turn_of("resp_abc"), item_of("rs_1_2"), item_of("msg_abc")), (None, None, None));
    }
}
