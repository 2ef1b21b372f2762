//! The `Cluster` part of the store: leases that expire by the clock of the database, cancel requests, streams of other processes,
//! and notifications that may be lost.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use werkruf_contract::{BoxFuture, CallStatus, TurnStatus, Uuid};
use werkruf_store::{CLAIM_WINDOW, Cluster, LeaseReport, StoreFuture, StreamKey, StreamPosition};

use crate::mutant::Mutant;
use crate::store::Store;
use crate::tables::{LEASE, Tables, stream_of};
use crate::trace::short;

impl Tables {
    /// The leases of this owner, and the cancel requests for them.
    fn held(&self, owner: &str, tenant_id: Uuid) -> LeaseReport {
        let mine = |stream_id: &Uuid| self.leases.get(stream_id).is_some_and(|lease| lease.owner.as_deref() == Some(owner));
        let held = self.leases.iter().filter(|(stream_id, _)| mine(stream_id));
        let open = || self.turns.values().filter(|turn| turn.finished_at.is_none() && mine(&stream_of(turn)));
        let is_held = |call_id: &&Uuid| self.calls.get(call_id).is_some_and(|call| open().any(|turn| turn.id == call.turn_id));
        LeaseReport {
            held: held.map(|(stream_id, lease)| (StreamKey { tenant_id, stream_id: *stream_id }, lease.epoch)).collect(),
            canceled_turns: open().filter(|turn| turn.cancel_requested).map(|turn| turn.id).collect(),
            canceled_calls: self.canceled_calls.iter().filter(is_held).copied().collect(),
        }
    }

    fn position(&self, stream_id: Uuid, turns: &[Uuid]) -> Option<StreamPosition> {
        let lease = self.leases.get(&stream_id)?;
        let partial = self.partial(stream_id).map(|text| format!("{} {} {}", short(text.turn_id), text.step, text.content));
        let waits = |id: &&Uuid| {
            let turn = self.turns.get(*id);
            turn.is_some_and(|turn| turn.conversation_id.unwrap_or(turn.id) == stream_id && turn.status == TurnStatus::AwaitingApproval)
        };
        Some(StreamPosition {
            stream_id,
            next_event_seq: lease.next_event,
            partial,
            waiting: turns.iter().filter(waits).copied().collect(),
        })
    }

    fn claim_key(&mut self, key: &str, call_id: Uuid) -> Uuid {
        let now = self.clock.unwrap_or_default();
        let running = self.calls.values().find(|call| call.dedupe_key.as_deref() == Some(key) && call.status == CallStatus::Running);
        if let Some(call) = running {
            return call.id;
        }
        let window = SignedDuration::try_from(CLAIM_WINDOW).unwrap();
        match self.key_claims.get(key) {
            Some((leader, since)) if now.duration_since(*since) < window && !self.calls.contains_key(leader) => *leader,
            _ => {
                self.key_claims.insert(key.to_owned(), (call_id, now));
                call_id
            }
        }
    }
}

impl Cluster for Store {
    fn lease_ttl(&self) -> Option<Duration> {
        let ttl = if self.world.mutant == Mutant::LeaseAssumedLonger { LEASE * 4 } else { LEASE };
        self.world.faults.shared.then(|| Duration::try_from(ttl).unwrap())
    }

    fn renew_leases(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        let tenant_id = self.world.principal.tenant_id;
        let world = Arc::clone(&self.world);
        self.submit("renew".to_owned(), move |tables, mutant| {
            let held = tables.held(&owner, tenant_id);
            let end = tables.lease_end(tables.clock.unwrap_or_default());
            for (key, _) in held.held.iter().filter(|_| mutant != Mutant::RenewalSkipped) {
                tables.lease(key.stream_id).expires_at = Some(end);
            }
            world.count("renewals");
            Ok(held)
        })
    }

    fn pending_cancels(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        Box::pin(self.read("cancel requests", move |tables| tables.held(&owner, self.world.principal.tenant_id)))
    }

    fn claim_key(&self, _: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, Uuid> {
        let world = Arc::clone(&self.world);
        self.submit(format!("claim key for {}", short(call_id)), move |tables, mutant| {
            let leader = tables.claim_key(&dedupe_key, call_id);
            if leader != call_id {
                world.count("calls joined on another process");
            }
            Ok(if mutant == Mutant::EveryoneLeads { call_id } else { leader })
        })
    }

    fn request_call_cancel(&self, _: Uuid, call_id: Uuid) -> StoreFuture<'_, bool> {
        let world = Arc::clone(&self.world);
        self.submit(format!("cancel call {}", short(call_id)), move |tables, _| {
            let running = tables.calls.get(&call_id).is_some_and(|call| call.status == CallStatus::Running);
            if running {
                world.count("calls canceled on another process");
                tables.canceled_calls.insert(call_id);
            }
            Ok(running)
        })
    }

    fn stream_positions(&self, _: Uuid, streams: Vec<Uuid>, turns: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>> {
        let stale = i64::from(self.world.mutant == Mutant::LastEventHidden);
        Box::pin(self.read("positions", move |tables| {
            let found = streams.into_iter().filter_map(|stream_id| tables.position(stream_id, &turns));
            found.map(|position| StreamPosition { next_event_seq: position.next_event_seq - stale, ..position }).collect()
        }))
    }

    fn notify(&self) {
        let world = &self.world;
        for other in world.processes.lock().unwrap().iter().filter(|other| other.name != self.process.name && !other.is_dead()) {
            if !world.rng.permille(world.faults.notifications_lost) {
                other.notification.notify_one();
            }
        }
    }

    fn notified(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.process.notification.notified().await;
            self.process.gate().await;
        })
    }
}
