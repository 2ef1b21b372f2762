//! Which turns this process runs, and by what right: leases as known here, the turns themselves, and the order of a conversation's turns.

mod heartbeat;
mod local;
mod queue;
mod running;
mod wakeup;

pub(crate) use heartbeat::Heartbeat;
pub(crate) use queue::{QueuePlace, TurnQueues};
pub(crate) use running::{RunningTurn, RunningTurns};
pub(crate) use wakeup::{POLL, Wakeup, WakeupListener};
