//! What clients of the OpenAI doors bring and see: the values stored with turns, and the ways back to a conversation.

use werkruf_contract::Uuid;

use crate::{Answer, JsonText};

/// Where a client left off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    pub conversation_id: Uuid,
    /// The newest turn of it.
    pub turn_id: Uuid,
}

/// Looked up by what a client sends again.
pub trait Clients: Send + Sync {
    /// What a client brought with this turn.
    fn brought(&self, tenant_id: Uuid, turn_id: Uuid) -> Answer<'_, Option<JsonText>>;
    /// What a client brought with the first turn of a conversation: the history before it may be in there.
    fn brought_first(&self, tenant_id: Uuid, conversation_id: Uuid) -> Answer<'_, Option<JsonText>>;
    /// The conversation of this person whose newest turn left the client with this sight.
    fn seen(&self, tenant_id: Uuid, user_id: String, seen: String) -> Answer<'_, Option<Resumed>>;
    /// The turn of this person that was begun by the very same request.
    fn repeated(&self, tenant_id: Uuid, user_id: String, sent: String) -> Answer<'_, Option<Resumed>>;
    /// What a client has seen of a turn that goes on later; what it sees then is not what it holds. False when that is known.
    fn note_seen(&self, tenant_id: Uuid, turn_id: Uuid, seen: String) -> Answer<'_, bool>;
    /// The one conversation of this person that waits for a client's result of one of these calls; none where two do.
    fn awaiting(&self, tenant_id: Uuid, user_id: String, call_ids: Vec<String>) -> Answer<'_, Option<Resumed>>;
    /// The client wants to hear no more of this turn: marks what it brought. False where it brought nothing.
    fn take_back(&self, tenant_id: Uuid, turn_id: Uuid) -> Answer<'_, bool>;
}
