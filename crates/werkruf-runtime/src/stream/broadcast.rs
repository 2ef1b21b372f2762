//! Hands events of running turns to their subscribers. Buffers are bounded: a subscriber that does not read loses its connection, never
//! an event, because every numbered event is a row and can be read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify};
use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{Fence, NewPartial, StreamKey};

use super::cursor::{Cursor, Delivery};
use super::event::{LiveEvent, PartialAnswer, StepText, SubscribeOptions};
use super::subscriber::{QueueWriter, Subscription};

/// Ticks before a text is saved first, and between two saves: a short turn is never saved.
pub(super) const TICKS: u32 = 2;

pub(super) struct Subscriber {
    pub(super) options: SubscribeOptions,
    /// The turn was at work, or wrote a row after `init`, since it joined. When the turn then waits for an approval, the subscription is over. One who
    /// joined while the turn waits stays until the decision.
    pub(super) saw_work: bool,
    /// It received the saved text that the cursor's mark names.
    pub(super) has_saved: bool,
    queue: QueueWriter,
}

/// The subscribers of a stream.
pub(super) struct Audience {
    pub(super) subscribers: Vec<Subscriber>,
    /// Only where several processes share a database.
    pub(super) cursor: Option<Cursor>,
}

/// A text that is being written, and how much of it is saved.
pub(super) struct LiveText {
    pub(super) text: Arc<StepText>,
    fence: Fence,
    ticks: u32,
    saved_bytes: usize,
}

#[derive(Default)]
pub(crate) struct Broadcast {
    streams: Mutex<StreamTable>,
    checkpoint: AsyncMutex<()>,
    /// Other processes write to the same streams.
    shared: bool,
    /// A stream has rows that its subscribers have not received.
    behind: Notify,
}

/// Under one lock, so that a new subscriber gets the text so far and every token after it, none twice.
#[derive(Default)]
pub(super) struct StreamTable {
    /// Sorted, so that a seeded test sees the same order twice.
    pub(super) audiences: BTreeMap<Uuid, Audience>,
    pub(super) texts: HashMap<Uuid, LiveText>,
    closed: bool,
}

impl Broadcast {
    /// `shared`: other processes write to the same streams, so subscribers are served in the order of the rows.
    pub(crate) fn new(shared: bool) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StreamTable> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when subscribers of some stream are behind.
    pub(super) async fn behind(&self) {
        self.behind.notified().await;
    }

    /// Subscribes to a conversation (or to a turn without one) from now on; also returns the text that is being written right now.
    pub(crate) fn subscribe(&self, stream: StreamKey, options: SubscribeOptions) -> (Subscription, Option<PartialAnswer>) {
        let stream_id = stream.stream_id;
        let queue = QueueWriter::default();
        let subscription = queue.subscription();
        let mut streams = self.lock();
        if !streams.closed {
            let new = || Audience { subscribers: Vec::new(), cursor: self.shared.then(|| Cursor::new(stream.tenant_id, options.after)) };
            let audience = streams.audiences.entry(stream_id).or_insert_with(new);
            audience.remove_closed();
            // The saved text that the subscriber knows may be older than what the others got: it gets it again.
            audience.subscribers.push(Subscriber { options, saw_work: false, has_saved: false, queue });
            if audience.cursor.as_mut().is_some_and(|cursor| cursor.rewind(options.after)) {
                self.behind.notify_one();
            }
        }
        (subscription, streams.texts.get(&stream_id).map(|live| live.text.answer()))
    }

    /// Sends an event to every subscriber that wants it, and drops subscribers that left or did not read.
    pub(crate) fn publish(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut streams = self.lock();
        if event.kind.settles_text() {
            streams.settle_text(stream_id);
        }
        self.deliver(&mut streams, stream_id, event);
    }

    /// Publishes the end of a turn that never started. Another turn of the stream may be writing text; this event does not settle it.
    pub(crate) fn publish_unstarted(&self, stream_id: Uuid, event: &LiveEvent) {
        self.deliver(&mut self.lock(), stream_id, event);
    }

    /// Sends an event, unless rows before it were not delivered yet: then those come first, and this event with them.
    fn deliver(&self, streams: &mut StreamTable, stream_id: Uuid, event: &LiveEvent) {
        match streams.cursor(stream_id).map_or(Delivery::Now, |cursor| cursor.deliver(event.seq)) {
            Delivery::Now => streams.send(stream_id, event),
            Delivery::Later => self.behind.notify_one(),
            Delivery::Never => {}
        }
    }

