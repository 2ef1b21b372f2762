//! Requests of clients of the OpenAI-compatible API, stored with their turns, and the ways to find a conversation again.

use werkruf_contract::Uuid;

use crate::{JsonText, StoreFuture};

/// The point at which a client resumes a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    pub conversation_id: Uuid,
    /// The newest turn of the conversation.
    pub turn_id: Uuid,
}

/// Finds turns and conversations by what a client sends.
pub trait ClientRequests: Send + Sync {
    /// The client request of this turn.
    fn client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// The client request of the first turn of a conversation; it may hold the history before that turn.
    fn first_client_request(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// The conversation of this user whose newest turn has this transcript digest.
    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, transcript_digest: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// The turn of this user that the same request started.
    fn turn_by_request_digest(&self, tenant_id: Uuid, user_id: String, request_digest: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// Stores the transcript digest of a turn that continues later, because the client only has the transcript up to here. False
    /// when the turn already has a digest.
    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, transcript_digest: String) -> StoreFuture<'_, bool>;
    /// The conversation of this user that waits for a client's result of one of these calls; none where two do.
    fn conversation_awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>>;
    /// Marks the client request of this turn as deleted by the client. False where the turn has none.
    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool>;
}
