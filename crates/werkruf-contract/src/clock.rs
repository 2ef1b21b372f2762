//! The one place that reads the wall clock and makes ids.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use uuid::{ContextV7, Uuid};

/// The clock everything is told by. `WERKRUF_CLOCK_OFFSET_S` moves it; tests may set it.
#[derive(Clone)]
pub struct Clock {
    offset: SignedDuration,
    ids: Arc<Mutex<ContextV7>>,
}

impl Clock {
    /// The system's clock, moved by so many seconds.
    pub fn system(offset_seconds: i64) -> Self {
        Self { offset: SignedDuration::from_secs(offset_seconds), ids: Arc::new(Mutex::new(ContextV7::new())) }
    }

    /// Now, to the millisecond, which is what the tables keep.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        let moved = now.checked_add(self.offset).unwrap_or(now);
        Timestamp::from_millisecond(moved.as_millisecond()).unwrap_or(moved)
    }

    /// A new id that sorts after every id this clock made before.
    pub fn new_id(&self) -> Uuid {
        let now = self.now();
        let context = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
        Uuid::new_v7(uuid::Timestamp::from_unix(&*context, seconds, nanos))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("offset", &self.offset).finish_non_exhaustive()
    }
}
