//! The tables as plain maps: a model of the store, simple enough to be reviewed. A change is applied to a copy, which replaces
//! the original, so a failed change has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{CallStatus, Effect, TurnStatus, Usage, Uuid};
use werkruf_store::{
    ApprovalRow, AttemptRow, CallRow, ConversationRow, EventRow, Fence, MessageRow, NewUsage, Reusable, StoreError, Summary, TurnRow,
};

use crate::mutant::Mutant;

/// The owner of a lease whose turn has started and not ended, while no process works on it.
const RELEASED: &str = "";
/// The lease duration, as in the SQLite store.
pub const LEASE: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lease {
    pub owner: Option<String>,
    pub epoch: i64,
    pub next_event: i64,
    pub next_message: i64,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct InboxRow {
    pub fingerprint: String,
    pub turn_id: Uuid,
    pub expires_at: Timestamp,
}

/// An accepted write, for the audit.
#[derive(Debug, Clone)]
pub struct AcceptedWrite {
    pub stream_id: Uuid,
    pub turn_id: Uuid,
    pub owner: String,
    pub epoch: i64,
    /// The turn had ended before this write.
    pub after_end: bool,
}

#[derive(Clone, Default)]
pub struct Tables {
    pub shared: bool,
    /// The clock of the database, by which leases expire if several processes share it.
    pub clock: Option<Timestamp>,
    pub conversations: BTreeMap<Uuid, Arc<ConversationRow>>,
    pub turns: BTreeMap<Uuid, Arc<TurnRow>>,
    pub messages: BTreeMap<Uuid, Arc<MessageRow>>,
    pub calls: BTreeMap<Uuid, Arc<CallRow>>,
    pub attempts: BTreeMap<(Uuid, u32), Arc<AttemptRow>>,
    pub usage: BTreeMap<Uuid, (Uuid, Arc<NewUsage>)>,
    pub summaries: BTreeMap<Uuid, Summary>,
    pub events: BTreeMap<(Uuid, i64), Arc<EventRow>>,
    pub leases: BTreeMap<Uuid, Lease>,
    /// By channel, account and key.
    pub inbox: BTreeMap<(String, String, String), InboxRow>,
    pub approvals: BTreeMap<Uuid, Arc<ApprovalRow>>,
    /// Partial texts by turn.
    pub partials: BTreeMap<Uuid, String>,
    pub writes: Vec<AcceptedWrite>,
    /// Calls with a cancel request.
    pub canceled_calls: BTreeSet<Uuid>,
    /// The call that claimed a dedupe key, and when.
    pub key_claims: BTreeMap<String, (Uuid, Timestamp)>,
    /// How often each turn started to await approval.
    pub approval_waits: BTreeMap<Uuid, usize>,
    /// How often each turn claimed the lease.
    pub claims: BTreeMap<Uuid, u32>,
    /// Violations of invariants by single writes.
    pub violations: Vec<String>,
}

pub fn moved(what: &'static str, id: Uuid) -> StoreError {
    StoreError::Moved { what, id: id.to_string() }
}

pub fn broken(what: impl std::fmt::Display) -> StoreError {
    StoreError::Broken(what.to_string())
}

pub const fn stream_of(turn: &TurnRow) -> Uuid {
    match turn.conversation_id {
        Some(id) => id,
        None => turn.id,
    }
}

impl Tables {
    /// Whether no started turn of the stream is open.
    pub fn may_start(&self, stream_id: Uuid) -> bool {
        self.leases.get(&stream_id).is_none_or(|lease| lease.owner.is_none())
    }

    pub fn lease_end(&self, now: Timestamp) -> Timestamp {
        self.clock.filter(|_| self.shared).unwrap_or(now) + LEASE
    }

    /// Whether this owner may claim the lease.
    fn is_free(&self, stream_id: Uuid, owner: &str, now: Timestamp) -> bool {
        let Some(lease) = self.leases.get(&stream_id) else { return true };
        let expired = self.shared && lease.expires_at.is_none_or(|end| end <= now);
        lease.owner.as_deref().is_none_or(|holder| holder == owner || holder == RELEASED) || expired
    }

    /// Claims the lease; the caller has checked that it is free.
    pub fn claim(&mut self, tenant_id: Uuid, stream_id: Uuid, owner: &str, now: Timestamp) -> Fence {
        let end = self.lease_end(now);
        let lease = self.lease(stream_id);
        lease.owner = Some(owner.to_owned());
        lease.epoch += 1;
        lease.expires_at = Some(end);
        Fence { tenant_id, stream_id, owner: owner.to_owned(), epoch: lease.epoch }
    }

    pub fn lease(&mut self, stream_id: Uuid) -> &mut Lease {
        self.leases.entry(stream_id).or_insert_with(|| Lease { next_event: 1, next_message: 1, ..Lease::default() })
    }

    /// Checks that the writer owns the lease, and renews it.
    pub fn renew(&mut self, fence: &Fence, now: Timestamp, checked: bool) -> Result<(), StoreError> {
        let end = self.lease_end(now);
        let lease = self.leases.get_mut(&fence.stream_id).ok_or(StoreError::Fenced)?;
        if checked && (lease.owner.as_deref() != Some(&fence.owner) || lease.epoch != fence.epoch) {
            return Err(StoreError::Fenced);
        }
        lease.expires_at = Some(end);
        Ok(())
    }

    pub fn take_over(&mut self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp, mutant: Mutant) -> Result<Fence, StoreError> {
        let turn = self.turns.get(&turn_id).filter(|turn| turn.finished_at.is_none()).ok_or_else(|| moved("turn", turn_id))?;
        let (stream_id, waited) = (stream_of(turn), turn.status == TurnStatus::AwaitingApproval);
        // A turn that awaited approval needs a free lease, as a new turn does.
        let now = self.clock.filter(|_| self.shared).unwrap_or(now);
        let free =
            if waited && mutant != Mutant::WaitingResumesEarly { self.may_start(stream_id) } else { self.is_free(stream_id, owner, now) };
        if !free {
            return Err(StoreError::Busy);
        }
        let held = self.is_held(stream_id);
        self.change_turn(turn_id, |turn| {
            turn.takeovers += u32::from(held);
            turn.stalled += u32::from(held);
            if waited {
                turn.status = TurnStatus::Acting;
            }
        });
        *self.claims.entry(turn_id).or_default() += 1;
        Ok(self.claim(tenant_id, stream_id, owner, now))
    }

    pub fn release(&mut self, fence: &Fence) -> Result<(), StoreError> {
        let lease = self.leases.get_mut(&fence.stream_id).ok_or(StoreError::Fenced)?;
        if lease.owner.as_deref() != Some(&fence.owner) || lease.epoch != fence.epoch {
            return Err(StoreError::Fenced);
        }
        lease.owner = Some(RELEASED.to_owned());
        Ok(())
    }

    fn is_held(&self, stream_id: Uuid) -> bool {
        self.leases.get(&stream_id).is_some_and(|lease| lease.owner.as_deref().is_some_and(|owner| owner != RELEASED))
    }

    pub fn change_turn(&mut self, id: Uuid, change: impl FnOnce(&mut TurnRow)) {
        if let Some(turn) = self.turns.get_mut(&id) {
            change(Arc::make_mut(turn));
        }
    }

    /// A process that owns the file starts, so all earlier owners of leases are dead.
    pub fn void_leases(&mut self) {
        let open: Vec<(Uuid, Uuid, bool)> = self
            .turns
            .values()
            .filter(|turn| turn.finished_at.is_none())
            .map(|turn| (turn.id, stream_of(turn), matches!(turn.status, TurnStatus::Accepted | TurnStatus::AwaitingApproval)))
            .collect();
        for (id, stream_id, is_waiting) in &open {
            if !is_waiting && self.is_held(*stream_id) {
                self.change_turn(*id, |turn| {
                    turn.takeovers += 1;
                    turn.stalled += 1;
                });
            }
        }
        for (_, stream_id, _) in open {
            if let Some(lease) = self.leases.get_mut(&stream_id).filter(|lease| lease.owner.is_some()) {
                lease.owner = Some(RELEASED.to_owned());
            }
        }
    }

    pub fn unfinished(&self, owner: &str, now: Timestamp, mutant: Mutant) -> Vec<TurnRow> {
        let may_resume = |turn: &TurnRow| {
            let decided = || self.has_decision(turn.id) && mutant != Mutant::DecisionNotFound;
            turn.status != TurnStatus::AwaitingApproval || turn.cancel_requested || decided()
        };
        let open = self.turns.values().filter(|turn| turn.finished_at.is_none() && may_resume(turn));
        open.filter(|turn| self.is_free(stream_of(turn), owner, now)).map(|turn| (**turn).clone()).collect()
    }

    pub fn history(&self, conversation_id: Uuid) -> Vec<MessageRow> {
        let mine = self.messages.values().filter(|row| row.conversation_id == conversation_id && row.seq.is_some());
        let mut found: Vec<MessageRow> = mine.map(|row| (**row).clone()).collect();
        found.sort_by_key(|row| row.seq);
        found
    }

    pub fn usage_of(&self, turn_id: Uuid) -> Usage {
        let mut sum = Usage::default();
        for (_, row) in self.usage.values().filter(|(turn, _)| *turn == turn_id) {
            sum.input_tokens += row.tokens_prompt;
            sum.cached_tokens += row.tokens_cached;
            sum.output_tokens += row.tokens_completion;
            sum.reasoning_tokens += row.tokens_reasoning;
            sum.total_tokens += row.tokens_total;
            sum.add_cost(row.cost_nano_usd);
            sum.model_calls += 1;
        }
        sum
    }

    pub fn reusable(&self, conversation_id: Option<Uuid>, dedupe_key: &str) -> Option<Reusable> {
        let here = self.calls.values().filter(|call| call.conversation_id == conversation_id);
        let same = here.filter(|call| call.dedupe_key.as_deref() == Some(dedupe_key));
        let call = same
            .filter(|call| {
                (call.status == CallStatus::Succeeded && call.dedupe_of.is_none())
                    || call.error_code.as_deref() == Some("outcome_unknown")
                    || (call.status == CallStatus::Queued && self.needs_approval(call.id))
            })
            .max_by_key(|call| (call.created_at, call.id))?;
        let in_conversation = call.conversation_id.is_some();
        let stale = in_conversation
            && self.calls.values().any(|other| {
                other.conversation_id == call.conversation_id
                    && other.id != call.id
                    && other.effect != Effect::Read
                    && other.finished_at.is_some_and(|end| end >= call.created_at)
            });
        let known_at = match self.turns.get(&call.turn_id) {
            Some(turn) => turn.finished_at.or((turn.status == TurnStatus::AwaitingApproval).then_some(turn.updated_at)),
            None => call.finished_at,
        };
        let is_unknown = call.error_code.as_deref() == Some("outcome_unknown");
        let message_since = is_unknown && call.conversation_id.zip(known_at).is_some_and(|(id, known_at)| self.message_since(id, known_at));
        Some(Reusable { call: (**call).clone(), stale, message_since })
    }
}
