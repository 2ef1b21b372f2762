//! The response object: the echoed fields of the request and the current state of the turn. No I/O.

use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::{Annotation, AssistantSnapshot, ClientCall, ErrorEvent, FinishReason, Usage, Uuid};

use super::echo::RequestEcho;
use crate::openai::tools::custom_input;

/// The status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseStatus {
    Queued,
    InProgress,
    Completed,
    /// Cut off by a limit or by a filter.
    Incomplete(FinishReason),
    Failed,
    Cancelled,
}

impl ResponseStatus {
    /// The status of a turn that ended with an answer.
    pub(crate) fn of_answer(finish: FinishReason, calls: &[ClientCall]) -> Self {
        if calls.is_empty() && !matches!(finish, FinishReason::Stop | FinishReason::Refusal) {
            Self::Incomplete(finish)
        } else {
            Self::Completed
        }
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

/// The status of an output item. It agrees with the status of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemStatus {
    InProgress,
    Completed,
    /// The answer ended in this item before it was complete.
    Incomplete,
}

impl ItemStatus {
    /// The status of the last message of an answer.
    pub(crate) const fn of_last(response: ResponseStatus) -> Self {
        if matches!(response, ResponseStatus::Incomplete(_)) { Self::Incomplete } else { Self::Completed }
    }

    /// The status of the text of a step.
    pub(crate) const fn of_step(snapshot: &AssistantSnapshot) -> Self {
        if snapshot.canceled { Self::Incomplete } else { Self::Completed }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Marks the last message of a response that ended without an answer: clients must not take it for one.
pub(crate) fn cut_short(output: &mut [Value]) {
    if let Some(item) = output.last_mut().filter(|item| item["type"] == "message") {
        item["status"] = ItemStatus::Incomplete.as_str().into();
    }
}

/// The parts of a response that do not change while the turn runs.
#[derive(Debug, Clone)]
pub(crate) struct ResponseBase {
    pub(crate) turn_id: Uuid,
    pub(crate) conversation_id: Uuid,
    pub(crate) echo: RequestEcho,
}

/// The parts of a response that change while the turn runs.
#[derive(Debug, Clone)]
pub(crate) struct ResponseState<'a> {
    pub(crate) status: ResponseStatus,
    pub(crate) output: &'a [Value],
    pub(crate) usage: Option<&'a Usage>,
    pub(crate) error: Option<&'a ErrorEvent>,
    /// When the turn ended.
    pub(crate) ended_at: Option<Timestamp>,
    /// The approval that the turn waits for.
    pub(crate) approval_id: Option<Uuid>,
}

impl ResponseState<'_> {
    /// A state that has only a status.
    pub(crate) const fn with_status(status: ResponseStatus) -> Self {
        Self { status, output: &[], usage: None, error: None, ended_at: None, approval_id: None }
    }
}

/// The response id of a turn.
pub(crate) fn response_id(turn_id: Uuid) -> String {
    format!("resp_{}", turn_id.simple())
}

/// The turn id in a response id, with or without the prefix.
pub(crate) fn turn_of(id: &str) -> Option<Uuid> {
    Uuid::parse_str(id.strip_prefix("resp_").unwrap_or(id)).ok()
}

/// The turn id and the output index in an item id.
pub(crate) fn item_of(id: &str) -> Option<(Uuid, usize)> {
    let (turn, index) = ["msg_", "fc_", "ctc_"].iter().find_map(|prefix| id.strip_prefix(prefix))?.rsplit_once('_')?;
    Some((Uuid::parse_str(turn).ok()?, index.parse().ok()?))
}

impl ResponseBase {
    /// Builds the response object.
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
        let completed_at = state.ended_at.filter(|_| state.status == ResponseStatus::Completed);
        let mut object = echo.repeated();
        let fields = json!({
            "id": response_id(self.turn_id),
            "object": "response",
            "created_at": self.created_at(),
            "completed_at": completed_at.map(Timestamp::as_second),
            "status": state.status.as_str(),
            "background": echo.background,
            "conversation": {"id": format!("conv_{}", self.conversation_id.simple())},
            "error": if state.status == ResponseStatus::Failed { error } else { None },
            "incomplete_details": incomplete,
            "instructions": echo.instructions_text(),
            "metadata": metadata,
            "model": echo.model,
            "output": state.output,
            "previous_response_id": echo.previous_response_id,
            "store": echo.store,
            "tools": echo.tools,
            "usage": state.usage.map(usage),
        });
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        Value::Object(object)
    }

    /// When the turn was created. The time is taken from the turn id, so it is the same on every process.
    fn created_at(&self) -> u64 {
        self.turn_id.get_timestamp().map_or(0, |time| time.to_unix().0)
    }

    /// The id of the message at this output index.
    pub(crate) fn message_id(&self, index: usize) -> String {
        format!("msg_{}_{index}", self.turn_id.simple())
    }

    /// A message item. Without a text it is in progress.
    pub(crate) fn message(&self, index: usize, text: Option<(&str, &[Annotation])>, status: ItemStatus) -> Value {
        let content: Vec<Value> = text.map(|(text, annotations)| text_part(text, annotations)).into_iter().collect();
        json!({"id": self.message_id(index), "type": "message", "status": status.as_str(), "role": "assistant", "content": content})
    }

    /// A call that the client has to run.
    pub(crate) fn call(&self, index: usize, call: &ClientCall) -> Value {
        let turn = self.turn_id.simple();
        if self.echo.is_custom(&call.name) {
            let (id, input) = (format!("ctc_{turn}_{index}"), custom_input(call));
            return json!({"id": id, "type": "custom_tool_call", "status": "completed", "call_id": call.id, "name": call.name, "input": input});
        }
        let (id, arguments) = (format!("fc_{turn}_{index}"), arguments(call));
        json!({"id": id, "type": "function_call", "status": "completed", "call_id": call.id, "name": call.name, "arguments": arguments})
    }
}

/// The content part with the text of a message.
pub(crate) fn text_part(text: &str, annotations: &[Annotation]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": []})
}

/// The arguments of a call; `{}` where there are none, because some clients drop a call without arguments.
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
    fn every_field_is_present() {
        let usage = Usage { input_tokens: 3, cached_tokens: 1, output_tokens: 4, reasoning_tokens: 2, total_tokens: 7, ..Usage::default() };
        let state = ResponseState { usage: Some(&usage), ..ResponseState::with_status(ResponseStatus::Completed) };
        let object = base().object(&state);
        assert_eq!(object["id"], "resp_018bcfe5680070008000000000000001");
        assert_eq!(object["created_at"], 1_700_000_000);
        assert_eq!((&object["temperature"], &object["top_p"], &object["tool_choice"]), (&json!(0.5), &json!(1.0), &json!("auto")));
        assert_eq!(object["usage"]["output_tokens_details"], json!({"reasoning_tokens": 2}));
        for name in ["error", "incomplete_details", "instructions", "previous_response_id", "user", "max_output_tokens", "completed_at"] {
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
    fn a_pending_approval_is_named_in_the_metadata() {
        let state = ResponseState { approval_id: Some(Uuid::nil()), ..ResponseState::with_status(ResponseStatus::InProgress) };
        assert_eq!(base().object(&state)["metadata"], json!({"approval_id": Uuid::nil()}));
    }

    #[test]
    fn ids_contain_the_turn_id() {
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
