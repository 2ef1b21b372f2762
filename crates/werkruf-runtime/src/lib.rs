//! What happens: a turn goes down once and comes back once.
//!
//! A door authenticates and parses, then enters here: [`Runtime::chat`] for a message, [`Runtime::invoke`]
//! for one tool, [`Runtime::retry_call`] for a call that failed. All of them walk the one corridor in `corridor`.
//!
//! Invariants: a call's row is durable before its first byte leaves; an event is durable before a client hears it
//! (tokens and debug apart); history is valid for a provider after every commit; no task runs without an owner.

mod act;
mod admission;
mod approve;
mod arguments;
mod ask;
mod assistant;
mod attempt;
mod begun;
mod boarding;
mod brought;
mod claimed;
mod compaction;
mod corridor;
mod course;
mod decision;
mod dedupe;
mod feed;
mod follow;
mod ground;
mod history;
mod hold;
mod hub;
mod inbound;
mod invoke;
mod keep_text;
mod lane;
mod limits;
mod outcome;
mod provided;
mod record;
mod recover;
mod registry;
mod renew;
mod replay;
mod resume;
mod runtime;
mod safety;
mod seen;
mod stir;
mod take_in;
mod timer;
mod turn;
mod waiting;

pub use arguments::Repair;
pub use assistant::{Assistant, Assistants, Compaction};
pub use brought::{ClientChoice, ClientRequest, ClientResult, ClientTool};
pub use decision::Decider;
pub use feed::Subscription;
pub use hub::{LiveEvent, PartialAnswer, SubscribeOptions};
pub use inbound::{AcceptedTurn, Caller, Idempotency, InboundMessage, Invoke, InvokeOutcome, InvokeResult, Refusal};
pub use limits::Limits;
pub use registry::{Registry, RegistryFault};
pub use replay::{complete_event, output_of};
pub use runtime::{Runtime, Services, Setup};
pub use safety::SafetyProfile;
pub use seen::{digest_after_answer, digest_after_message, digest_after_result};