    /// Publishes a piece of text, and keeps it for subscribers that join before the step ends.
    pub(crate) fn publish_token(&self, fence: &Fence, turn_id: Uuid, token: &AssistantToken) {
        let stream_id = fence.stream_id;
        let mut streams = self.lock();
        let new = || LiveText { text: Arc::new(StepText::new(turn_id, token.step)), fence: fence.clone(), ticks: 0, saved_bytes: 0 };
        let live = streams.texts.entry(stream_id).or_insert_with(new);
        if (live.text.turn_id, live.text.step, live.fence.epoch) != (turn_id, token.step, fence.epoch) {
            *live = new();
        }
        let text = Arc::clone(&live.text);
        let (from, to) = text.append(&token.content);
        if from == to {
            return;
        }
        // Subscribers that are behind get the whole text when they have caught up.
        if let Some(audience) = streams.audiences.get_mut(&stream_id).filter(|audience| !audience.is_behind()) {
            audience.subscribers.retain(|subscriber| subscriber.take_text(&text, from, to));
            streams.remove_empty(stream_id);
        }
    }

    /// The turn waits for an approval: its own subscribers have received everything for now.
    pub(crate) fn disconnect_turn(&self, stream_id: Uuid, turn_id: Uuid) {
        let mut streams = self.lock();
        // Subscribers that are behind are disconnected after they have caught up.
        if let Some(audience) = streams.audiences.get_mut(&stream_id).filter(|audience| !audience.is_behind()) {
            audience.subscribers.retain(|subscriber| subscriber.options.turn_id != Some(turn_id));
        }
    }

    /// The texts that are to be saved now. Called once per tick.
    pub(super) fn due_for_checkpoint(&self) -> Vec<NewPartial> {
        let mut due = Vec::new();
        for live in self.lock().texts.values_mut() {
            live.ticks += 1;
            if live.ticks < TICKS || live.saved_bytes == live.text.bytes() {
                continue;
            }
            let PartialAnswer { turn_id, step, content } = live.text.answer();
            (live.ticks, live.saved_bytes) = (0, content.len());
            due.push(NewPartial { fence: live.fence.clone(), turn_id, step, content });
        }
        due
    }

    /// The store did not take the texts; all of them are due again.
    pub(super) fn checkpoint_failed(&self) {
        for text in self.lock().texts.values_mut() {
            text.saved_bytes = 0;
        }
    }

    /// Held from choosing the texts to save until they are written.
    pub(super) async fn lock_checkpoint(&self) -> AsyncMutexGuard<'_, ()> {
        self.checkpoint.lock().await
    }

    /// Drops the text of a stream, because the answer is abandoned: nothing of the text is saved after this resolves.
    pub(crate) async fn discard_text(&self, stream_id: Uuid) {
        self.lock().texts.remove(&stream_id);
        // A checkpoint in progress is in the store after this, where the write that follows clears it.
        drop(self.checkpoint.lock().await);
    }

    /// Whether the stream has subscribers; saves building events that nobody receives.
    pub(crate) fn has_subscribers(&self, stream_id: Uuid) -> bool {
        self.lock().audiences.contains_key(&stream_id)
    }

    /// Whether a subscriber of this process gets the events of a turn.
    pub(super) fn is_read(&self, stream_id: Uuid, turn_id: Uuid) -> bool {
        let mut streams = self.lock();
        let Some(audience) = streams.audiences.get_mut(&stream_id) else { return false };
        audience.remove_closed();
        audience.subscribers.iter().any(|subscriber| !subscriber.wants_other_turn(turn_id))
    }

    /// Forgets subscribers that left while nothing was published.
    pub(crate) fn remove_closed(&self) {
        self.lock().audiences.retain(|_, audience| {
            audience.remove_closed();
            !audience.subscribers.is_empty()
        });
    }

    /// A write failed that may have been stored all the same: subscribers must reconnect and read the rows, or are served from them.
    pub(crate) fn resynchronize(&self, stream_id: Uuid) {
        if self.shared {
            return self.abandon(stream_id);
        }
        self.lock().audiences.remove(&stream_id);
    }

    /// The end of a turn that never started may be stored or not. As `resynchronize`, but another turn of the stream may be writing text, which stays.
    pub(crate) fn resynchronize_unstarted(&self, stream_id: Uuid, turn_id: Uuid) {
        let mut streams = self.lock();
        if let Some(cursor) = streams.cursor(stream_id) {
            cursor.behind = true;
            self.behind.notify_one();
        } else if let Some(audience) = streams.audiences.get_mut(&stream_id) {
            audience.subscribers.retain(|subscriber| subscriber.wants_other_turn(turn_id));
            streams.remove_empty(stream_id);
        }
    }

    /// A turn stops here and continues elsewhere: its text is void, and its subscribers are served from the rows.
    pub(crate) fn abandon(&self, stream_id: Uuid) {
        if !self.shared {
            return;
        }
        let mut streams = self.lock();
        // The next owner may not know that text was sent, and then writes no event about it.
        streams.settle_text(stream_id);
        if let Some(cursor) = streams.cursor(stream_id) {
            cursor.behind = true;
            self.behind.notify_one();
        }
    }

    /// Ends every subscription, also of subscribers that come later.
    pub(crate) fn close(&self) {
        let mut streams = self.lock();
        streams.audiences.clear();
        streams.closed = true;
    }
}

