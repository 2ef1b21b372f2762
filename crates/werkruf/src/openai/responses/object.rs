//! The response object: what a request asked for, said back, and what the turn has come to. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use werkruf_contract::{ClientCall, ErrorEvent, FinishReason, Usage, Uuid};

/// What a request said that its response says again. Stored with the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Echo {
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
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) wishes: Map<String, Value>,
    /// Results of client calls that came with the request: they take places in an earlier turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) results: Vec<Value>,
}

/// Fields that are said back as they came, and what they are where nothing came.
const WISHES: [(&str, &str); 15] = [
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

impl Echo {
    /// The fields of a request that are said back unchanged.
    pub(crate) fn wishes_of(body: &Map<String, Value>) -> Map<String, Value> {
        let given = |(name, _): &(&str, &str)| Some(((*name).to_owned(), body.get(*name).filter(|value| !value.is_null())?.clone()));
        WISHES.iter().filter_map(given).collect()
    }
}

/// Where a response stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Queued,
    InProgress,
    Completed,
    /// Cut off: by a limit, or by a filter.
    Incomplete(FinishReason),
    Failed,
    Cancelled,
}

impl Standing {
    /// How a turn stands that has an answer.
    pub(crate) fn answered(finish: FinishReason, calls: &[ClientCall]) -> Self {
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
pub(crate) struct Subject {
    pub(crate) turn_id: Uuid,
    pub(crate) conversation_id: Uuid,
    pub(crate) echo: Echo,
}

/// What a response has come to.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    pub(crate) standing: Standing,
    pub(crate) output: &'a [Value],
    pub(crate) usage: Option<&'a Usage>,
    pub(crate) error: Option<&'a ErrorEvent>,
    /// The wish a person has to decide.
    pub(crate) approval_id: Option<Uuid>,
}

impl State<'_> {
    /// Nothing but its standing.
    pub(crate) const fn just(standing: Standing) -> Self {
        Self { standing, output: &[], usage: None, error: None, approval_id: None }
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

impl Subject {
    /// The whole object.
    pub(crate) fn object(&self, state: &State<'_>) -> Value {
        let echo = &self.echo;
        let mut metadata = echo.metadata.clone();
        if let Some(id) = state.approval_id {
            metadata.insert("approval_id".to_owned(), id.to_string().into());
        }
        let error = state.error.map(|error| json!({"code": error.code, "message": error.message}));
        let cut = match state.standing {
            Standing::Incomplete(FinishReason::ContentFilter) => Some(json!({"reason": "content_filter"})),
            Standing::Incomplete(_) => Some(json!({"reason": "max_output_tokens"})),
            _ => None,
        };
        let mut object = Map::new();
        for (name, usual) in WISHES {
            let value = echo.wishes.get(name).cloned().unwrap_or_else(|| serde_json::from_str(usual).unwrap_or_default());
            object.insert(name.to_owned(), value);
        }
        let rest = json!({
            "id": response_id(self.turn_id),
            "object": "response",
            "created_at": self.created_at(),
            "status": state.standing.as_str(),
            "background": echo.background,
            "conversation": {"id": format!("conv_{}", self.conversation_id.simple())},
            "error": if state.standing == Standing::Failed { error } else { None },
            "incomplete_details": cut,
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

    use super::{Echo, Standing, State, Subject, item_of, response_id, turn_of};

    fn subject() -> Subject {
        let turn_id = Uuid::parse_str("018bcfe5-6800-7000-8000-000000000001").unwrap();
        let wishes = json!({"temperature": 0.5, "model": "x", "user": null, "strange": 1});
        let echo = Echo { model: "m".into(), store: true, wishes: Echo::wishes_of(wishes.as_object().unwrap()), ..Echo::default() };
        Subject { turn_id, conversation_id: Uuid::nil(), echo }
    }

    #[test]
    fn every_field_is_there_whatever_was_asked() {
        let usage = Usage { input_tokens: 3, cached_tokens: 1, output_tokens: 4, reasoning_tokens: 2, total_tokens: 7, ..Usage::default() };
        let state = State { usage: Some(&usage), ..State::just(Standing::Completed) };
        let object = subject().object(&state);
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
            let object = subject().object(&State::just(Standing::answered(finish, &[])));
            (object["status"].clone(), object["incomplete_details"]["reason"].clone())
        };
        assert_eq!(details(FinishReason::Stop), (json!("completed"), Value::Null));
        assert_eq!(details(FinishReason::Length), (json!("incomplete"), json!("max_output_tokens")));
        assert_eq!(details(FinishReason::ContentFilter), (json!("incomplete"), json!("content_filter")));
        let call = ClientCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
        assert_eq!(Standing::answered(FinishReason::Length, &[call]), Standing::Completed);
    }

    #[test]
    fn a_wish_that_waits_is_named_in_the_metadata() {
        let state = State { approval_id: Some(Uuid::nil()), ..State::just(Standing::InProgress) };
        assert_eq!(subject().object(&state)["metadata"], json!({"approval_id": Uuid::nil()}));
    }

    #[test]
    fn names_lead_back_to_the_turn() {
        let subject = subject();
        let turn_id = subject.turn_id;
        assert_eq!(turn_of(&response_id(turn_id)), Some(turn_id));
        assert_eq!(turn_of(&turn_id.to_string()), Some(turn_id));
        assert_eq!(item_of(&subject.message_id(2)), Some((turn_id, 2)));
        let call = ClientCall { id: "call_1".into(), name: "f".into(), arguments: " ".into() };
        let item = subject.call(0, &call);
        assert_eq!((item_of(item["id"].as_str().unwrap()), &item["arguments"]), (Some((turn_id, 0)), &json!("{}")));
        assert_eq!((turn_of("resp_abc"), item_of("rs_1_2"), item_of("msg_abc")), (None, None, None));
    }
}
