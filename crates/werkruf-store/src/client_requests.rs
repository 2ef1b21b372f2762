//! Requests of clients of the OpenAI-compatible API, stored with their turns, and the ways to find a conversation again.

use jiff::Timestamp;
use werkruf_contract::{TurnStatus, Uuid};

use crate::{JsonText, StoreFuture};

/// The point at which a client resumes a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    pub conversation_id: Uuid,
    /// The turn whose transcript was found.
    pub turn_id: Uuid,
}

/// A turn that a client's request started, where another request has the same transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentTurn {
    pub conversation_id: Uuid,
    pub turn_id: Uuid,
    pub status: TurnStatus,
    pub finished_at: Option<Timestamp>,
    /// Whether no turn of the conversation followed it.
    pub is_newest: bool,
    /// Digest of the whole request; `None` where the request continued no waiting call.
    pub request: Option<String>,
    /// Digest of the results in it.
    pub results: Option<String>,
}

/// The most turns that a look-up by request returns: other requests with the same transcript are rare.
pub(crate) const SENT_TURNS: u8 = 16;

/// What a turn needs of the requests of clients.
pub trait ClientRequests: Send + Sync {
    /// The client request of this turn.
    fn client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// The client request of the first turn of a conversation; it may hold the history before that turn.
    fn first_client_request(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<JsonText>>;
    /// The conversation of this user that waits for a client's result of one of these calls; none where two do.
    fn conversation_awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>>;
}

/// Finds turns by what a client sends again, and changes what is stored of its requests.
pub trait ClientTurns: Send + Sync {
    /// The conversation of this user whose newest turn has this transcript digest.
    fn conversation_by_digest(&self, tenant_id: Uuid, user_id: String, transcript_digest: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// The newest turn of this user with this transcript digest, also where other turns followed it.
    fn turn_by_digest(&self, tenant_id: Uuid, user_id: String, transcript_digest: String) -> StoreFuture<'_, Option<ResumePoint>>;
    /// The newest turns of this user that requests with this transcript started, the newest first.
    fn turns_by_request_digest(&self, tenant_id: Uuid, user_id: String, request_digest: String) -> StoreFuture<'_, Vec<SentTurn>>;
    /// Stores the transcript digest of a turn that continues later, because the client only has the transcript up to here. False
    /// when the turn already has a digest.
    fn put_transcript_digest(&self, tenant_id: Uuid, turn_id: Uuid, transcript_digest: String) -> StoreFuture<'_, bool>;
    /// Marks the client request of this turn as deleted by the client. False where the turn has none.
    fn withdraw_client_request(&self, tenant_id: Uuid, turn_id: Uuid) -> StoreFuture<'_, bool>;
}
