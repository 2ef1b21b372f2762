//! Continues a chat turn where another process stopped: its open calls first, then the next step.

use std::sync::Arc;

use werkruf_contract::{AssistantReset, CallStatus, ClientCall, EventType};
use werkruf_store::RequestsOf;

use super::close::continue_usage;
use super::leftover::{Leftover, may_have_answered};
use crate::call::{CallBatch, await_approvals};
use crate::journal::{Change, CommitPoint};
use crate::turn::{History, Reply, Stop, Turn, estimated, first_within, history_rows, own_messages_last, stage_placeholders};

/// Continues the turn to its end.
pub(super) async fn resume(mut turn: Box<Turn>, left: Leftover) {
    turn.progress.step = left.last_step();
    turn.progress.abandoned = turn.progress.step.saturating_sub(u32::try_from(left.steps().len()).unwrap_or(u32::MAX));
    turn.progress.text = left.texts().concat();
    let ended = match left.closing() {
        Some(closing) => {
            continue_usage(&turn.scope).await;
            turn.progress.finished = left.sorted().0;
            add_lost_request(&mut turn, &left);
            left.stage_closed_calls(&turn.scope, closing.call_status());
            Err(if left.is_poison() { Stop::Failed(closing.error(&turn.scope.error_texts)) } else { Stop::Canceled(String::new()) })
        }
        None => match catch_up(&mut turn, &left).await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => turn.run_steps().await,
            Err(stop) => Err(stop),
        },
    };
    turn.end_or_log(ended).await;
}

/// Adds a usage row for a request that an earlier process may have sent without writing its usage.
fn add_lost_request(turn: &mut Turn, left: &Leftover) {
    if turn.needs_no_model() || !left.may_have_sent_request() {
        return;
    }
    let mut request = turn.model_request();
    if let Some(window) = turn.assistant.context_tokens {
        // Roughly the part of the history that was sent.
        let messages = Arc::make_mut(&mut request.request.messages);
        let sizes: Vec<u64> = messages.iter().map(estimated).collect();
        messages.drain(..first_within(messages, &sizes, window));
    }
    if let Some(mut row) = request.lost(left.begun_searches()) {
        turn.scope.charge(&mut row, None);
        turn.scope.tokens.settle(0, row.tokens_total);
        turn.scope.count_usage(&row);
        turn.scope.journal.stage(row);
    }
}

/// Ends the last step, so that the history is valid before the next model request. Returns the reply where only the client's calls are left.
async fn catch_up(turn: &mut Turn, left: &Leftover) -> Result<Option<Reply>, Stop> {
    let scope = Arc::clone(&turn.scope);
    scope.continue_usage(scope.turn_usage(RequestsOf::Turn).await?);
    let (finished, open) = left.sorted();
    turn.progress.finished = finished;
    add_lost_request(turn, left);
    left.stage_closed_provider_items(&scope, CallStatus::Failed);
    if turn.progress.step > left.turn.step {
        scope.journal.stage(Change::AbandonedStep(turn.progress.step));
    }
    let client_calls = left.client_calls();
    let reply = || {
        let text = left.texts().last().copied().unwrap_or_default().to_owned();
        (!client_calls.is_empty()).then(|| Reply { text, calls: client_calls.clone(), ..Reply::default() })
    };
    if client_calls.is_empty()
        && (open.is_empty() || left.may_have_granted() || may_have_answered(&open, &scope.setup.registry, turn.needs_no_model()))
    {
        // Some text of the lost request may have been published, or that of a tool as the answer.
        scope.journal.discard_text().await;
        let step = turn.progress.step.max(left.turn.step + 1);
        scope.journal.stage_event(EventType::AssistantReset, &AssistantReset { step, turn_id: scope.turn_id });
    }
    if open.is_empty() {
        scope.journal.commit(CommitPoint::Takeover).await?;
        return Ok(reply());
    }
    let step = left.turn.step;
    let (state, context, earlier) = (&turn.state, &turn.context, &turn.progress.finished[..]);
    let batch = CallBatch { scope: &scope, step, state, context, earlier, taint: &turn.taint };
    let prepared = batch.prepare_stored(open).await?;
    scope.journal.commit(CommitPoint::Takeover).await?;
    let result = batch.run(prepared).await?;
    let missing: Vec<ClientCall> = client_calls.iter().filter(|call| left.result(&call.id).is_none()).cloned().collect();
    stage_placeholders(&scope, &missing);
    if !result.waiting.is_empty() {
        await_approvals(&scope, step, result.waiting, Some(&scope.used())).await?;
        return Err(Stop::AwaitingApproval);
    }
    scope.journal.commit(CommitPoint::CaughtUp).await?;
    if let Some(state) = result.state {
        turn.state = Arc::new(state);
    }
    turn.progress.provider_items.granted.add(result.granted, &result.finished);
    turn.progress.finished.extend(result.finished);
    if let Some(reply) = reply() {
        return Ok(Some(reply));
    }
    if let Some(conversation_id) = scope.conversation_id {
        let mut rows = history_rows(&turn.engine, scope.tenant_id(), conversation_id).await?;
        own_messages_last(&mut rows, scope.turn_id);
        let mut history = History::of(&rows);
        turn.leading = history.remember(&turn.state);
        (turn.messages, turn.origins) = (Arc::new(history.messages), Some(history.origins));
    }
    Ok(None)
}
