//! Copies of stored conversations. A request that continues an older point gets one, so that its answer does not know the answer that came instead.

use serde_json::Value;
use werkruf_contract::Uuid;
use werkruf_runtime::ClientRequest;
use werkruf_store::{ConversationCopy, ResumePoint, StoreError};

use crate::app::App;

/// A copy that was made for one request.
#[derive(Debug, Clone)]
pub(super) struct CopiedConversation {
    pub(super) id: Uuid,
    /// The history that a client sent with the first request of the original. It is part of no message.
    pub(super) history: Vec<Value>,
}

impl CopiedConversation {
    /// Copies a conversation up to the end of a turn. These calls wait for their results again: results that were sent since belong to the other
    /// answer. `None` where there is no such conversation.
    pub(super) async fn make(app: &App, tenant_id: Uuid, until: ResumePoint, reopened: Vec<String>) -> Result<Option<Self>, StoreError> {
        let (id, from) = (app.clock.new_id(), until.conversation_id);
        let copy = ConversationCopy { tenant_id, from, until: until.turn_id, id, reopened, now: app.clock.now() };
        if !app.client_store.copy_conversation(copy).await? {
            return Ok(None);
        }
        let first = app.clients().first_client_request(tenant_id, from).await?;
        let first: Option<ClientRequest> = first.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Some(Self { id, history: first.map(|first| first.history).unwrap_or_default() }))
    }
}

/// Removes the copy of a request that started no turn.
pub(super) async fn withdraw(app: &App, tenant_id: Uuid, copy: Uuid) {
    if let Err(error) = app.turns().delete_conversation(tenant_id, copy).await {
        tracing::warn!(%error, conversation_id = %copy, "the unused copy of a conversation could not be deleted");
    }
}
