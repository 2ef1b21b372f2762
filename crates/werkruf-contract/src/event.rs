//! What a stream says. Every event but the unnumbered ones is also a row.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::call::{CallStatus, TurnStatus, spelled};
use crate::error::{ToolErrorDetail, ToolErrorType};

spelled! {
    /// The names of the native stream.
    EventType {
        Init = "init",
        ToolStarted = "tool_started",
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

spelled! {
    /// Why a model stopped speaking, in the words of Chat Completions.
    #[derive(Default)]
    FinishReason {
        /// It had said everything.
        #[default]
        Stop = "stop",
        /// A limit of tokens cut it off.
        Length = "length",
        /// Its provider held the rest back.
        ContentFilter = "content_filter",
    }
}

impl EventType {
    /// Exactly one of these ends a turn.
    pub const fn ends_turn(self) -> bool {
        matches!(self, Self::Final | Self::Error)
    }

    /// After these the text of the step stands in a row, or is void.
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
    /// Whether this message made the conversation.
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
    pub job_id: Uuid,
    pub arguments: Value,
    /// What the turn has cost so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// `assistant_token`: text as it comes; no row.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantToken {
    pub content: String,
    pub step: u32,
}

/// `assistant_snapshot`: replaces that step's text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantSnapshot {
    pub content: String,
    pub step: u32,
    pub turn_id: Uuid,
}

/// `assistant_reset`: that step's text was thrown away; the model is asked again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssistantReset {
    pub step: u32,
    pub turn_id: Uuid,
}

/// A message as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
}

/// Tokens and cost of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub input_tokens: i64,
    pub cached_tokens: i64,
    pub output_tokens: i64,
    pub reasoning_tokens: i64,
    pub total_tokens: i64,
    /// Null when any request of the turn had no known price.
    pub cost_usd: Option<f64>,
    pub model_calls: u32,
}

impl Usage {
    /// Adds what a request cost, before it is counted in `model_calls`. One unknown price makes the sum unknown.
    pub fn add_cost(&mut self, nano_usd: Option<i64>) {
        let before = if self.model_calls == 0 { Some(0.0) } else { self.cost_usd };
        // Summed as integers: a sum of binary fractions would drift from the sum of the rows.
        self.cost_usd = before.zip(nano_usd).map(|(before, nano)| Self::dollars((before * NANO).round() as i64 + nano));
    }

    /// Nano-dollars as dollars.
    pub fn dollars(nano_usd: i64) -> f64 {
        nano_usd as f64 / NANO
    }
}

const NANO: f64 = 1e9;

/// One call's outcome inside the final answer.
/// The data is a value where it is read, and text that is spliced where it is written.
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

/// `final`, which is also the JSON answer of `POST /api/chat`.
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
    /// Calls of the client's own tools, for the client to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_calls: Vec<ClientCall>,
    /// Why the model stopped speaking.
    #[serde(default)]
    pub finish_reason: FinishReason,
    pub usage: Usage,
}

/// A call that a client is asked to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientCall {
    /// Under which its result comes back.
    pub id: String,
    pub name: String,
    /// The exact string.
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

/// `debug`: for operators only; no row.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DebugEntry {
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Map<String, Value>,
}
