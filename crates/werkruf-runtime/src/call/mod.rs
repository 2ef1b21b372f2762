//! The call pipeline. Every tool call passes it, whoever requested the call:
//!
//! `find → parse and repair → validate → permit → dedupe → approve` (`pipeline`), `record running` (commit B of the caller),
//! `attempt → record outcome → shape for the model` (`run`).

mod approval;
mod approvers;
mod arguments;
mod attachments;
mod attempt;
mod batch;
mod dedupe;
mod follow;
mod in_flight;
mod log;
mod outcome;
mod permit;
mod pipeline;
mod progress;
mod provider_request;
mod record;
mod request;
mod results;
mod run;
mod scope;
mod span;
mod state_patch;
mod stored_calls;
#[cfg(test)]
pub(crate) mod test_rows;
mod tool_usage;

pub(crate) use approval::{await_approvals, stage_approval};
pub(crate) use approvers::{approver_rows, decision_rows};
pub use arguments::Repair;
pub use attachments::NamedData;
pub(crate) use batch::{CallBatch, FinishedCall, GrantedCall, HistorySlot, PreparedCall};
pub(crate) use in_flight::InFlight;
pub(crate) use log::{log_turn, log_unstarted_turn};
pub(crate) use outcome::{CallOutcome, ModelResult, Success, canceled, interrupted};
pub(crate) use record::{announce, apply_outcome, call_row, display_name, finish_call, stage_outcome, start, tool_started};
pub(crate) use request::{Arguments, CallRequest};
pub(crate) use results::{ResultLimit, is_cut};
pub(crate) use scope::{TurnScope, TurnServices};
pub(crate) use stored_calls::StoredCall;
pub(crate) use tool_usage::lost_attempt;
