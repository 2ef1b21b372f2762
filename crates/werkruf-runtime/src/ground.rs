//! What a turn stands on: whose it is, what it may write, where it is heard. Shared by the turn and its calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;
use werkruf_contract::{AssistantToken, Cancel, Clock, Deadline, EventType, Texts, TurnStatus, Uuid};
use werkruf_store::{Cluster, Fence, NewEvent, People, Records, StoreError, TurnWrite, Turns, Written, crash};

use crate::dedupe::InFlight;
use crate::hold::Hold;
use crate::hub::{Hub, LiveEvent};
use crate::inbound::Caller;
use crate::limits::Limits;
use crate::runtime::Setup;
use crate::stir::Stir;

/// How often at least a write is tried while the database does not answer, and how long between: one time longer than the last.
const WRITE_TRIES: u32 = 5;
const WRITE_PAUSE: Duration = Duration::from_millis(200);

/// The fixed part of a turn.
pub(crate) struct Ground {
    pub(crate) turns: Arc<dyn Turns>,
    pub(crate) people: Arc<dyn People>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) stir: Stir,
    pub(crate) hub: Arc<Hub>,
    pub(crate) tasks: TaskTracker,
    pub(crate) in_flight: InFlight,
    pub(crate) clock: Clock,
    pub(crate) limits: Arc<Limits>,
    /// Pinned when the turn began: a reload changes no running turn.
    pub(crate) setup: Arc<Setup>,
    pub(crate) caller: Caller,
    pub(crate) turn_id: Uuid,
    pub(crate) conversation_id: Option<Uuid>,
    pub(crate) fence: Fence,
    pub(crate) live: Arc<Live>,
    pub(crate) deadline: Deadline,
    pub(crate) debug: bool,
    /// The language the person is answered in.
    pub(crate) words: Texts,
}

/// The part of a running turn that outsiders may touch: its stop buttons.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) cancel: Cancel,
    /// Raised when the process must go before the turn has ended.
    pub(crate) released: Cancel,
    /// Raised by a decision or a cancel that may come just as the turn begins to wait.
    pub(crate) look_again: Cancel,
    /// The lease it works under.
    pub(crate) hold: Hold,
    /// Raised when another process has the turn: nothing more may begin or be written here.
    pub(crate) lost: Cancel,
    /// In order, so that stopping them all is the same twice.
    calls: Mutex<BTreeMap<Uuid, Cancel>>,
}

impl Live {
    /// Stops the turn and every call in it.
    pub(crate) fn cancel_all(&self) {
        self.cancel.raise();
        for cancel in self.calls.lock().unwrap_or_else(PoisonError::into_inner).values() {
            cancel.raise();
        }
    }

    /// Stops one call; false when it is not running here.
    pub(crate) fn cancel_call(&self, job_id: Uuid) -> bool {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(&job_id).map(Cancel::raise).is_some()
    }

    /// A stop button for a call.
    pub(crate) fn register(&self, job_id: Uuid) -> Cancel {
        let cancel = Cancel::default();
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(job_id, cancel.clone());
        // The turn may have been stopped while this call was being prepared.
        if self.cancel.is_raised() {
            cancel.raise();
        }
        cancel
    }

    pub(crate) fn forget(&self, job_id: Uuid) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&job_id);
    }
}

/// A write in the making, and how its events will be heard once it is durable.
pub(crate) struct Draft {
    pub(crate) write: TurnWrite,
    /// Beside each event: what clients hear, where it differs from the row.
    live: Vec<Option<String>>,
}

impl Draft {
    /// An event that is a row.
    pub(crate) fn event(&mut self, kind: EventType, payload: &impl Serialize) {
        self.event_text(kind, json(payload), None);
    }

    /// An event as text; `heard` where the row is shorter than what clients hear.
    pub(crate) fn event_text(&mut self, kind: EventType, row: String, heard: Option<String>) {
        self.write.events.push(NewEvent { kind, data: row });
        self.live.push(heard);
    }
}

pub(crate) fn json(payload: &impl Serialize) -> String {
    // Event payloads are plain structs with string keys: writing them cannot fail.
    serde_json::to_string(payload).unwrap_or_else(|_| "null".to_owned())
}

impl Ground {
    /// The conversation, or the turn where there is none.
    pub(crate) const fn stream_id(&self) -> Uuid {
        self.fence.stream_id
    }

