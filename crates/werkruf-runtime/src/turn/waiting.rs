//! A turn that waits in its conversation's queue. Canceled while it waits, it ends at once: its message is kept, and the queue continues without
//! it.

use std::sync::Arc;

use werkruf_contract::{EventType, Texts, TurnStatus, Uuid};
use werkruf_store::{Fence, NewEvent, StoreError, TurnCancellation};

use super::end::{canceled_error, unanswered_end};
use crate::call::log_unstarted_turn;
use crate::engine::Engine;
use crate::journal::{Audience, TurnOwner};
use crate::lease::{POLL, QueuePlace, RunningTurn};
use crate::stored::json;
use crate::stream::LiveEvent;
use crate::timer;
use crate::trace::{TurnEnd, TurnTrace};

/// A stored turn that has not started.
pub(crate) struct UnstartedTurn<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) audience: Audience,
    /// Set where the turn waits in this process.
    pub(crate) running: Option<&'a RunningTurn>,
    pub(crate) trace: TurnTrace,
}

/// Starts a turn whose place in this process was reached. A turn of another process may still be ahead.
pub(super) async fn start_when_free(engine: &Engine, tenant_id: Uuid, turn_id: Uuid, running: &RunningTurn) -> Result<Fence, StoreError> {
    let mut wakeups = engine.wakeup.listen();
    loop {
        let sent_at = timer::now();
        match engine.store.turns.start_turn(tenant_id, turn_id, &engine.owner, engine.store.clock.now()).await {
            Ok(fence) => {
                running.lease().acquire(&fence, sent_at);
                return Ok(fence);
            }
            // A process that stops leaves the turn to the others.
            Err(StoreError::Busy) if engine.is_shared() && !engine.stopping.is_raised() => {}
            Err(error) => return Err(error),
        }
        tokio::select! {
            biased;
            () = engine.stopping.raised() => {}
            () = wakeups.within(POLL) => {}
        }
    }
}

impl UnstartedTurn<'_> {
    /// Waits for the turn's place. False when the turn was canceled before and has ended, or was started by another process.
    pub(crate) async fn reached(&self, place: &mut QueuePlace, texts: impl FnOnce() -> Texts) -> bool {
        tokio::select! {
            biased;
            () = place.reached() => return true,
            () = started_elsewhere(self.running) => return false,
            () = canceled(self.running) => {}
        }
        match self.cancel(&texts()).await {
            Ok(true) => return false,
            Ok(false) => {}
            Err(error) => tracing::warn!(turn_id = %self.audience.owner.turn_id, %error, "a waiting turn could not be canceled at once"),
        }
        // It ends as soon as it starts.
        tokio::select! {
            biased;
            () = place.reached() => true,
            () = started_elsewhere(self.running) => false,
        }
    }

    /// Ends the turn; false when the store does not know it as waiting.
    pub(crate) async fn cancel(&self, texts: &Texts) -> Result<bool, StoreError> {
        let store = &self.engine.store;
        let TurnOwner { tenant_id, conversation_id, turn_id, .. } = &self.audience.owner;
        let (tenant_id, conversation_id, turn_id) = (*tenant_id, *conversation_id, *turn_id);
        let (change, error_event) = unanswered_end(turn_id, TurnStatus::Canceled, 0, canceled_error(texts));
        let outbox = self.audience.end(&change);
        let (sends, data) = (!outbox.is_empty(), json(&error_event));
        let (error, error_code) = change.error.unwrap_or_default();
        let event = NewEvent { kind: EventType::Error, data: data.clone() };
        let at = store.clock.now();
        let cancellation = TurnCancellation { error, error_code, event, outbox, at };
        let stream_id = conversation_id.unwrap_or(turn_id);
        let written = store.turns.cancel_waiting(tenant_id, turn_id, cancellation).await;
        // A write that failed may be stored all the same.
        let Some(seq) = written.inspect_err(|_| self.engine.broadcast.resynchronize_unstarted(stream_id, turn_id))? else {
            return Ok(false);
        };
        store.models.metrics.turn_ended(change.status, None);
        log_unstarted_turn(conversation_id, turn_id, change.status, &error_event.code);
        let provider = store.models.gate.chat_provider().name();
        self.trace.end(TurnEnd { provider, error: Some(&error_event.code), input: None, output: None });
        if sends {
            self.engine.journals.outbox.wake();
        }
        let event = LiveEvent { seq: Some(seq), kind: EventType::Error, turn_id, data: Arc::from(data), at: Some(at) };
        self.engine.broadcast.publish_unstarted(stream_id, &event);
        store.cluster.notify();
        Ok(true)
    }
}

async fn started_elsewhere(running: Option<&RunningTurn>) {
    match running {
        Some(running) => running.started_elsewhere().await,
        None => std::future::pending().await,
    }
}

async fn canceled(running: Option<&RunningTurn>) {
    match running {
        Some(running) => running.canceled().await,
        None => std::future::pending().await,
    }
}
