//! The journal of a turn: everything the turn's owner writes under its fence passes here. (Checkpoints of partial text and lease renewals are
//! batched over turns and pass elsewhere.)
//!
//! Changes are staged, and a commit makes all staged changes durable in one transaction; then their events are published. A one-call turn
//! has four commits: A ([`JournalStore::open`]), B ([`CommitPoint::Calls`]), C ([`CommitPoint::Outcomes`], or together with the next model request
//! in [`Journal::commit_while`]) and D ([`CommitPoint::End`]). `announce` adds what is sent about a commit.

mod announce;
mod change;
mod writer;

pub(crate) use announce::{Audience, TurnOwner, alert_rows, dead_letter, new_row, plain_name, to_person};
pub(crate) use change::{Change, CommitPoint, Event};
pub(crate) use writer::{Journal, JournalStore};
