//! Live events on their way to whoever listens. Buffers are bounded: a reader that falls behind loses
//! its connection, never an event, because every numbered event is a row and can be read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turnstile, MutexGuard as Passage, Notify, mpsc};
use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{Fence, NewPartial, StreamKey};

use crate::course::{Course, Telling};
use crate::feed::{Subscription, Weight};
use crate::ground::json;

/// Tokens of a fast model while a client's socket is full for a moment; beyond that the client is gone.
const EVENTS: usize = 1024;
/// Bytes that may wait for one reader beside the first event, so that 200 of them cost 25 MiB and not gigabytes.
const WEIGHT: usize = 128 * 1024;
/// Looks at a text before it is kept, and between two times it is: a short turn has none at all.
pub(crate) const TICKS: u32 = 2;

/// One event as it is sent. The text is shared by all readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// `None` for tokens, debug and resumed snapshots: they are no rows.
    pub seq: Option<i64>,
    pub kind: EventType,
    pub turn_id: Uuid,
    /// JSON.
    pub data: Arc<str>,
}

/// What a reader wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Only this turn; `None` hears the whole conversation.
    pub turn_id: Option<Uuid>,
    pub debug: bool,
    /// The last number the reader has. Where several processes share a database it hears everything after it.
    pub after: i64,
}

/// The text of a step that is still being written: what somebody who joins now has missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialAnswer {
    pub turn_id: Uuid,
    pub step: u32,
    pub content: String,
}

pub(crate) struct Reader {
    pub(crate) watch: SubscribeOptions,
    pub(crate) sender: mpsc::Sender<LiveEvent>,
    weight: Weight,
}

/// Who listens to a stream, and how far they were told of it.
pub(crate) struct Audience {
    pub(crate) readers: Vec<Reader>,
    /// Where several processes share a database.
    pub(crate) course: Option<Course>,
}

/// A text under way, and how much of it is kept.
pub(crate) struct Writing {
    pub(crate) shown: PartialAnswer,
    fence: Fence,
    ticks: u32,
    kept: usize,
}

#[derive(Default)]
pub(crate) struct Hub {
    streams: Mutex<Streams>,
    keeping: Turnstile<()>,
    /// Other processes write to the same streams.
    shared: bool,
    /// A stream has more rows than its readers were told.
    pub(crate) behind: Notify,
}

/// Under one lock, so that whoever joins gets the text so far and every token after it, none twice.
#[derive(Default)]
pub(crate) struct Streams {
    /// In order, so that letting them all go is the same twice.
    pub(crate) readers: BTreeMap<Uuid, Audience>,
    pub(crate) writing: HashMap<Uuid, Writing>,
    closed: bool,
}

impl Hub {
    /// Where others write to the same streams, readers are told in the order of the rows.
    pub(crate) fn new(shared: bool) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to a conversation (or a turn without one) from now on; also the text that is being written right now.
    pub(crate) fn watch(&self, stream: StreamKey, watch: SubscribeOptions) -> (Subscription, Option<PartialAnswer>) {
        let stream_id = stream.stream_id;
        let (sender, receiver) = mpsc::channel(EVENTS);
        let weight = Weight::default();
        let mut streams = self.lock();
        if !streams.closed {
            let begin = || Audience { readers: Vec::new(), course: self.shared.then(|| Course::new(stream.tenant_id, watch.after)) };
            let audience = streams.readers.entry(stream_id).or_insert_with(begin);
            audience.readers.retain(|reader| !reader.sender.is_closed());
            audience.readers.push(Reader { watch, sender, weight: weight.clone() });
            if audience.course.as_mut().is_some_and(|course| course.go_back(watch.after)) {
                self.behind.notify_one();
            }
        }
        (Subscription::new(receiver, weight), streams.writing.get(&stream_id).map(|writing| writing.shown.clone()))
    }

    /// Hands an event to everybody who wants it, and forgets readers that left or fell behind.
    pub(crate) fn publish(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut streams = self.lock();
        if event.kind.settles_text() {
            let shown = streams.writing.remove(&stream_id).map(|writing| writing.shown);
            if let Some(course) = streams.readers.get_mut(&stream_id).and_then(|audience| audience.course.as_mut()) {
                // Readers that are behind have not heard all of it; one that is not is told all there is right here.
                course.leaves_off(shown.map(|shown| PartialAnswer { content: String::new(), ..shown }));
            }
        }
        self.tell(&mut streams, stream_id, event);
    }

    /// Hands it out, unless rows before it were not told yet: then those come first, and this one with them.
    fn tell(&self, streams: &mut Streams, stream_id: Uuid, event: &LiveEvent) {
        let course = streams.readers.get_mut(&stream_id).and_then(|audience| audience.course.as_mut());
        match course.map_or(Telling::Now, |course| course.comes(event.seq)) {
            Telling::Now => streams.hand_out(stream_id, event),
            Telling::Later => self.behind.notify_one(),
            Telling::Never => {}
        }
    }

    /// The end of a turn that never began. Another one may be writing just then: its text is not settled by this.
    pub(crate) fn publish_beside(&self, stream_id: Uuid, event: &LiveEvent) {
        self.tell(&mut self.lock(), stream_id, event);
    }