impl Audience {
    /// Whether its subscribers have not received everything.
    fn is_behind(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.behind)
    }

    pub(super) fn remove_closed(&mut self) {
        self.subscribers.retain(|subscriber| !subscriber.queue.is_closed());
    }
}

impl StreamTable {
    pub(super) fn cursor(&mut self, stream_id: Uuid) -> Option<&mut Cursor> {
        self.audiences.get_mut(&stream_id)?.cursor.as_mut()
    }

    /// Ends the text of a stream. Subscribers that are behind have not received all of it: their cursor remembers the step.
    fn settle_text(&mut self, stream_id: Uuid) {
        let partial = self.texts.remove(&stream_id).map(|live| live.text.without_text());
        if let Some(cursor) = self.cursor(stream_id) {
            cursor.note_unsettled(partial);
        }
    }

    pub(super) fn send(&mut self, stream_id: Uuid, event: &LiveEvent) {
        let Some(audience) = self.audiences.get_mut(&stream_id) else { return };
        if let Some(cursor) = audience.cursor.as_mut().filter(|_| event.seq.is_some() && event.kind.settles_text()) {
            // The same text may be written and saved again.
            cursor.partial_mark = None;
        }
        let (subscribers, shared) = (&mut audience.subscribers, audience.cursor.is_some());
        subscribers.retain_mut(|subscriber| subscriber.take(event, shared));
        self.remove_empty(stream_id);
    }

    pub(super) fn remove_empty(&mut self, stream_id: Uuid) {
        if self.audiences.get(&stream_id).is_some_and(|audience| audience.subscribers.is_empty()) {
            self.audiences.remove(&stream_id);
        }
    }
}

impl Subscriber {
    /// Queues an event if the subscriber wants it. False when the subscription is over.
    pub(super) fn take(&mut self, event: &LiveEvent, shared: bool) -> bool {
        if let Some(seq) = event.seq.filter(|_| shared) {
            // Delivered again for subscribers that joined later.
            if seq <= self.options.after {
                return !self.queue.is_closed();
            }
            self.options.after = seq;
        }
        if self.wants_other_turn(event.turn_id) || (event.kind == EventType::Debug && !self.options.debug) {
            return !self.queue.is_closed();
        }
        self.saw_work |= event.seq.is_some() && event.kind != EventType::Init;
        // A subscriber of one turn has received everything once the turn has ended.
        self.queue.push(event) && !(event.kind.ends_turn() && self.options.turn_id.is_some())
    }

    /// Queues the bytes of a text in this range. False when the subscription is over.
    fn take_text(&self, text: &Arc<StepText>, from: usize, to: usize) -> bool {
        if self.wants_other_turn(text.turn_id) { !self.queue.is_closed() } else { self.queue.push_text(text, from, to) }
    }

    fn wants_other_turn(&self, turn_id: Uuid) -> bool {
        self.options.turn_id.is_some_and(|wanted| wanted != turn_id)
    }
}

#[cfg(test)]
#[path = "broadcast_tests.rs"]
mod tests;
