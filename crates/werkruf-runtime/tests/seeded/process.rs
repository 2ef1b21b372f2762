//! A simulated process: it runs, is stopped, or is dead. Each access to the store, the model or a tool first passes its gate.
//! The tasks of a dead process wait at the gate forever.

use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::Notify;
use werkruf_contract::Cancel;

pub struct Process {
    pub name: String,
    pub dead: Cancel,
    /// Set while the process is stopped; raised by SIGCONT.
    stopped: Mutex<Option<Cancel>>,
    pub was_stopped: Cancel,
    /// The owner name in leases.
    pub owner: OnceLock<String>,
    /// Notified by other processes.
    pub notification: Notify,
}

impl Process {
    pub fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            name: format!("proc{number}"),
            dead: Cancel::default(),
            stopped: Mutex::new(None),
            was_stopped: Cancel::default(),
            owner: OnceLock::new(),
            notification: Notify::new(),
        })
    }

    /// Returns while the process runs, waits while it is stopped, and never returns once it is dead.
    pub async fn gate(&self) {
        loop {
            if self.dead.is_raised() {
                std::future::pending::<()>().await;
            }
            let stopped = self.stopped.lock().unwrap().clone();
            let Some(continued) = stopped else { return };
            continued.raised().await;
        }
    }

    /// SIGKILL. A stopped process dies too; no task at its gate ever continues.
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
        if let Some(continued) = stopped {
            continued.raise();
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.lock().unwrap().is_some()
    }

    pub fn is_dead(&self) -> bool {
        self.dead.is_raised()
    }
}
