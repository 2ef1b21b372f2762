//! The channel `whatsapp`: Meta's Cloud API.
//!
//! `webhook` has the routes: `signature` says whether a request is from Meta (`handshake` answers its first one), `payload` reads it, `receive`
//! stores each event and starts turns, `decision` handles buttons of approvals, `report` delivery reports. `keywords` finds messages that need no model, `graph` sends
//! rows of the outbox (`outgoing` writes the requests, `answer` reads the answers, `markup` and `split` make parts of a text).

mod answer;
pub(crate) mod check;
mod decision;
mod graph;
mod handshake;
pub(crate) mod inspect;
pub(crate) mod keywords;
mod markup;
mod outgoing;
pub(crate) mod payload;
mod receive;
mod report;
mod settings;
mod signature;
mod split;
pub(crate) mod webhook;

pub(crate) use graph::WhatsApp;
pub use settings::{Number, WhatsAppSettings};

/// The name of the channel in rows, in the configuration and in `channels` of assistants.
pub(crate) const CHANNEL: &str = "whatsapp";
