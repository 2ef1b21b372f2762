//! Ends a turn that must not continue: every open call gets an outcome, and nothing is run.

use werkruf_contract::{CallStatus, ErrorCode, Texts, ToolErrorType, TurnError, TurnStatus};
use werkruf_store::{NewMessage, Replacement, RequestsOf, StoreError};

use super::leftover::Leftover;
use crate::call::{CallOutcome, StoredCall, TurnScope, canceled, interrupted, log_turn, lost_attempt, stage_outcome};
use crate::journal::{Change, CommitPoint};
use crate::turn::{NOT_ANSWERED, abort_item, canceled_error, fail, unknown_user_error};

const RESTORED: &str = "The server was restored from a backup while this was under way. Nothing is sent again by itself.";
const UNREADABLE: &str = "The stored limits of this request cannot be read, so nothing of it runs again.";

/// Why a turn is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// It was taken over too often without progress.
    Poison,
    Canceled,
    /// Its user is gone.
    UnknownUser,
    /// Its context, with the limits of its request, is not readable.
    UnknownContext,
    /// The database was restored, and it is unknown what happened since the backup.
    Restored,
}

impl Closing {
    pub(super) const fn call_status(self) -> CallStatus {
        match self {
            Self::Canceled => CallStatus::Canceled,
            Self::Poison | Self::UnknownUser | Self::UnknownContext | Self::Restored => CallStatus::Failed,
        }
    }

    pub(super) const fn turn_status(self) -> TurnStatus {
        match self {
            Self::Canceled => TurnStatus::Canceled,
            Self::Poison | Self::UnknownUser | Self::UnknownContext | Self::Restored => TurnStatus::Failed,
        }
    }

    pub(super) fn error(self, texts: &Texts) -> TurnError {
        match self {
            Self::Poison => TurnError::new(ToolErrorType::Fatal, ErrorCode::Poison, texts.text("error-poison", &[])),
            Self::Canceled => canceled_error(texts),
            Self::UnknownUser => unknown_user_error(texts),
            Self::UnknownContext => TurnError::new(ToolErrorType::Fatal, ErrorCode::Interrupted, UNREADABLE),
            Self::Restored => TurnError::new(ToolErrorType::Fatal, ErrorCode::Restored, RESTORED),
        }
    }
}

/// Reads what the turn has used, for the line of its end. Without it the turn ends all the same.
pub(super) async fn continue_usage(scope: &TurnScope) {
    match scope.turn_usage(RequestsOf::Turn).await {
        Ok(used) => scope.continue_usage(used),
        Err(error) => tracing::warn!(turn_id = %scope.turn_id, %error, "what the turn has used could not be read"),
    }
}

impl Leftover {
    /// Why the turn must not continue; `None` where it may.
    pub(super) const fn closing(&self) -> Option<Closing> {
        if self.is_poison() {
            Some(Closing::Poison)
        } else if self.turn.cancel_requested {
            Some(Closing::Canceled)
        } else {
            None
        }
    }

    /// Ends the turn and its open calls, in one commit.
    pub(super) async fn close(&self, scope: &TurnScope, closing: Closing) -> Result<(), StoreError> {
        self.stage_closed_calls(scope, closing.call_status());
        let error = closing.error(&scope.error_texts);
        let code = error.code.clone();
        fail(scope, closing.turn_status(), self.turn.step, error);
        scope.journal.commit(CommitPoint::End).await?;
        if self.turn.kind == "chat" {
            continue_usage(scope).await;
            log_turn(scope, closing.turn_status(), self.sorted().0.len(), Some(&code));
        }
        scope.end_span(Some(&code), (None, None));
        Ok(())
    }

    /// Stages an outcome for every open call.
    pub(super) fn stage_closed_calls(&self, scope: &TurnScope, status: CallStatus) {
        for StoredCall { row, slot, approval, .. } in self.sorted().1 {
            let outcome = if row.status.is_terminal() {
                CallOutcome::stored(&row)
            } else {
                let failure = if status == CallStatus::Canceled { canceled() } else { interrupted() };
                if row.status == CallStatus::Running
                    && let Some(usage) = lost_attempt(scope, &row)
                {
                    scope.journal.stage(usage);
                }
                let failure = if row.status == CallStatus::Running { failure.may_have_happened() } else { failure.nothing_happened() };
                CallOutcome::failed(failure, status, row.effect, row.attempt, scope.clock.now()).with_message(&scope.texts)
            };
            if approval.is_some() {
                scope.journal.stage(Change::WithdrawApproval(row.id));
            }
            stage_outcome(scope, &row, slot.as_ref(), &outcome);
        }
        self.stage_closed_client_calls(scope);
        self.stage_closed_provider_items(scope, status);
    }

    /// The client never learns of its calls: the history says so in place of their results.
    fn stage_closed_client_calls(&self, scope: &TurnScope) {
        for call in self.client_calls() {
            let content = NOT_ANSWERED.to_owned();
            match self.result(&call.id).map(|row| row.status.as_deref()) {
                Some(Some("pending")) => {
                    scope.journal.stage(Replacement { tool_call_id: call.id, content, status: "error", metadata: None })
                }
                Some(_) => {}
                None => {
                    let result = NewMessage::result(scope.clock.new_id(), call.id.as_str(), call.name.as_str(), content, "error");
                    scope.journal.stage(result);
                }
            }
        }
    }

    /// Ends what the provider was running itself when the answer broke off. Its step is not used again.
    pub(super) fn stage_closed_provider_items(&self, scope: &TurnScope, status: CallStatus) {
        for row in self.open_provider_items() {
            abort_item(scope, row, status);
        }
    }
}
