//! Stages the changes of a turn and commits them under its fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Serialize;
use werkruf_contract::{AssistantToken, Clock, Deadline, EventType, TurnStatus, Uuid};
use werkruf_store::{Cluster, Fence, NewEvent, OpenTurn, Opened, StoreError, TurnWrite, Turns, Written, crash};

use super::announce::Audience;
use super::change::{Change, CommitPoint, Event};
use crate::lease::{RunningTurn, Wakeup};
use crate::metrics::{Metrics, Retried};
use crate::stored::json;
use crate::stream::{Broadcast, LiveEvent};
use crate::timer;
use crate::trace::EndedSpan;

/// How often at least a commit is tried while the database does not answer, and the first pause between two tries.
const COMMIT_TRIES: u32 = 5;
const COMMIT_PAUSE: Duration = Duration::from_millis(200);

/// What all journals of a process use.
#[derive(Clone)]
pub(crate) struct JournalStore {
    pub(crate) turns: Arc<dyn Turns>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) broadcast: Arc<Broadcast>,
    /// Wakes the loop that sends rows of the outbox.
    pub(crate) outbox: Wakeup,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
}

/// Changes that are not durable yet.
struct Staged {
    write: TurnWrite,
    /// Beside each event: what clients receive, where it differs from the row.
    sent: Vec<Option<String>>,
    /// Whether anything is staged that must be durable before an answer to the next model request is used. Usage rows and token counts may
    /// wait for the commit after it.
    urgent: bool,
    /// Of calls whose outcome is among the changes.
    spans: Vec<EndedSpan>,
}

impl JournalStore {
    /// Commit A: makes a message and its turn durable (for a direct call also the call), and takes the lease where the turn may start at once.
    pub(crate) async fn open(&self, open: OpenTurn, running: &RunningTurn) -> Result<Opened, StoreError> {
        crash::point("before_a");
        let sent_at = timer::now();
        let sends = !open.outbox.is_empty();
        let opened = self.turns.open_turn(open).await;
        self.metrics.committed(opened.is_ok(), sent_at.elapsed());
        let opened = opened?;
        if let Opened::Stored { fence: Some(fence), .. } = &opened {
            running.lease().acquire(fence, sent_at);
        }
        if sends {
            self.outbox.wake();
        }
        crash::point("after_a");
        Ok(opened)
    }

    /// Publishes an event that is durable.
    pub(crate) fn publish(&self, stream_id: Uuid, event: &LiveEvent) {
        self.broadcast.publish(stream_id, event);
        self.cluster.notify();
    }
}

/// The journal of one turn.
pub(crate) struct Journal {
    store: JournalStore,
    running: Arc<RunningTurn>,
    /// Whose turn it is, and who is told about it.
    audience: Audience,
    stream_id: Uuid,
    turn_id: Uuid,
    /// A commit is tried again until then, since what is staged is known nowhere else.
    deadline: Deadline,
    fence: OnceLock<Fence>,
    /// Whether the turn's own reservation, which has its id, is open: no staged usage row ends it.
    reserved: AtomicBool,
    /// Whether something else is reserved for the turn: by its tools, or for a summary.
    others_reserved: AtomicBool,
    staged: Mutex<Option<Staged>>,
}

