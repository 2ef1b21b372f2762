//! Sign-in to the console: links that work once, and sessions. Only digests of their tokens are stored.
//!
//! Invariants: a link becomes one session, in one statement, so no two requests use the same link. A session never outlives what it stands for:
//! whoever looks one up checks its holder again.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{KeyDigest, StoreFuture};

/// One holder has at most so many sessions, and as many links; the oldest are deleted.
pub(crate) const MAX_SESSIONS: u32 = 100;

/// Sessions of the console, and links to sign in.
pub trait ConsoleSessions: Send + Sync {
    /// Stores a link or a session. Deletes those that have expired, and the oldest of a holder who has too many.
    fn put_console_session(&self, session: NewConsoleSession) -> StoreFuture<'_, ()>;
    /// Turns a link into a session. `None` when there is no such link, or it was used or has expired.
    fn use_console_link(&self, link: KeyDigest, session: LinkUse) -> StoreFuture<'_, Option<ConsoleSession>>;
    /// The session with this token, until it expires.
    fn console_session(&self, digest: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConsoleSession>>;
    /// Those of the sessions that still exist.
    fn console_sessions_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<Uuid>>;
    /// Ends a session. False when there is no such session.
    fn delete_console_session(&self, id: Uuid) -> StoreFuture<'_, bool>;
}

/// Whose credential a session stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionHolder {
    /// A key of a tenant.
    Key { tenant_id: Uuid, id: Uuid },
    /// The operator, for as long as the operator's key has this digest.
    Operator(KeyDigest),
}

impl SessionHolder {
    /// The columns `tenant_id`, `key_id` and `operator_digest`.
    pub(crate) fn columns(&self) -> (Uuid, Option<Uuid>, Option<&str>) {
        match self {
            Self::Key { tenant_id, id } => (*tenant_id, Some(*id), None),
            Self::Operator(digest) => (crate::SERVER_CHAIN, None, Some(&digest.0)),
        }
    }
}

/// A link or a session to store.
#[derive(Debug, Clone)]
pub struct NewConsoleSession {
    pub id: Uuid,
    pub digest: KeyDigest,
    /// A link that works once, else a session.
    pub link: bool,
    pub holder: SessionHolder,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The session that a link becomes.
#[derive(Debug, Clone)]
pub struct LinkUse {
    pub digest: KeyDigest,
    pub now: Timestamp,
    pub expires_at: Timestamp,
}

/// A row of `console_sessions` that is a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    pub id: Uuid,
    pub holder: SessionHolder,
    pub expires_at: Timestamp,
}
