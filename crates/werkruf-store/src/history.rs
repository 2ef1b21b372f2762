//! Conversations that were held elsewhere, on their way in.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{ConversationRow, NewMessage, StoreFuture};

/// What is taken over from elsewhere.
pub trait HistoryImport: Send + Sync {
    /// A conversation with all its messages, in one transaction. No turn made them, so they belong to none.
    fn put_history(&self, history: NewHistory) -> StoreFuture<'_, ConversationRow>;
}

/// A conversation that was held elsewhere.
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
