//! A turn in its lane. Canceled before its place comes, it ends at once: its message is kept, and the lane goes on without it.

use std::sync::Arc;

use werkruf_contract::{ErrorEvent, EventType, ToolErrorType, TurnError, Uuid, Words};
use werkruf_store::{NewEvent, StoreError};

use crate::ground::{Live, json};
use crate::hub::LiveEvent;
use crate::lane::Ticket;
use crate::runtime::House;

/// A stored turn that has not begun.
pub(crate) struct Waiting<'a> {
    pub(crate) house: &'a House,
    pub(crate) tenant_id: Uuid,
    pub(crate) turn_id: Uuid,
    pub(crate) stream_id: Uuid,
    pub(crate) live: &'a Live,
}

impl Waiting<'_> {
    /// Waits for its place. False when it was canceled before and has ended.
    pub(crate) async fn called(&self, ticket: &mut Ticket, words: impl FnOnce() -> Words) -> bool {
        tokio::select! {
            biased;
            () = ticket.called() => return true,
            () = self.live.cancel.raised() => {}
        }
        match self.cancel(&words()).await {
            Ok(true) => return false,
            Ok(false) => {}
            Err(error) => tracing::warn!(turn_id = %self.turn_id, %error, "a waiting turn could not be canceled at once"),
        }
        // It ends as soon as it begins.
        ticket.called().await;
        true
    }

    /// False when the store does not know it as waiting.
    async fn cancel(&self, words: &Words) -> Result<bool, StoreError> {
        let (parts, turn_id) = (&self.house.parts, self.turn_id);
        let error = TurnError::new(ToolErrorType::Fatal, "canceled", words.say("error-canceled", &[]));
        let stored = (json(&error), error.code.clone());
        let TurnError { kind, code, message, retry_after_ms } = error;
        let data = json(&ErrorEvent { kind, code, message, retry_after_ms, turn_id });
        let event = NewEvent { kind: EventType::Error, data: data.clone() };
        let Some(seq) = parts.turns.cancel_waiting(self.tenant_id, turn_id, stored, event, parts.clock.now()).await? else {
            return Ok(false);
        };
        let heard = LiveEvent { seq: Some(seq), kind: EventType::Error, turn_id, data: Arc::from(data) };
        self.house.hub.publish_beside(self.stream_id, &heard);
        Ok(true)
    }
}
