//! The conversation that continues an earlier response. The newest response is continued in its own conversation. An older one gets a copy
//! of that conversation up to it, so that a new answer does not know the answer that came instead.

use http::StatusCode;
use serde_json::Value;
use werkruf_contract::Uuid;
use werkruf_store::ResumePoint;

use super::stored::StoredResponse;
use crate::api::ApiError;
use crate::app::App;
use crate::identity::Identity;
use crate::openai::copies::{self, CopiedConversation};

fn unknown(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "previous_response_not_found", format!("Previous response with id '{id}' not found."))
}

/// The earlier response that a request names.
pub(crate) async fn stored(app: &App, identity: &Identity, id: &str) -> Result<StoredResponse, ApiError> {
    StoredResponse::find(app, identity, id).await?.ok_or_else(|| unknown(id))
}

/// Where a request goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Previous {
    pub(crate) conversation_id: Uuid,
    /// The turn of the earlier response, where no turn may have followed it.
    pub(crate) after: Option<Uuid>,
    /// In a copy: the history that a client sent with the first request of the original. It is part of no message.
    pub(crate) history: Vec<Value>,
}

impl Previous {
    /// Finds the response. With `apart` it is not continued in its own conversation, even if it is the newest.
    pub(crate) async fn find(app: &App, identity: &Identity, id: &str, apart: bool) -> Result<Self, ApiError> {
        let stored = stored(app, identity, id).await?;
        let (conversation_id, turn_id) = (stored.base.conversation_id, stored.turn.id);
        if !apart && app.client_store.newest_turn(identity.tenant_id, conversation_id).await? == Some(turn_id) {
            return Ok(Self { conversation_id, after: Some(turn_id), history: Vec::new() });
        }
        let until = ResumePoint { conversation_id, turn_id };
        let reopened = stored.client_calls().map(|call| call.id.clone()).collect();
        let copy = CopiedConversation::make(app, identity.tenant_id, until, reopened).await?.ok_or_else(|| unknown(id))?;
        Ok(Self { conversation_id: copy.id, after: None, history: copy.history })
    }

    /// Whether the conversation is a copy that was made for this request.
    pub(crate) const fn is_copy(&self) -> bool {
        self.after.is_none()
    }

    /// Removes the copy of a request that started no turn.
    pub(crate) async fn withdraw(&self, app: &App, tenant_id: Uuid) {
        if self.is_copy() {
            copies::withdraw(app, tenant_id, self.conversation_id).await;
        }
    }
}
