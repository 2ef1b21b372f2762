//! The tables as plain maps: what the store promises, written so simply that it can be believed. One change is applied to a
//! copy and the copy takes the place of the original, so a change that fails leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{CallStatus, Effect, TurnStatus, Usage, Uuid};
use werkruf_store::{
    ApprovalRow, AttemptRow, CallRow, ConversationRow, EventRow, Fence, MessageRow, NewUsage, Reusable, StoreError, Summary, TurnRow,
};

use crate::mutant::Mutant;

/// The owner of a lease whose turn has begun and is not over, with nobody at work on it.
const LEFT: &str = "";
/// As in the SQLite store.
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
pub struct Received {
    pub fingerprint: String,
    pub turn_id: Uuid,
    pub expires_at: Timestamp,
}

/// A write that was taken, for the auditor.
#[derive(Debug, Clone)]
pub struct Taken {
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
    /// The database's own, by which leases count where several processes share it.
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
    pub inbox: BTreeMap<(String, String, String), Received>,
    pub approvals: BTreeMap<Uuid, Arc<ApprovalRow>>,
    /// Texts under way, by turn.
    pub partials: BTreeMap<Uuid, String>,
    pub taken: Vec<Taken>,
    /// Calls that somebody wants stopped.
    pub unwanted: BTreeSet<Uuid>,
    /// Which call has the flight of a key, and since when.
    pub flights: BTreeMap<String, (Uuid, Timestamp)>,
    /// How often each turn began to wait for a person's word.
    pub parks: BTreeMap<Uuid, usize>,
    /// How often each turn got the lease.
    pub claims: BTreeMap<Uuid, u32>,
    /// What no write may leave behind.
    pub faults: Vec<String>,
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
    /// Whether no turn that has begun is still open.
    pub fn may_begin(&self, stream_id: Uuid) -> bool {
        self.leases.get(&stream_id).is_none_or(|lease| lease.owner.is_none())
    }

    pub fn lease_end(&self, now: Timestamp) -> Timestamp {
        self.clock.filter(|_| self.shared).unwrap_or(now) + LEASE
    }

    /// Whether this owner may go on with what was left.
    fn is_free(&self, stream_id: Uuid, owner: &str, now: Timestamp) -> bool {
        let Some(lease) = self.leases.get(&stream_id) else { return true };
        let lapsed = self.shared && lease.expires_at.is_none_or(|end| end <= now);
        lease.owner.as_deref().is_none_or(|holder| holder == owner || holder == LEFT) || lapsed
    }

    /// Takes the lease; the caller has looked whether it is free.
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

    /// A write proves its ownership and renews it.
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
        // One that waited begins like any other.
        let now = self.clock.filter(|_| self.shared).unwrap_or(now);
        let free =
            if waited && mutant != Mutant::WaitingPushesIn { self.may_begin(stream_id) } else { self.is_free(stream_id, owner, now) };
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
        lease.owner = Some(LEFT.to_owned());
        Ok(())
    }

    fn is_held(&self, stream_id: Uuid) -> bool {
        self.leases.get(&stream_id).is_some_and(|lease| lease.owner.as_deref().is_some_and(|owner| owner != LEFT))
    }

    pub fn change_turn(&mut self, id: Uuid, change: impl FnOnce(&mut TurnRow)) {
        if let Some(turn) = self.turns.get_mut(&id) {
            change(Arc::make_mut(turn));
        }
    }

    /// A process that owns the file begins: whoever held a lease before is gone.
    pub fn void_leases(&mut self) {
        let open: Vec<(Uuid, Uuid, bool)> = self
            .turns
            .values()
            .filter(|turn| turn.finished_at.is_none())
            .map(|turn| (turn.id, stream_of(turn), matches!(turn.status, TurnStatus::Accepted | TurnStatus::AwaitingApproval)))
            .collect();
        for (id, stream_id, waits) in &open {
            if !waits && self.is_held(*stream_id) {
                self.change_turn(*id, |turn| {
                    turn.takeovers += 1;
                    turn.stalled += 1;
                });
            }
        }
        for (_, stream_id, _) in open {
            if let Some(lease) = self.leases.get_mut(&stream_id).filter(|lease| lease.owner.is_some()) {
                lease.owner = Some(LEFT.to_owned());
            }
        }
    }

    pub fn unfinished(&self, owner: &str, now: Timestamp, mutant: Mutant) -> Vec<TurnRow> {
        let may_go_on = |turn: &TurnRow| {
            let word = || self.has_word(turn.id) && mutant != Mutant::WordUnseen;
            turn.status != TurnStatus::AwaitingApproval || turn.cancel_requested || word()
        };
        let open = self.turns.values().filter(|turn| turn.finished_at.is_none() && may_go_on(turn));
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
                    || (call.status == CallStatus::Queued && self.is_asked(call.id))
            })
            .max_by_key(|call| (call.created_at, call.id))?;
        let here = call.conversation_id.is_some();
        let stale = here
            && self.calls.values().any(|other| {
                other.conversation_id == call.conversation_id
                    && other.id != call.id
                    && other.effect != Effect::Read
                    && other.finished_at.is_some_and(|end| end >= call.created_at)
            });
        let message_since = call.conversation_id.is_some_and(|id| self.spoken_since(id, call.created_at));
        Some(Reusable { call: (**call).clone(), stale, message_since })
    }
}
