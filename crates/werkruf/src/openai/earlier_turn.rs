//! An earlier turn whose answer is sent again, or for the first time where it still runs.

use std::collections::VecDeque;
use std::sync::Arc;

use werkruf_contract::{Texts, TurnStatus, Uuid};
use werkruf_runtime::{LiveEvent, SubscribeOptions, complete_event};
use werkruf_store::{StoreError, StreamKey, TurnRow};

use super::client_events::TurnEvents;
use super::start::StartedTurn;
use super::stop_on_leave::StopOnLeave;
use super::transcript::TranscriptDigest;
use crate::api::error::ApiError;
use crate::api::{ApiState, lookup};
use crate::app::App;

/// What the request says about its answer.
pub(super) struct EarlierAnswer {
    pub(super) model: String,
    pub(super) texts: Texts,
    pub(super) digest: TranscriptDigest,
    pub(super) last_step_only: bool,
}

/// The turn that the same request started. One that runs is waited for, and so goes on although its first client may have left.
pub(super) async fn joined(api: &ApiState, tenant_id: Uuid, turn_id: Uuid, answer: EarlierAnswer) -> Result<StartedTurn, ApiError> {
    let turn = api.app.records().turn(tenant_id, turn_id).await?.ok_or_else(|| ApiError::not_found("turn"))?;
    if has_answer(&turn) {
        return replayed(api, &turn, answer).await;
    }
    let events = TurnEvents::AtEnd(Box::pin(events_at_end(Arc::clone(&api.app), turn.clone())));
    Ok(started(&turn, events, answer))
}

/// A turn that has ended or waits for an approval.
pub(super) async fn replayed(api: &ApiState, turn: &TurnRow, answer: EarlierAnswer) -> Result<StartedTurn, ApiError> {
    let events = TurnEvents::Stored(stored_events(&api.app, turn).await?.into());
    Ok(started(turn, events, answer))
}

fn started(turn: &TurnRow, events: TurnEvents, answer: EarlierAnswer) -> StartedTurn {
    let EarlierAnswer { model, texts, digest, last_step_only } = answer;
    StartedTurn {
        tenant_id: turn.tenant_id,
        conversation_id: lookup::stream_of(turn),
        turn_id: turn.id,
        events,
        model,
        texts,
        replayed: true,
        digest,
        last_step_only,
        stop: StopOnLeave::default(),
    }
}

/// A turn that waits for an approval has an answer too: it names the approval.
fn has_answer(turn: &TurnRow) -> bool {
    turn.status.is_terminal() || turn.status == TurnStatus::AwaitingApproval
}

/// The events of a turn once it has an answer; none where this process stops before.
async fn events_at_end(app: Arc<App>, turn: TurnRow) -> VecDeque<LiveEvent> {
    wait_for_events(&app, &turn).await.unwrap_or_else(|error| {
        tracing::warn!(%error, turn_id = %turn.id, "an answer was cut short: the stored events could not be read");
        VecDeque::new()
    })
}

async fn wait_for_events(app: &App, turn: &TurnRow) -> Result<VecDeque<LiveEvent>, StoreError> {
    let (tenant_id, stream_id) = (turn.tenant_id, lookup::stream_of(turn));
    loop {
        let known = lookup::all_events(app.streams(), tenant_id, stream_id, Some(turn.id), 0).await?;
        let options = SubscribeOptions { turn_id: Some(turn.id), debug: false, after: known.last().map_or(0, |row| row.seq) };
        let mut events = app.runtime.subscribe(StreamKey { tenant_id, stream_id }, options);
        // Read after subscribing: an end that this row does not show comes as an event.
        match app.records().turn(tenant_id, turn.id).await? {
            Some(row) if has_answer(&row) => return Ok(stored_events(app, &row).await?.into()),
            Some(_) if !app.runtime.is_draining() => while events.recv().await.is_some_and(|event| !event.kind.ends_turn()) {},
            Some(_) | None => return Ok(VecDeque::new()),
        }
    }
}

/// The stored events of a turn.
pub(super) async fn stored_events(app: &App, turn: &TurnRow) -> Result<Vec<LiveEvent>, StoreError> {
    let (records, stream_id) = (app.records(), lookup::stream_of(turn));
    let mut events = Vec::new();
    for row in lookup::all_events(app.streams(), turn.tenant_id, stream_id, Some(turn.id), 0).await? {
        let data = complete_event(records, turn.tenant_id, stream_id, &row).await?;
        let at = Some(row.created_at);
        events.push(LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id: turn.id, data: Arc::from(data), at });
    }
    Ok(events)
}
