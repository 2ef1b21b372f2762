//! The definitions of tools that other servers bring, as the operator knows them.
//!
//! Invariants: the first definition that any process sees is pinned. Another one is only noted, by all processes alike, until the operator
//! accepts it.

use jiff::Timestamp;
use serde_json::json;

use crate::{Act, Author, JsonText, StoreFuture};

/// Pinned definitions, shared by every process on the database.
pub trait ToolPins: Send + Sync {
    /// All pins, by name.
    fn tool_pins(&self) -> StoreFuture<'_, Vec<ToolPin>>;
    /// A server offers this tool. Pins it if its name is new; notes the definition where it differs from the pinned one. Returns the pin.
    fn see_tool(&self, seen: SeenTool, now: Timestamp) -> StoreFuture<'_, ToolPin>;
    /// From now on the noted definition counts, if it is still the one with this digest. `None`: no such definition is noted.
    fn accept_tool(&self, name: String, digest: String, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ToolPin>>;
}

/// A tool as a server offers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTool {
    /// With the prefix of its server.
    pub name: String,
    pub server: String,
    pub digest: String,
    pub definition: JsonText,
}

/// A row of `tool_pins`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPin {
    pub name: String,
    pub server: String,
    pub digest: String,
    pub definition: JsonText,
    pub accepted_at: Timestamp,
    /// What the server offers instead.
    pub change: Option<ToolChange>,
}

/// A definition that the operator has not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    pub digest: String,
    pub definition: JsonText,
    pub seen_at: Timestamp,
}

impl ToolChange {
    /// All columns are set, or none.
    pub(crate) fn of(digest: Option<String>, definition: Option<JsonText>, seen_at: Option<Timestamp>) -> Option<Self> {
        Some(Self { digest: digest?, definition: definition?, seen_at: seen_at? })
    }
}

/// The act of accepting a definition.
pub(crate) fn accepted(pin: &ToolPin, before: &str) -> Act {
    Act::new("tool.accept", pin.name.clone()).before(json!({"digest": before})).after(json!({"digest": pin.digest}))
}