impl Journal {
    pub(crate) fn new(store: JournalStore, running: Arc<RunningTurn>, audience: Audience, deadline: Deadline) -> Self {
        let turn_id = audience.owner.turn_id;
        let stream_id = audience.owner.conversation_id.unwrap_or(turn_id);
        let (fence, reserved, others_reserved, staged) =
            (OnceLock::new(), AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None));
        Self { store, running, audience, stream_id, turn_id, deadline, fence, reserved, others_reserved, staged }
    }

    /// Who is told about the turn.
    pub(crate) const fn audience(&self) -> &Audience {
        &self.audience
    }

    /// The fence under which the journal writes from now on. A journal has one fence for its life.
    pub(crate) fn bind(&self, fence: Fence) {
        let _ = self.fence.set(fence);
    }

    pub(crate) const fn tenant_id(&self) -> Uuid {
        self.audience.owner.tenant_id
    }

    /// The conversation, or the turn where there is none.
    pub(crate) const fn stream_id(&self) -> Uuid {
        self.stream_id
    }

    /// Something is reserved for the turn. What its usage rows leave of that is released when the turn ends or waits.
    pub(crate) fn note_reserved(&self) {
        self.reserved.store(true, Ordering::Relaxed);
    }

    /// The same for a tool of the turn.
    pub(crate) fn note_reserved_by_tool(&self) {
        self.others_reserved.store(true, Ordering::Relaxed);
    }

    /// Releasing reads all reservations of the tenant, so it is left out where the usage rows have ended everything.
    fn has_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) || self.others_reserved.load(Ordering::Relaxed)
    }

    fn staged(&self) -> MutexGuard<'_, Option<Staged>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether outcomes or other changes wait that the next model request must not overtake.
    pub(crate) fn has_urgent_changes(&self) -> bool {
        self.staged().as_ref().is_some_and(|staged| staged.urgent)
    }

    fn new_write(&self) -> Staged {
        // A turn without a fence cannot commit; the placeholder is never written.
        let fence = self.fence.get().cloned().unwrap_or_else(|| Fence {
            tenant_id: self.tenant_id(),
            stream_id: self.stream_id,
            owner: String::new(),
            epoch: -1,
        });
        let (clock, owner) = (&self.store.clock, &self.audience.owner);
        let write = TurnWrite::new(clock.new_id(), fence, owner.conversation_id, self.turn_id, owner.user_id.clone(), clock.now());
        Staged { write, sent: Vec::new(), urgent: false, spans: Vec::new() }
    }

    /// Adds a change to the next commit.
    pub(crate) fn stage(&self, change: impl Into<Change>) {
        let mut staged = self.staged();
        let Staged { write, sent, urgent, spans } = staged.get_or_insert_with(|| self.new_write());
        let change = change.into();
        *urgent |= !matches!(change, Change::Usage(_) | Change::TokenCount(..) | Change::Span(_));
        match change {
            Change::Message(message) => write.messages.push(message),
            Change::Replacement(replacement) => write.replacements.push(replacement),
            Change::Call(row) => write.calls.push(*row),
            Change::Approval(approval) => write.approvals.push(approval),
            Change::WithdrawApproval(call_id) => write.withdrawn.push(call_id),
            Change::CallStart(start) => write.starts.push(start),
            Change::CallRetry(retry) => write.retries.push(retry),
            Change::ProviderCallUpdate(update) => write.provider_updates.push(update),
            Change::CallEnd(end) => write.ends.push(*end),
            Change::StatePatch(patch) => write.state_patches.push(patch),
            Change::Usage(usage) => {
                if usage.reservation == Some(self.turn_id) {
                    self.reserved.store(false, Ordering::Relaxed);
                }
                write.usage.push(usage);
            }
            Change::TokenCount(message_id, tokens) => write.counted.push((message_id, tokens)),
            Change::Summary(summary) => write.summary = Some(summary),
            Change::Turn(change) => write.turn = Some(change),
            Change::AbandonedStep(step) => write.abandoned_step = Some(step),
            Change::Reserve(reservation) => {
                let flag = if reservation.id == self.turn_id { &self.reserved } else { &self.others_reserved };
                flag.store(true, Ordering::Relaxed);
                write.reserve = Some(reservation);
            }
            Change::ReleaseReservations => write.release_reservations = true,
            Change::Outbox(row) => write.outbox.push(row),
            Change::Span(span) => spans.push(span),
            Change::Event(event) => {
                write.events.push(NewEvent { kind: event.kind, data: event.row });
                sent.push(event.sent);
            }
        }
    }

    /// Stages an event that becomes a row.
    pub(crate) fn stage_event(&self, kind: EventType, payload: &impl Serialize) {
        self.stage(Event::new(kind, payload));
    }

    /// Makes everything staged durable, then publishes its events.
    pub(crate) async fn commit(&self, point: CommitPoint) -> Result<Written, StoreError> {
        match point {
            CommitPoint::Calls => crash::point("before_b"),
            CommitPoint::AwaitingApproval => crash::point("before_park"),
            CommitPoint::End => crash::point("before_d"),
            _ => {}
        }
        let staged = self.staged().take();
        let written = self.commit_staged(staged.unwrap_or_else(|| self.new_write())).await?;
        match point {
            CommitPoint::Calls => crash::point("after_b"),
            CommitPoint::Outcomes => crash::point("some_done"),
            CommitPoint::AwaitingApproval => crash::point("after_park"),
            CommitPoint::Takeover => crash::point("resumed"),
            CommitPoint::CaughtUp => crash::point("caught_up"),
            CommitPoint::End => crash::point("after_d"),
            CommitPoint::Retry
            | CommitPoint::Granted
            | CommitPoint::ProviderItem
            | CommitPoint::AbandonedAnswer
            | CommitPoint::Reservation
            | CommitPoint::Summary => {}
        }
        Ok(written)
    }

    /// Commit C beside the next model request: the request may leave before the outcomes are durable, but nothing of its answer is used
    /// before they are. The caller drops the answer when this fails.
    pub(crate) async fn commit_while<T>(&self, request: impl Future<Output = T>) -> Result<T, StoreError> {
        let staged = self.staged().take_if(|staged| staged.urgent);
        match staged {
            Some(staged) => {
                // Boxed: the commit is over long before the answer starts.
                let (committed, answer) = tokio::join!(Box::pin(self.commit_staged(staged)), request);
                committed.map(|_| answer)
            }
            None => Ok(request.await),
        }
    }

    async fn commit_staged(&self, staged: Staged) -> Result<Written, StoreError> {
        let Staged { mut write, sent, spans, .. } = staged;
        write.now = self.store.clock.now();
        let at = Some(write.now);
        write.outbox.extend(self.audience.rows_of(&write));
        let sends = !write.outbox.is_empty();
        let kinds: Vec<EventType> = write.events.iter().map(|event| event.kind).collect();
        let rows = write.events.iter().zip(sent);
        let sent: Vec<Arc<str>> = rows.map(|(row, sent)| sent.map_or_else(|| Arc::from(row.data.as_str()), Arc::from)).collect();
        let (retried, status) = (write.retries.len(), write.turn.as_ref().map(|turn| turn.status));
        let ends_lease = write.turn.as_ref().is_some_and(|turn| turn.status.is_terminal() || turn.status == TurnStatus::AwaitingApproval);
        write.release_reservations |= ends_lease && self.has_reserved();
        // A write that failed may have been stored all the same.
        let broadcast = &self.store.broadcast;
        let sent_at = timer::now();
        let written = self.write(write).await;
        let metrics = &self.store.metrics;
        metrics.committed(written.is_ok(), sent_at.elapsed());
        let written = written.inspect_err(|_| broadcast.resynchronize(self.stream_id))?;
        metrics.tried_again(Retried::Tool, retried);
        if let Some(status) = status {
            metrics.turn_ended(status, Some(self.running.since().elapsed()));
        }
        if ends_lease {
            self.running.lease().release();
        }
        if sends {
            self.store.outbox.wake();
        }
        spans.into_iter().for_each(EndedSpan::send);
        crash::point("before_publish");
        if written.cancel_requested {
            self.running.cancel();
        }
        for ((kind, data), seq) in kinds.into_iter().zip(sent).zip(&written.event_seqs) {
            broadcast.publish(self.stream_id, &LiveEvent { seq: Some(*seq), kind, turn_id: self.turn_id, data, at });
        }
        if ends_lease || !written.event_seqs.is_empty() {
            self.store.cluster.notify();
        }
        Ok(written)
    }

    /// Writes. A database that does not answer or is full is tried again while the turn has time; then recovery continues from the last
    /// commit.
    async fn write(&self, write: TurnWrite) -> Result<Written, StoreError> {
        if self.fence.get().is_none() {
            return Err(StoreError::Fenced);
        }
        let mut tried = 0;
        loop {
            tried += 1;
            let leased = self.running.lease().start_write();
            let written = self.store.turns.write(write.clone()).await;
            if written.is_ok() {
                leased.succeeded();
            }
            drop(leased);
            match written {
                Err(error) if error.is_retryable() && (tried < COMMIT_TRIES || !self.deadline.passed()) => {
                    self.store.metrics.tried_again(Retried::Commit, 1);
                    tracing::warn!(turn_id = %self.turn_id, tried, %error, "a commit of the turn failed; trying again");
                    tokio::time::sleep(COMMIT_PAUSE * tried.min(COMMIT_TRIES)).await;
                }
                settled => return settled,
            }
        }
    }

    /// Publishes a piece of the answer. It is not a row.
    pub(crate) fn publish_token(&self, token: &AssistantToken) {
        if let Some(fence) = self.fence.get() {
            self.store.broadcast.publish_token(fence, self.turn_id, token);
        }
    }

    /// Publishes an event that is not a row, if anybody receives it.
    pub(crate) fn publish_unstored(&self, kind: EventType, payload: &impl Serialize) {
        let broadcast = &self.store.broadcast;
        if broadcast.has_subscribers(self.stream_id) {
            let event = LiveEvent { seq: None, kind, turn_id: self.turn_id, data: Arc::from(json(payload)), at: None };
            broadcast.publish(self.stream_id, &event);
        }
    }

    /// Discards the text that is being written: see [`Broadcast::discard_text`].
    pub(crate) async fn discard_text(&self) {
        self.store.broadcast.discard_text(self.stream_id).await;
    }

    /// The turn waits for an approval: its own subscribers have received everything for now.
    pub(crate) fn disconnect_subscribers(&self) {
        self.store.broadcast.disconnect_turn(self.stream_id, self.turn_id);
    }

    /// Another process owns the turn: subscribers are served from the rows.
    pub(crate) fn abandon(&self) {
        self.store.broadcast.abandon(self.stream_id);
    }

    /// Gives the lease back without ending the turn.
    pub(crate) async fn release(&self) -> Result<(), StoreError> {
        let released = match self.fence.get() {
            Some(fence) => self.store.turns.release(fence.clone()).await,
            None => Ok(()),
        };
        self.running.lease().release();
        self.abandon();
        self.store.cluster.notify();
        released
    }
}
