//! A turn from its message to its end: `accept` (commit A) → `start` → `steps` (model request, calls, and again) → `end` (commit D).
//! `invoke` runs a direct call as a turn of its own.

mod accept;
mod admission;
mod calls;
mod client_loop;
mod compaction;
mod end;
mod given_call;
mod granted_calls;
mod history;
mod invoke;
mod model_request;
mod prompt;
mod provider_items;
mod provider_outcome;
mod remembered;
mod reservation;
mod start;
mod state;
mod steps;
mod waiting;

pub(crate) use accept::{NOT_ANSWERED, accept};
pub(crate) use admission::input_tokens;
pub(crate) use calls::stage_placeholders;
pub use compaction::{SUMMARY_PROMPT, SUMMARY_QUESTION};
pub(crate) use end::{canceled_error, fail, unanswered_end, unknown_user_error};
pub use history::SERVER_METADATA;
pub(crate) use history::{History, estimated, first_within, own_messages_last};
pub(crate) use invoke::{DirectTurn, direct_taint, invoke, retry_call, settled, start_call};
pub(crate) use provider_items::abort_item;
pub(crate) use start::{StoredTurn, history_rows};
pub(crate) use state::{Reply, Stop, Turn};
pub(crate) use waiting::UnstartedTurn;
