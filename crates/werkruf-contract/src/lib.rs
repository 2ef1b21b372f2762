//! The types that all other crates share: the tool trait, its input and output envelopes, errors, events and texts.
//!
//! This crate depends on no database, HTTP library or async runtime. A type belongs here only when two other library crates need it.

mod annotation;
mod call;
mod cancel;
mod check;
mod clock;
mod context;
mod error;
mod error_code;
mod event;
mod hex;
mod json_size;
mod models;
mod outcome;
mod principal;
mod progress;
mod results;
mod schema;
mod texts;
mod tool;
mod tool_object;

pub use annotation::Annotation;
pub use call::{ApprovalStatus, CallKind, CallStatus, Effect, Runner, TurnStatus};
pub use cancel::{Cancel, Deadline};
pub use check::{ENVELOPES, Violation, check, schema_of};
pub use clock::Clock;
pub use context::{Auth, ContextError, TRACEPARENT, ToolContext};
pub use error::{Failure, Happened, ToolError, ToolErrorDetail, ToolErrorMeta, ToolErrorType, TurnError};
pub use error_code::ErrorCode;
pub use event::{
    ApprovalRequired, AssistantReset, AssistantSnapshot, AssistantToken, CallResult, ChatMessage, ClientCall, DebugEntry, ErrorEvent,
    EventType, Final, FinishReason, Init, ToolFinished, ToolProgress, ToolStarted, Usage,
};
pub use hex::hex;
pub use json_size::{MAX_JSON_VALUES, count_json_values, json_bytes};
pub use models::{Citation, ModelSource, Models, NoModels, TextAnswer, TextRequest};
pub use outcome::{ToolOutput, ToolResult, ToolResultMeta};
pub use principal::{Access, HeldPermission, Need, Permission, Principal, Role, Scope, Tenant};
pub use progress::{NoProgress, Progress};
pub use results::{MODEL_BYTES, NoResults, Results, StoredResult, excerpt};
pub use schema::{Shape, output_of_type, parameters_of, strict};
pub use tool::{
    BoxFuture, Invocation, NeedForOthers, PENDING_QUESTION, Reply, State, Tool, ToolSpec, Trust, merge_concurrent, merge_state,
};
pub use tool_object::{ToolObject, Typed};

pub use texts::{Language, TextArg, TextSet, Texts, fold, is_locale};

pub use uuid::Uuid;