    /// A piece of text: heard by those who listen, kept for those who join before the step ends.
    pub(crate) fn publish_token(&self, fence: &Fence, turn_id: Uuid, token: &AssistantToken) {
        let stream_id = fence.stream_id;
        let mut streams = self.lock();
        let begin = || Writing {
            shown: PartialAnswer { turn_id, step: token.step, content: String::new() },
            fence: fence.clone(),
            ticks: 0,
            kept: 0,
        };
        let writing = streams.writing.entry(stream_id).or_insert_with(begin);
        if (writing.shown.turn_id, writing.shown.step, writing.fence.epoch) != (turn_id, token.step, fence.epoch) {
            *writing = begin();
        }
        writing.shown.content.push_str(&token.content);
        if streams.readers.contains_key(&stream_id) {
            let data = Arc::from(json(token));
            self.tell(&mut streams, stream_id, &LiveEvent { seq: None, kind: EventType::AssistantToken, turn_id, data });
        }
    }

    /// The turn goes on later: those who only hear this turn have heard what there is for now.
    pub(crate) fn part(&self, stream_id: Uuid, turn_id: Uuid) {
        let mut streams = self.lock();
        // Those who were not told everything yet are let go when they were.
        if let Some(audience) = streams.readers.get_mut(&stream_id).filter(|audience| !audience.is_behind()) {
            audience.readers.retain(|reader| reader.watch.turn_id != Some(turn_id));
        }
    }

    /// The texts that are to be kept now. Asked once per tick.
    pub(crate) fn due(&self) -> Vec<NewPartial> {
        let mut due = Vec::new();
        for writing in self.lock().writing.values_mut() {
            writing.ticks += 1;
            if writing.ticks < TICKS || writing.kept == writing.shown.content.len() {
                continue;
            }
            (writing.ticks, writing.kept) = (0, writing.shown.content.len());
            let PartialAnswer { turn_id, step, ref content } = writing.shown;
            due.push(NewPartial { fence: writing.fence.clone(), turn_id, step, content: content.clone() });
        }
        due
    }

    /// The store did not take them.
    pub(crate) fn due_again(&self) {
        for writing in self.lock().writing.values_mut() {
            writing.kept = 0;
        }
    }

    /// Held from looking what is due until it is written.
    pub(crate) async fn keep(&self) -> Passage<'_, ()> {
        self.keeping.lock().await
    }

    /// The text of a stream is about to be taken back: from here on nothing of it is written any more.
    pub(crate) async fn take_back(&self, stream_id: Uuid) {
        self.lock().writing.remove(&stream_id);
        // What was due before is in the store by now, where the write that follows clears it.
        drop(self.keeping.lock().await);
    }

    /// Whether anybody listens; saves building events nobody hears.
    pub(crate) fn is_watched(&self, stream_id: Uuid) -> bool {
        self.lock().readers.contains_key(&stream_id)
    }

    /// Forgets readers that left while nothing was said.
    pub(crate) fn sweep(&self) {
        self.lock().readers.retain(|_, audience| {
            audience.readers.retain(|reader| !reader.sender.is_closed());
            !audience.readers.is_empty()
        });
    }

    /// Something may have been stored that nobody was told: whoever listens must come back and read the rows, or is told from them.
    pub(crate) fn let_go(&self, stream_id: Uuid) {
        if self.shared {
            return self.forsake(stream_id);
        }
        self.lock().readers.remove(&stream_id);
    }

    /// A turn stops here and goes on elsewhere: its text is void, and its readers are told from the rows.
    pub(crate) fn forsake(&self, stream_id: Uuid) {
        if !self.shared {
            return;
        }
        let mut streams = self.lock();
        let shown = streams.writing.remove(&stream_id).map(|writing| writing.shown);
        if let Some(course) = streams.readers.get_mut(&stream_id).and_then(|audience| audience.course.as_mut()) {
            // Whoever goes on with the turn may not know that anything was shown, and then says nothing of it.
            course.leaves_off(shown.map(|shown| PartialAnswer { content: String::new(), ..shown }));
            course.fall_behind();
            self.behind.notify_one();
        }
    }

    /// Ends every reader's stream, also of those who come later.
    pub(crate) fn close(&self) {
        let mut streams = self.lock();
        streams.readers.clear();
        streams.closed = true;
    }
}

impl Audience {
    /// Whether its readers have not been told all there is.
    pub(crate) fn is_behind(&self) -> bool {
        self.course.as_ref().is_some_and(Course::is_behind)
    }
}

impl Streams {
    pub(crate) fn hand_out(&mut self, stream_id: Uuid, event: &LiveEvent) {
        let Some(audience) = self.readers.get_mut(&stream_id) else { return };
        let (readers, shared) = (&mut audience.readers, audience.course.is_some());
        readers.retain_mut(|reader| {
            // Told again for others who came later.
            if let Some(seq) = event.seq.filter(|_| shared) {
                if seq <= reader.watch.after {
                    return !reader.sender.is_closed();
                }
                reader.watch.after = seq;
            }
            if reader.watch.turn_id.is_some_and(|wanted| wanted != event.turn_id) || (event.kind == EventType::Debug && !reader.watch.debug)
            {
                return !reader.sender.is_closed();
            }
            // The end of a turn is never too much: a reader that has kept up must not lose it for its size.
            let most = if event.kind.ends_turn() { usize::MAX } else { WEIGHT };
            let delivered = reader.weight.add(event, most) && reader.sender.try_send(event.clone()).is_ok();
            // A reader of one turn has heard everything once the turn has ended.
            delivered && !(event.kind.ends_turn() && reader.watch.turn_id.is_some())
        });
        if readers.is_empty() {
            self.readers.remove(&stream_id);
        }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
