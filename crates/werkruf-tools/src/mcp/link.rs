//! The state of the connection to one server, as calls and lists see it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::Peer;
use tokio::sync::{Semaphore, watch};

use super::personal::PersonalServer;

/// How long a call waits for a connection that is being opened.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Whether the server answers.
#[derive(Clone, Default)]
pub(super) enum Connection {
    #[default]
    Connecting,
    Up(Peer<RoleClient>),
    /// Why it does not.
    Down(String),
    /// Each person has an account at the server, and nobody has connected one.
    Absent,
}

/// What the calls of a server share.
pub(super) struct Link {
    connection: watch::Sender<Connection>,
    /// The digests of the tools that may be called, by name.
    offered: Mutex<Arc<BTreeMap<String, String>>>,
    slots: Semaphore,
    /// The connections of single people, where they have accounts at the server.
    personal: Option<Arc<PersonalServer>>,
}

impl Link {
    pub(super) fn new(concurrency: usize, personal: Option<Arc<PersonalServer>>) -> Self {
        Self {
            connection: watch::Sender::default(),
            offered: Mutex::default(),
            slots: Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS)),
            personal,
        }
    }

    pub(super) fn set(&self, connection: Connection) {
        self.connection.send_replace(connection);
    }

    pub(super) fn connection(&self) -> Connection {
        self.connection.borrow().clone()
    }

    pub(super) const fn personal(&self) -> Option<&Arc<PersonalServer>> {
        self.personal.as_ref()
    }

    pub(super) const fn slots(&self) -> &Semaphore {
        &self.slots
    }

    /// The connection, as soon as there is one; `None` if there is none for a while.
    pub(super) async fn peer(&self) -> Option<Peer<RoleClient>> {
        let mut watched = self.connection.subscribe();
        let up = watched.wait_for(|connection| matches!(connection, Connection::Up(_)));
        let found = tokio::time::timeout(CONNECT_WAIT, up).await.ok()?.ok()?.clone();
        match found {
            Connection::Up(peer) => Some(peer),
            Connection::Connecting | Connection::Down(_) | Connection::Absent => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<BTreeMap<String, String>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn offer(&self, digests: BTreeMap<String, String>) {
        *self.lock() = Arc::new(digests);
    }

    /// Whether a tool of this name and definition may be called.
    pub(super) fn offers(&self, name: &str, digest: &str) -> bool {
        self.lock().get(name).is_some_and(|known| known == digest)
    }
}
