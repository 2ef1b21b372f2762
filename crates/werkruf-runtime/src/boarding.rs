//! The corridor's stage that knows the same call again: joined while it flies, reused inside its window, refused where
//! nobody knows whether it happened.

use std::sync::Arc;

use serde_json::{Value, json};
use werkruf_contract::{CallStatus, Effect, Failure, Principal, ToolErrorType, Uuid};
use werkruf_store::{CLAIM_WINDOW, CallRow, StoreError};

use crate::corridor::{Asked, Halt, Plan, Prepared, Walk, approval_pending};
use crate::dedupe::{Earlier, Flight, Joined, Lead, Sameness, judge, permission_version};
use crate::outcome::{Ended, Success};
use crate::record::object;
use crate::registry::Entry;
use crate::resume::ended_of;
use crate::stir::LOOK;
use crate::timer;

/// What boarding came to.
pub(crate) enum Boarding {
    Over(Box<Ended>),
    Join(Joined),
    Lead(Lead),
}

impl Walk<'_> {
    pub(crate) async fn dedupe(
        &self,
        entry: &Entry,
        args: &Value,
        row: &mut CallRow,
        principal: Option<&Arc<Principal>>,
    ) -> Result<Boarding, Halt> {
        let ground = self.ground;
        let principal = principal.unwrap_or(&ground.caller.principal);
        let spec = entry.spec();
        let sameness = Sameness {
            tenant: ground.fence.tenant_id,
            principal: &principal.user_id,
            permissions: &permission_version(&principal.permissions),
            conversation: ground.conversation_id,
            tool: &spec.name,
            version: &spec.version,
            arguments: args,
        };
        let key = sameness
            .key()
            .ok_or_else(|| Failure::validation("invalid_arguments", "The arguments hold a number that JSON cannot carry."))?;
        row.dedupe_key = Some(key.clone());
        let lead = match ground.in_flight.board(&key, row.id) {
            Flight::Joined(joined) => return Ok(Boarding::Join(joined)),
            Flight::Lead(lead) => lead,
        };
        let lead = match self.elsewhere(&key, row.id).await? {
            Some(leader) => return Ok(Boarding::Join(lead.follow(leader))),
            None => lead,
        };
        // A retry is a deliberate second time; the operator's `force` has been checked at the door.
        let deliberate = row.retry_of.is_some();
        let in_turn = || self.earlier.iter().any(|call| call.row.dedupe_key == row.dedupe_key);
        let only_in_turn = spec.effect == Effect::Read && spec.reuse.is_zero();
        if deliberate || (only_in_turn && !in_turn()) {
            return Ok(Boarding::Lead(lead));
        }
        if spec.effect != Effect::Read
            && let Some(boarding) = self.done_before(row)?
        {
            return Ok(boarding);
        }
        let earlier = ground.turns.reusable_call(ground.fence.tenant_id, ground.conversation_id, key).await?;
        match judge(earlier, spec, ground.turn_id, ground.clock.now()) {
            Earlier::Nothing => Ok(Boarding::Lead(lead)),
            Earlier::Reuse(source) => {
                row.dedupe_of = Some(source.id);
                let success = Success::stored(&source);
                let finished_at = ground.clock.now();
                let ended = Ended { status: CallStatus::Succeeded, result: Ok(success), attempt: 0, cache_hit: true, finished_at };
                Ok(Boarding::Over(Box::new(ended)))
            }
            Earlier::Unknown(earlier) => Err(unknown(earlier).into()),
            Earlier::Awaited(earlier) => Err(approval_pending(earlier).into()),
        }
    }

    /// The same call in another process. Inside a conversation there is none: its turns run one after another.
    async fn elsewhere(&self, key: &str, job_id: Uuid) -> Result<Option<Uuid>, StoreError> {
        let ground = self.ground;
        if ground.conversation_id.is_some() || ground.cluster.lease_ttl().is_none() {
            return Ok(None);
        }
        let leader = ground.cluster.claim_key(ground.fence.tenant_id, key.to_owned(), job_id).await?;
        Ok(Some(leader).filter(|leader| *leader != job_id))
    }

    /// Waits for a call of another process: whoever owns its turn by then brings it to an end. `None` where there never was one.
    pub(crate) async fn landed_elsewhere(&self, leader: Uuid, own: &Lead) -> Option<Ended> {
        let ground = self.ground;
        let (key, job_id) = own.flight();
        let (mut stirred, boarded, deadline) = (ground.stir.listen(), timer::after(CLAIM_WINDOW), self.deadline());
        loop {
            match ground.records.call(ground.fence.tenant_id, leader).await {
                Ok(Some(row)) if row.status.is_terminal() => return Some(ended_of(&row).shared(ground.clock.now())),
                Ok(None) if timer::left(boarded).is_zero() => return None,
                Ok(None) if self.has_left(leader, key, job_id).await => return None,
                Ok(Some(_) | None) => {}
                Err(error) => tracing::warn!(job_id = %leader, %error, "a call of another process cannot be read; trying again"),
            }
            if timer::left(deadline).is_zero() {
                let failure = Failure::new(ToolErrorType::Timeout, "tool_timeout", "").nothing_happened();
                let late = Ended::failed(
                    failure.because("the same call runs in another process"),
                    CallStatus::Timeout,
                    Effect::Read,
                    0,
                    ground.clock.now(),
                );
                return Some(late.in_words(&ground.words));
            }
            stirred.within(LOOK.min(timer::left(deadline))).await;
        }
    }

    /// Whether the flight is this call's by now, and the other never became a row: a copy of a request leaves when another has its turn.
    async fn has_left(&self, leader: Uuid, key: &str, job_id: Uuid) -> bool {
        let ground = self.ground;
        matches!(self.elsewhere(key, job_id).await, Ok(None))
            && matches!(ground.records.call(ground.fence.tenant_id, leader).await, Ok(None))
    }

    /// A direct call that joined another goes first itself where that one left and never was a row: it was a copy of this very request,
    /// or could not be recorded. DecisionOutcome anew as far as that matters; the row that is stored stays the one it is.
    pub(crate) async fn led(&self, mut prepared: Vec<Prepared>, asked: &Asked) -> Result<Vec<Prepared>, StoreError> {
        let ground = self.ground;
        while let Some(Prepared { mut row, seat, plan }) = prepared.pop() {
            let Plan::Join(joined) = plan else { return Ok(vec![Prepared { row, seat, plan }]) };
            let (leader, cancel) = (joined.leader, ground.live.register(row.id));
            let landed = tokio::select! {
                biased;
                landed = self.landed(joined) => landed,
                () = cancel.raised() => Some(self.never_sent()),
            };
            ground.live.forget(row.id);
            // One that is a row and has no outcome may have been sent: whoever owns its turn settles that, and this one does not follow.
            let stored = landed.is_none() && ground.records.call(ground.fence.tenant_id, leader).await?.is_some();
            if let Some(ended) = landed.or_else(|| stored.then(|| self.never_sent())) {
                return Ok(vec![Prepared { row, seat, plan: Plan::Ended(Box::new(ended)) }]);
            }
            let Some(again) = self.prepare(vec![asked.clone()]).await?.pop() else { return Ok(Vec::new()) };
            row.idempotency_key = row.idempotency_key.or(again.row.idempotency_key);
            if !matches!(again.plan, Plan::Join(_)) {
                row.dedupe_of = None;
            }
            if let Plan::Await(awaited) = &again.plan {
                let mut draft = ground.draft();
                draft.write.approvals = awaited.wish.iter().cloned().collect();
                ground.commit(draft).await?;
            }
            prepared.push(Prepared { row, seat, plan: again.plan });
        }
        Ok(prepared)
    }

    /// What this very turn has done comes first: while it waited for a person's word another turn may have done the same
    /// thing since, and the store only knows the newest.
    fn done_before(&self, row: &mut CallRow) -> Result<Option<Boarding>, Failure> {
        let same = self.earlier.iter().rev().filter(|call| call.row.dedupe_key == row.dedupe_key);
        for call in same {
            match &call.ended.result {
                Ok(_) => {
                    row.dedupe_of = Some(call.row.dedupe_of.unwrap_or(call.row.id));
                    let ended = Ended { cache_hit: true, ..call.ended.shared(self.ground.clock.now()) };
                    return Ok(Some(Boarding::Over(Box::new(ended))));
                }
                Err(failure) if failure.code == "outcome_unknown" => return Err(unknown(call.row.id)),
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// Nobody knows whether the very same call happened.
fn unknown(earlier: Uuid) -> Failure {
    Failure::fatal("outcome_unknown", "").nothing_happened().with_details(object(json!({"earlier_job_id": earlier})))
}
