//! Import of conversations from other programs.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{ConversationRow, NewMessage, StoreFuture};

/// Imports whole conversations.
pub trait HistoryImport: Send + Sync {
    /// Stores a conversation with all its messages, in one transaction. The messages belong to no turn.
    fn put_history(&self, history: NewHistory) -> StoreFuture<'_, ConversationRow>;
}

/// A conversation from another program.
#[derive(Debug, Clone)]
pub struct NewHistory {
    pub tenant_id: Uuid,
    pub id: Uuid,
    pub user_id: String,
    pub channel: String,
    pub assistant: String,
    pub title: String,
    /// In order. Ids of calls are unique among them.
    pub messages: Vec<NewMessage>,
    pub now: Timestamp,
}
