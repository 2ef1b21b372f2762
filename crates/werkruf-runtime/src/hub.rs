//! Live events on their way to whoever listens. Buffers are bounded: a reader that falls behind loses
//! its connection, never an event, because every numbered event is a row and can be read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use werkruf_contract::{EventType, Uuid};

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

struct Reader {
    watch: Watch,
    sender: mpsc::Sender<LiveEvent>,
}

#[derive(Default)]
pub(crate) struct Hub {
    readers: Mutex<HashMap<Uuid, Vec<Reader>>>,
}

impl Hub {
    /// Listens to a conversation (or a turn without one) from now on.
    pub(crate) fn watch(&self, stream_id: Uuid, watch: Watch) -> mpsc::Receiver<LiveEvent> {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.entry(stream_id).or_default().push(Reader { watch, sender });
        receiver
    }

    /// Hands an event to everybody who wants it, and forgets readers that left or fell behind.
    pub(crate) fn publish(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut all = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(readers) = all.get_mut(&stream_id) else { return };
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
            all.remove(&stream_id);
        }
    }

    /// Whether anybody listens; saves building events nobody hears.
    pub(crate) fn is_watched(&self, stream_id: Uuid) -> bool {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&stream_id)
    }

    /// Ends every reader's stream.
    pub(crate) fn close(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
