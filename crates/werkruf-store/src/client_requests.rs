//! What clients of the OpenAI doors bring and see: the values stored with turns, and the ways back to a conversation.

use werkruf_contract::Uuid;

use crate::{JsonText, StoreFuture};

/// Where a client left off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    pub conversation_id: Uuid,
    /// The newest turn of it.
    pub turn_id: Uuid,
}

/// Looked up by what a client sends again.
pub trait ClientRequests: Send + Sync {
    /// What a client brought with this turn.
    fn client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// What a client brought with the first turn of a conversation: the history before it may be in there.
    fn first_client_request(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// The conversation of this person whose newest turn left the client with this sight.
    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, seen: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// The turn of this person that was begun by the very same request.
    fn turn_by_request_digest(&self, tenant_id: Uuid, user_id: String, sent: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// What a client has seen of a turn that goes on later; what it sees then is not what it holds. False when that is known.
    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, seen: String) -> StoreFuture<'_, bool>;
    /// The one conversation of this person that waits for a client's result of one of these calls; none where two do.
    fn conversation_awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>>;
    /// The client wants to hear no more of this turn: marks what it brought. False where it brought nothing.
    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool>;
}
