//! A process as the outside sees it: it runs, it is stopped for a while, or it is gone. Whatever it wants of the store, the
//! model or a tool goes through its gate; behind a closed one its tasks hang for ever, as those of a killed process do.

use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::Notify;
use werkruf_contract::Cancel;

pub struct Process {
    pub name: String,
    pub dead: Cancel,
    /// While stopped: what lets it go on.
    stopped: Mutex<Option<Cancel>>,
    pub was_stopped: Cancel,
    /// How it is named in leases.
    pub owner: OnceLock<String>,
    /// Rung by the others.
    pub bell: Notify,
}

impl Process {
    pub fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            name: format!("proc{number}"),
            dead: Cancel::default(),
            stopped: Mutex::new(None),
            was_stopped: Cancel::default(),
            owner: OnceLock::new(),
            bell: Notify::new(),
        })
    }

    /// Passes while the process runs, waits while it is stopped, and never comes back once it is dead.
    pub async fn gate(&self) {
        loop {
            if self.dead.is_raised() {
                std::future::pending::<()>().await;
            }
            let stopped = self.stopped.lock().unwrap().clone();
            let Some(go_on) = stopped else { return };
            go_on.raised().await;
        }
    }

    /// SIGKILL. A stopped process dies too; nobody behind its gate ever wakes.
    pub fn kill(&self) {
        self.dead.raise();
        self.cont();
    }

    /// SIGSTOP.
    pub fn stop(&self) {
        self.was_stopped.raise();
        self.stopped.lock().unwrap().get_or_insert_default();
    }

    /// SIGCONT.
    pub fn cont(&self) {
        let stopped = self.stopped.lock().unwrap().take();
        if let Some(go_on) = stopped {
            go_on.raise();
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.lock().unwrap().is_some()
    }

    pub fn is_dead(&self) -> bool {
        self.dead.is_raised()
    }
}
