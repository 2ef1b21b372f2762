//! Events on their way to subscribers: live ones of this process, and those that other processes wrote.

mod broadcast;
mod catch_up;
mod checkpoint;
mod client_leave;
mod cursor;
mod event;
mod join;
mod remote;
mod subscriber;

pub(crate) use broadcast::Broadcast;
pub(crate) use checkpoint::Checkpoints;
pub use client_leave::ClientLeave;
pub use event::{LiveEvent, PartialAnswer, SubscribeOptions};
pub use join::Joined;
pub(crate) use join::join;
pub(crate) use remote::RemoteStreams;
pub use subscriber::Subscription;
