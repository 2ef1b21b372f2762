//! What a running call reports about itself: an event that is no row, and a report to whoever called the tool directly.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use werkruf_contract::{Deadline, EventType, Progress, ToolProgress, Uuid};

use super::scope::TurnScope;
use crate::timer;

/// Reports that come sooner after the one before are dropped, so that a tool cannot flood its subscribers.
const PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a message.
const MAX_MESSAGE: usize = 1000;

/// The progress of one attempt of a call.
pub(super) struct CallProgress {
    scope: Arc<TurnScope>,
    tool: String,
    job_id: Uuid,
    last: Mutex<Option<LastReport>>,
}

struct LastReport {
    done: f64,
    /// When the next report may come.
    next: Deadline,
}

impl CallProgress {
    pub(super) fn new(scope: &Arc<TurnScope>, tool: &str, job_id: Uuid) -> Self {
        Self { scope: Arc::clone(scope), tool: tool.to_owned(), job_id, last: Mutex::default() }
    }

    /// Whether the report is sent. A call that says less than before, or nothing new, is not heard.
    fn admits(&self, done: f64, total: Option<f64>) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let grows = last.as_ref().is_none_or(|last| done > last.done);
        let is_end = total == Some(done);
        let admitted = done.is_finite() && grows && (is_end || last.as_ref().is_none_or(|last| timer::left(last.next).is_zero()));
        if admitted {
            *last = Some(LastReport { done, next: timer::after(PAUSE) });
        }
        admitted
    }
}

impl Progress for CallProgress {
    fn report(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        if !self.admits(done, total) {
            return;
        }
        let message = message.map(|text| self.scope.setup.redaction.beginning(text, MAX_MESSAGE));
        if let Some(observer) = &self.scope.observer {
            observer.report(done, total, message.as_deref());
        }
        let event = ToolProgress { tool: self.tool.clone(), job_id: self.job_id, progress: done, total, message };
        self.scope.journal.publish_unstored(EventType::ToolProgress, &event);
    }
}

impl std::fmt::Debug for CallProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallProgress").field("job_id", &self.job_id).finish_non_exhaustive()
    }
}