    /// An empty write of this turn.
    pub(crate) fn draft(&self) -> Draft {
        let user_id = self.caller.principal.user_id.clone();
        Draft {
            write: TurnWrite::new(self.clock.new_id(), self.fence.clone(), self.conversation_id, self.turn_id, user_id, self.clock.now()),
            live: Vec::new(),
        }
    }

    /// Works on the turn unless the process must go or another one has it. Then the lease is given back where it still is ours,
    /// and the turn goes on elsewhere or after the next start.
    pub(crate) async fn unless_released(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = work => {}
            () = self.live.lost.raised() => {
                self.hub.forsake(self.stream_id());
                tracing::warn!(turn_id = %self.turn_id, "another process has the turn; it goes on there");
            }
            () = self.live.released.raised() => {
                let released = self.turns.release(self.fence.clone()).await;
                self.live.hold.give_back();
                self.hub.forsake(self.stream_id());
                self.cluster.notify();
                tracing::info!(turn_id = %self.turn_id, ok = released.is_ok(), "the turn was released");
            }
        }
    }

    /// Passes while the lease is surely ours. Past that nothing may begin any more: the turn stops here, where it cannot be told
    /// from one that another process has taken over.
    pub(crate) async fn still_ours(&self) {
        if self.cluster.lease_ttl().is_none_or(|ttl| self.live.hold.is_sure(ttl)) {
            return;
        }
        tracing::warn!(turn_id = %self.turn_id, "the lease was not renewed in time; nothing more begins under it");
        self.live.released.raise();
        std::future::pending::<()>().await;
    }

    /// Makes it durable, then lets it be heard. A database that does not answer or has no room is asked again for as long as
    /// the turn has time, since what is known here is known nowhere else; then recovery goes on from the last commit.
    pub(crate) async fn commit(&self, draft: Draft) -> Result<Written, StoreError> {
        let Draft { write, live } = draft;
        let kinds: Vec<EventType> = write.events.iter().map(|event| event.kind).collect();
        let heard: Vec<Arc<str>> =
            write.events.iter().zip(live).map(|(event, live)| live.map_or_else(|| Arc::from(event.data.as_str()), Arc::from)).collect();
        let given_back = write.turn.as_ref().is_some_and(|turn| turn.status.is_terminal() || turn.status == TurnStatus::AwaitingApproval);
        // A write that failed may have been stored all the same.
        let written = self.write(write).await.inspect_err(|_| self.hub.let_go(self.stream_id()))?;
        if given_back {
            self.live.hold.give_back();
        }
        crash::point("before_publish");
        if written.cancel_requested {
            self.live.cancel_all();
        }
        for ((kind, data), seq) in kinds.into_iter().zip(heard).zip(&written.event_seqs) {
            self.hub.publish(self.stream_id(), &LiveEvent { seq: Some(*seq), kind, turn_id: self.turn_id, data });
        }
        if given_back || !written.event_seqs.is_empty() {
            self.cluster.notify();
        }
        Ok(written)
    }

    async fn write(&self, write: TurnWrite) -> Result<Written, StoreError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let asking = self.live.hold.ask();
            let answer = self.turns.write(write.clone()).await;
            if answer.is_ok() {
                asking.taken();
            }
            drop(asking);
            match answer {
                Err(error) if error.is_retryable() && (tried < WRITE_TRIES || !self.deadline.passed()) => {
                    tracing::warn!(turn_id = %self.turn_id, tried, %error, "a write of the turn was not taken; trying again");
                    tokio::time::sleep(WRITE_PAUSE * tried.min(WRITE_TRIES)).await;
                }
                settled => return settled,
            }
        }
    }

    /// A piece of the answer, as it comes.
    pub(crate) fn say_text(&self, token: &AssistantToken) {
        self.hub.publish_token(&self.fence, self.turn_id, token);
    }

    /// Says something that is no row and no text.
    pub(crate) fn say(&self, kind: EventType, payload: &impl Serialize) {
        if self.hub.is_watched(self.stream_id()) {
            let data = Arc::from(json(payload));
            self.hub.publish(self.stream_id(), &LiveEvent { seq: None, kind, turn_id: self.turn_id, data });
        }
    }

    /// A debug entry, for those who asked and may.
    pub(crate) fn debug(&self, kind: &str, payload: impl FnOnce() -> Map<String, Value>) {
        if self.debug {
            self.say(EventType::Debug, &werkruf_contract::DebugEntry { kind: kind.to_owned(), payload: payload() });
        }
    }
}
