//! The [`TurnCloser`] of the store's tests. The one of the product is in the runtime.

use jiff::Timestamp;
use werkruf_contract::{CallStatus, Clock, EventType, TurnStatus};

use super::world::event;
use crate::{CallEnd, CloseReason, Fence, NewMessage, StoreError, TurnChange, TurnCloser, TurnWrite, UnfinishedTurn};

/// Ends the turn and each open call, and adds a result message for each. The turn's error code is the name of the reason.
pub(crate) struct TestCloser(pub(crate) Clock);

impl TurnCloser for TestCloser {
    fn close(&self, unfinished: UnfinishedTurn, fence: Fence, reason: CloseReason, now: Timestamp) -> Result<TurnWrite, StoreError> {
        let UnfinishedTurn { turn, calls, .. } = unfinished;
        let mut write = TurnWrite::new(self.0.new_id(), fence, turn.conversation_id, turn.id, turn.user_id, now);
        for call in calls.into_iter().filter(|call| !call.status.is_terminal()) {
            write.messages.push(NewMessage {
                id: self.0.new_id(),
                role: "tool",
                content: "{}".to_owned(),
                tool_calls: None,
                tool_call_id: call.call_id,
                tool_name: Some(call.tool_name),
                status: Some("error"),
                metadata: None,
                tokens: None,
            });
            write.ends.push(CallEnd::new(call.id, CallStatus::Failed, now));
        }
        let error = Some(("{}".to_owned(), format!("{reason:?}")));
        write.turn = Some(TurnChange { status: TurnStatus::Failed, step: turn.step, error, message: None, transcript_digest: None });
        write.events.push(event(EventType::Error));
        Ok(write)
    }
}
