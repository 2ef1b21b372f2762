//! Conversations that a client of the OpenAI-compatible API manages itself: metadata, items outside turns, and copies.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{JsonText, NewMessage, Replacement, StoreFuture};

/// Changes conversations outside turns.
pub trait ClientConversations: Send + Sync {
    /// What the client stored with the conversation.
    fn conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// Replaces it. False where there is no such conversation.
    fn put_conversation_metadata(&self, tenant_id: Uuid, conversation_id: Uuid, metadata: JsonText) -> StoreFuture<'_, bool>;
    /// The newest turn of a conversation, whatever its status.
    fn newest_turn(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Uuid>>;
    /// Appends messages that belong to no turn. [`crate::StoreError::Busy`] while a turn has not ended, and then nothing is stored. False
    /// where there is no such conversation.
    fn append_items(&self, items: NewItems) -> StoreFuture<'_, bool>;
    /// Changes messages: all of them, or none. Busy as above; [`crate::StoreError::Moved`] where one of them is gone.
    fn edit_messages(&self, tenant_id: Uuid, conversation_id: Uuid, edits: Vec<MessageEdit>) -> StoreFuture<'_, ()>;
    /// Copies a conversation up to a turn. False where there is no such conversation.
    fn copy_conversation(&self, copy: ConversationCopy) -> StoreFuture<'_, bool>;
}

/// Messages for the end of a conversation.
#[derive(Debug, Clone)]
pub struct NewItems {
    pub tenant_id: Uuid,
    pub conversation_id: Uuid,
    /// Results of calls that are stored already. Those without a waiting call are ignored.
    pub results: Vec<Replacement>,
    pub messages: Vec<NewMessage>,
    pub now: Timestamp,
}

/// A change of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageEdit {
    pub id: Uuid,
    pub change: MessageChange,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageChange {
    Delete,
    /// Text, calls and metadata of an assistant message.
    Replace {
        content: String,
        tool_calls: Option<JsonText>,
        metadata: JsonText,
    },
    /// A result is taken back: its call waits again.
    Reopen,
}

/// A copy of a conversation. It has the messages up to the end of a turn, and no turns, state or events.
#[derive(Debug, Clone)]
pub struct ConversationCopy {
    pub tenant_id: Uuid,
    pub from: Uuid,
    /// The last turn whose messages are copied.
    pub until: Uuid,
    /// The id of the copy.
    pub id: Uuid,
    /// Calls of that turn which wait for their results again.
    pub reopened: Vec<String>,
    pub now: Timestamp,
}
