//! Processes that share one database: how they renew their leases, see each other's cancel requests and follow each other's streams.
//!
//! Invariants: a lease expires by the database's clock alone; a process that does not own a turn stores a request and never changes the
//! turn's rows; a notification is only a hint, and losing all of them costs time only.

use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};

use crate::{StoreFuture, StreamKey};

/// How long a call may take from its claim on a dedupe key to its row.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(10);

/// How long a stream counts as read after a process has marked it. Shorter than the time that a client has to come back to its stream, so that its
/// own mark does not keep its turn.
pub const READ_MARK: Duration = Duration::from_millis(1900);

/// What a process must do to share its database with others.
pub trait Cluster: Send + Sync {
    /// How long a lease lasts without renewal; `None` where one process owns the database as long as it runs.
    fn lease_ttl(&self) -> Option<Duration>;
    /// Renews every lease of this owner in one statement, and reads the cancel requests for the turns under these leases.
    fn renew_leases(&self, owner: String) -> StoreFuture<'_, LeaseReport>;
    /// Reads the same without renewing a lease; called more often.
    fn pending_cancels(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        self.renew_leases(owner)
    }
    /// Claims the dedupe key for a call that has no row yet, or returns the call that has it: a call whose row is `running`,
    /// else a call without a row that claimed the key less than [`CLAIM_WINDOW`] ago.
    fn claim_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, Uuid>;
    /// Releases the key for a call that will never have a row; does nothing where another call has the key.
    fn release_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, ()> {
        let _ = (tenant_id, dedupe_key, call_id);
        Box::pin(async { Ok(()) })
    }
    /// Takes a block of the tokens that all processes share: at most `per_minute` of a subject in each minute of the database's
    /// clock. `None` where one process owns the database and counts alone.
    fn take_tokens(&self, tenant_id: Uuid, subject: String, wanted: u32, per_minute: u32) -> StoreFuture<'_, Option<TokenGrant>> {
        let _ = (tenant_id, subject, wanted, per_minute);
        Box::pin(async { Ok(None) })
    }
    /// Stores a cancel request for a running call; false when the call does not run.
    fn request_call_cancel(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, bool>;
    /// The positions of these streams of a tenant, and which of these turns of theirs wait. Streams that do not exist are left out.
    fn stream_positions(&self, tenant_id: Uuid, streams: Vec<Uuid>, turns: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>>;
    /// Marks streams with unfinished turns as read by this process, for [`READ_MARK`]. Does nothing where one process owns the database.
    fn mark_read(&self, tenant_id: Uuid, streams: Vec<Uuid>) -> StoreFuture<'_, ()> {
        let _ = (tenant_id, streams);
        Box::pin(async { Ok(()) })
    }
    /// Whether a process has marked the stream as read and the mark is valid.
    fn is_read(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, bool> {
        let _ = (tenant_id, stream_id);
        Box::pin(async { Ok(false) })
    }
    /// Notifies the other processes that there is something new. Many notifications at once become one.
    fn notify(&self);
    /// Resolves when another process has sent a notification; never where there is no other process.
    fn notified(&self) -> BoxFuture<'_, ()>;
}

/// The state of an owner's leases after a renewal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseReport {
    /// The streams whose leases are this owner's, with their epochs.
    pub held: Vec<(StreamKey, i64)>,
    /// Turns under these leases with a cancel request.
    pub canceled_turns: Vec<Uuid>,
    /// Calls of turns under these leases with a cancel request.
    pub canceled_calls: Vec<Uuid>,
}

/// Tokens that a process took from the shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenGrant {
    pub granted: u32,
    /// The rest of the minute. Tokens that are not used by then are lost.
    pub valid: Duration,
}

/// The newest state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPosition {
    pub stream_id: Uuid,
    /// The number the next event will get.
    pub next_event_seq: i64,
    /// Changes with every checkpoint of the partial text; `None` while there is no partial text.
    pub partial: Option<String>,
    /// The turns, of those that were asked for, that wait for an approval.
    pub waiting: Vec<Uuid>,
}
