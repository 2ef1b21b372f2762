//! The events of the native stream. Every event with a number is also stored as a row.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::annotation::Annotation;
use crate::call::{CallStatus, TurnStatus, string_enum};
use crate::error::{ToolErrorDetail, ToolErrorType};
use crate::error_code::ErrorCode;

string_enum! {
    /// The event names of the native stream.
    EventType {
        Init = "init",
        ToolStarted = "tool_started",
        ToolProgress = "tool_progress",
        ToolFinished = "tool_finished",
        ApprovalRequired = "approval_required",
        AssistantToken = "assistant_token",
        AssistantSnapshot = "assistant_snapshot",
        AssistantReset = "assistant_reset",
        Final = "final",
        Error = "error",
        Debug = "debug",
    }
}

string_enum! {
    /// Why the model stopped, spelled as in Chat Completions.
    #[derive(Default)]
    FinishReason {
        /// The answer is complete.
        #[default]
        Stop = "stop",
        /// A token limit cut the answer off.
        Length = "length",
        /// The provider withheld the rest of the answer.
        ContentFilter = "content_filter",
        /// The model refused; the text says so.
        Refusal = "refusal",
    }
}

impl EventType {
    /// Exactly one of these ends a turn.
    pub const fn ends_turn(self) -> bool {
        matches!(self, Self::Final | Self::Error)
    }

    /// After these events the text of the step is stored in a row or discarded.
    pub const fn settles_text(self) -> bool {
        matches!(self, Self::Final | Self::Error | Self::AssistantSnapshot | Self::AssistantReset)
    }
}

/// `init`: the message is stored, the turn exists.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Init {
    #[serde(rename = "chatId")]
    pub chat_id: Uuid,
    pub conversation_id: Uuid,
    pub turn_id: Uuid,
    /// Whether this message created the conversation.
    pub created: bool,
}

/// `tool_started`: the row is `running` and durable.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolStarted {
    pub tool: String,
    pub job_id: Uuid,
    pub call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
}

/// `tool_progress`: how far a running call is; not stored as a row.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolProgress {
    pub tool: String,
    pub job_id: Uuid,
    /// Grows with every event of a call.
    pub progress: f64,
    /// Null if the tool does not know it.
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// `tool_finished`: the row is terminal and durable.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ToolFinished {
    pub tool: String,
    pub job_id: Uuid,
    pub call_id: Option<String>,
    pub status: CallStatus,
    pub took_ms: u64,
    pub cache_hit: bool,
}

/// `approval_required`: a person must decide before the call runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequired {
    pub approval_id: Uuid,
    pub tool: String,
    /// The server that the model's provider would call; only with a call that the provider runs itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
    pub job_id: Uuid,
    pub arguments: Value,
    /// The untrusted results that the model had read: `[{tool, job_id}]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taint: Option<Value>,
    /// The turn's tokens and cost so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// `assistant_token`: a piece of text as it arrives from the model; not stored as a row.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantToken {
    pub content: String,
    pub step: u32,
}

/// `assistant_snapshot`: replaces the text of this step.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantSnapshot {
    pub content: String,
    pub step: u32,
    pub turn_id: Uuid,
    /// What the text refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<Annotation>,
    /// The client left before the text was complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canceled: bool,
}

impl AssistantSnapshot {
    /// A text without annotations.
    pub const fn text(content: String, step: u32, turn_id: Uuid) -> Self {
        Self { content, step, turn_id, annotations: Vec::new(), canceled: false }
    }
}

/// `assistant_reset`: the text of this step was discarded; the model request is repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantReset {
    pub step: u32,
    pub turn_id: Uuid,
}

/// A message as clients receive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
    /// What the text refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<Annotation>,
}

impl ChatMessage {
    /// A message of the assistant without annotations.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self { role: "assistant".to_owned(), content: content.into(), annotations: Vec::new() }
    }
}

/// Tokens and cost of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub input_tokens: i64,
    pub cached_tokens: i64,
    pub output_tokens: i64,
    pub reasoning_tokens: i64,
    pub total_tokens: i64,
    /// Null when the price of any model request of the turn is unknown.
    pub cost_usd: Option<f64>,
    pub model_calls: u32,
}

impl Usage {
    /// Adds the cost of a model request; must be called before the request is counted in `model_calls`. One unknown price makes the
    /// sum unknown.
    pub fn add_cost(&mut self, nano_usd: Option<i64>) {
        let before = if self.model_calls == 0 { Some(0.0) } else { self.cost_usd };
        // Summed as integers, because a sum of floats would drift from the sum of the stored rows.
        self.cost_usd = before.zip(nano_usd).map(|(before, nano)| Self::dollars((before * NANO).round() as i64 + nano));
    }

    /// Converts nano-dollars to dollars.
    pub fn dollars(nano_usd: i64) -> f64 {
        nano_usd as f64 / NANO
    }
}

const NANO: f64 = 1e9;

/// The result of one call inside the final answer.
// `D` is a `Value` when the result is read, and raw JSON text that is inserted as it is when the result is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallResult<D = Value> {
    pub job_id: Uuid,
    pub call_id: Option<String>,
    pub tool: String,
    pub status: CallStatus,
    pub took_ms: u64,
    pub cache_hit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolErrorDetail>,
}

/// `final`, which is also the JSON response of `POST /api/chat`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Final<D = Value> {
    pub conversation_id: Uuid,
    #[serde(rename = "chatId")]
    pub chat_id: Uuid,
    pub turn_id: Uuid,
    pub created: bool,
    pub status: TurnStatus,
    pub message: ChatMessage,
    pub session_state: Map<String, Value>,
    /// `data` of the last succeeded call.
    pub tool_result: Option<D>,
    pub tool_results: Vec<CallResult<D>>,
    /// Calls of the client's own tools, which the client must run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_calls: Vec<ClientCall>,
    /// Why the model stopped.
    #[serde(default)]
    pub finish_reason: FinishReason,
    pub usage: Usage,
}

/// A call that the client must run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientCall {
    /// The id that the client returns with the result.
    pub id: String,
    pub name: String,
    /// The exact string from the model.
    pub arguments: String,
}

/// `error`: the turn ended without an answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ErrorEvent {
    #[serde(rename = "type")]
    pub kind: ToolErrorType,
    pub code: String,
    pub message: String,
    pub retry_after_ms: Option<u64>,
    pub turn_id: Uuid,
}

impl ErrorEvent {
    /// Whether the turn failed with this code of the server.
    pub fn is(&self, code: ErrorCode) -> bool {
        code.is(&self.code)
    }
}

/// `debug`: for operators only; not stored as a row.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DebugEntry {
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Map<String, Value>,
}
