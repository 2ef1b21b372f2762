//! A turn in its lane. Canceled before its place comes, it ends at once: its message is kept, and the lane goes on without it.

use std::sync::Arc;

use werkruf_contract::{ErrorEvent, EventType, Texts, ToolErrorType, TurnError, Uuid};
use werkruf_store::{Fence, NewEvent, StoreError};

use crate::ground::{Live, json};
use crate::hub::LiveEvent;
use crate::lane::Ticket;
use crate::runtime::House;
use crate::stir::LOOK;
use crate::timer;

/// A stored turn that has not begun.
pub(crate) struct Waiting<'a> {
    pub(crate) house: &'a House,
    pub(crate) tenant_id: Uuid,
    pub(crate) turn_id: Uuid,
    pub(crate) stream_id: Uuid,
    /// Where it waits here.
    pub(crate) live: Option<&'a Live>,
}

impl House {
    /// Begins a turn whose place in this process has come. A turn of another process may still be ahead.
    pub(crate) async fn start_when_free(&self, tenant_id: Uuid, turn_id: Uuid, live: &Live) -> Result<Fence, StoreError> {
        let mut stirred = self.stir.listen();
        loop {
            let asked = timer::now();
            match self.parts.turns.start_turn(tenant_id, turn_id, &self.owner, self.parts.clock.now()).await {
                Ok(fence) => {
                    live.hold.take(&fence, asked);
                    return Ok(fence);
                }
                // A process that goes leaves it to those who stay.
                Err(StoreError::Busy) if self.is_shared() && !self.stopping.is_raised() => {}
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = self.stopping.raised() => {}
                () = stirred.within(LOOK) => {}
            }
        }
    }
}

impl Waiting<'_> {
    /// Waits for its place. False when it was canceled before and has ended.
    pub(crate) async fn called(&self, ticket: &mut Ticket, words: impl FnOnce() -> Texts) -> bool {
        tokio::select! {
            biased;
            () = ticket.called() => return true,
            () = raised(self.live) => {}
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
    pub(crate) async fn cancel(&self, words: &Texts) -> Result<bool, StoreError> {
        let (parts, turn_id) = (&self.house.parts, self.turn_id);
        let error = TurnError::new(ToolErrorType::Fatal, "canceled", words.text("error-canceled", &[]));
        let stored = (json(&error), error.code.clone());
        let TurnError { kind, code, message, retry_after_ms } = error;
        let data = json(&ErrorEvent { kind, code, message, retry_after_ms, turn_id });
        let event = NewEvent { kind: EventType::Error, data: data.clone() };
        let Some(seq) = parts.turns.cancel_waiting(self.tenant_id, turn_id, stored, event, parts.clock.now()).await? else {
            return Ok(false);
        };
        let heard = LiveEvent { seq: Some(seq), kind: EventType::Error, turn_id, data: Arc::from(data) };
        self.house.hub.publish_beside(self.stream_id, &heard);
        parts.cluster.notify();
        Ok(true)
    }
}

async fn raised(live: Option<&Live>) {
    match live {
        Some(live) => live.cancel.raised().await,
        None => std::future::pending().await,
    }
}
