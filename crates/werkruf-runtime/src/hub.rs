//! Live events on their way to whoever listens. Buffers are bounded: a reader that falls behind loses
//! its connection, never an event, because every numbered event is a row and can be read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use werkruf_contract::{AssistantToken, EventType, Uuid};

use crate::ground::json;

/// Tokens of a fast model while a client's socket is full for a moment; beyond that the client is gone.
const BUFFER: usize = 1024;

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
pub struct Watch {
    /// Only this turn; `None` hears the whole conversation.
    pub turn_id: Option<Uuid>,
    pub debug: bool,
}

/// The text of a step that is still being written: what somebody who joins now has missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub turn_id: Uuid,
    pub step: u32,
    pub content: String,
}

struct Reader {
    watch: Watch,
    sender: mpsc::Sender<LiveEvent>,
}

#[derive(Default)]
pub(crate) struct Hub {
    streams: Mutex<Streams>,
}

/// Under one lock, so that whoever joins gets the text so far and every token after it, none twice.
#[derive(Default)]
struct Streams {
    /// In order, so that letting them all go is the same twice.
    readers: BTreeMap<Uuid, Vec<Reader>>,
    shown: HashMap<Uuid, Shown>,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to a conversation (or a turn without one) from now on; also the text that is being written right now.
    pub(crate) fn watch(&self, stream_id: Uuid, watch: Watch) -> (mpsc::Receiver<LiveEvent>, Option<Shown>) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let mut streams = self.lock();
        let readers = streams.readers.entry(stream_id).or_default();
        readers.retain(|reader| !reader.sender.is_closed());
        readers.push(Reader { watch, sender });
        (receiver, streams.shown.get(&stream_id).cloned())
    }

    /// Hands an event to everybody who wants it, and forgets readers that left or fell behind.
    pub(crate) fn publish(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut streams = self.lock();
        if event.kind.settles_text() {
            streams.shown.remove(&stream_id);
        }
        streams.hand_out(stream_id, event);
    }

    /// A piece of text: heard by those who listen, kept for those who join before the step ends.
    pub(crate) fn publish_token(&self, stream_id: Uuid, turn_id: Uuid, token: &AssistantToken) {
        let mut streams = self.lock();
        let shown = streams.shown.entry(stream_id).or_insert_with(|| Shown { turn_id, step: token.step, content: String::new() });
        if (shown.turn_id, shown.step) != (turn_id, token.step) {
            *shown = Shown { turn_id, step: token.step, content: String::new() };
        }
        shown.content.push_str(&token.content);
        if streams.readers.contains_key(&stream_id) {
            let data = Arc::from(json(token));
            streams.hand_out(stream_id, &LiveEvent { seq: None, kind: EventType::AssistantToken, turn_id, data });
        }
    }

    /// The turn goes on later: those who only hear this turn have heard what there is for now.
    pub(crate) fn part(&self, stream_id: Uuid, turn_id: Uuid) {
        let mut streams = self.lock();
        if let Some(readers) = streams.readers.get_mut(&stream_id) {
            readers.retain(|reader| reader.watch.turn_id != Some(turn_id));
        }
    }

    /// Whether anybody listens; saves building events nobody hears.
    pub(crate) fn is_watched(&self, stream_id: Uuid) -> bool {
        self.lock().readers.contains_key(&stream_id)
    }

    /// Forgets readers that left while nothing was said.
    pub(crate) fn sweep(&self) {
        self.lock().readers.retain(|_, readers| {
            readers.retain(|reader| !reader.sender.is_closed());
            !readers.is_empty()
        });
    }

    /// Something may have been stored that nobody was told: whoever listens must come back and read the rows.
    pub(crate) fn let_go(&self, stream_id: Uuid) {
        self.lock().readers.remove(&stream_id);
    }

    /// Ends every reader's stream.
    pub(crate) fn close(&self) {
        self.lock().readers.clear();
    }
}

impl Streams {
    fn hand_out(&mut self, stream_id: Uuid, event: &LiveEvent) {
        let Some(readers) = self.readers.get_mut(&stream_id) else { return };
        readers.retain(|reader| {
            if reader.watch.turn_id.is_some_and(|wanted| wanted != event.turn_id) || (event.kind == EventType::Debug && !reader.watch.debug)
            {
                return !reader.sender.is_closed();
            }
            let delivered = reader.sender.try_send(event.clone()).is_ok();
            // A reader of one turn has heard everything once the turn has ended.
            delivered && !(event.kind.ends_turn() && reader.watch.turn_id.is_some())
        });
        if readers.is_empty() {
            self.readers.remove(&stream_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use werkruf_contract::{AssistantToken, EventType, Uuid};

    use super::{Hub, LiveEvent, Shown, Watch};

    #[test]
    fn who_joins_late_gets_the_text_so_far_and_then_only_what_follows() {
        let (hub, stream, turn) = (Hub::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let token = |content: &str| AssistantToken { content: content.to_owned(), step: 1 };
        hub.publish_token(stream, turn, &token("Hel"));
        let (mut events, shown) = hub.watch(stream, Watch { turn_id: None, debug: false });
        assert_eq!(shown, Some(Shown { turn_id: turn, step: 1, content: "Hel".to_owned() }));
        hub.publish_token(stream, turn, &token("lo"));
        assert_eq!(&*events.try_recv().unwrap().data, r#"{"content":"lo","step":1}"#);
        hub.publish(stream, &LiveEvent { seq: Some(1), kind: EventType::Final, turn_id: turn, data: Arc::from("{}") });
        assert_eq!(hub.watch(stream, Watch { turn_id: None, debug: false }).1, None);
    }

    #[test]
    fn who_may_have_missed_something_is_let_go() {
        let (hub, stream, turn) = (Hub::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let (mut whole, _) = hub.watch(stream, Watch { turn_id: None, debug: false });
        let (mut one, _) = hub.watch(stream, Watch { turn_id: Some(turn), debug: false });
        let (mut other, _) = hub.watch(Uuid::from_u128(3), Watch { turn_id: None, debug: false });
        hub.let_go(stream);
        assert!(whole.blocking_recv().is_none() && one.blocking_recv().is_none());
        assert!(other.try_recv().is_err_and(|error| error == tokio::sync::mpsc::error::TryRecvError::Empty));
    }

    #[test]
    fn a_reader_that_does_not_read_is_let_go() {
        let (hub, stream, turn) = (Hub::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let (events, _) = hub.watch(stream, Watch { turn_id: None, debug: false });
        for _ in 0..=super::BUFFER {
            hub.publish_token(stream, turn, &AssistantToken { content: "x".to_owned(), step: 1 });
        }
        assert!(!hub.is_watched(stream));
        drop(events);
    }
}
