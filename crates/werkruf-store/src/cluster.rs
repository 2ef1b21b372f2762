//! Processes that share one database: how they keep their leases, hear each other's wishes and follow each other's streams.
//!
//! Invariants: a lease counts by the database's clock alone; whoever does not own a turn leaves a wish and never touches its rows;
//! a knock is a hint, and losing every one of them costs time only.

use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};

use crate::{StoreFuture, StreamKey};

/// How long a call may take from boarding to its row.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(10);

/// What a process must do to share its database with others.
pub trait Cluster: Send + Sync {
    /// How long a lease stands without being renewed; `None` where one process holds the database for its life.
    fn lease_ttl(&self) -> Option<Duration>;
    /// Renews every lease of this owner in one statement and reads what others wish of the turns under them.
    fn renew_leases(&self, owner: String) -> StoreFuture<'_, LeaseReport>;
    /// The same look without renewing anything, asked more often.
    fn pending_cancels(&self, owner: String) -> StoreFuture<'_, LeaseReport> {
        self.renew_leases(owner)
    }
    /// Takes the flight of all calls with this key for a call that has no row yet, or says which call has it: one whose row is
    /// `running`, else one that boarded less than [`CLAIM_WINDOW`] ago and has no row either.
    fn claim_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, Uuid>;
    /// Gives the flight back for a call that will never have a row; nothing where another call has it.
    fn release_key(&self, tenant_id: Uuid, dedupe_key: String, call_id: Uuid) -> StoreFuture<'_, ()> {
        let _ = (tenant_id, dedupe_key, call_id);
        Box::pin(async { Ok(()) })
    }
    /// Asks whoever runs this call to stop it; false when it does not run.
    fn request_call_cancel(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, bool>;
    /// How far these streams of a tenant have come. Those that do not exist are left out.
    fn stream_positions(&self, tenant_id: Uuid, streams: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>>;
    /// Tells the other processes that there is something new. Many knocks at once become one.
    fn notify(&self);
    /// Resolves when another process has knocked; never where there is none.
    fn notified(&self) -> BoxFuture<'_, ()>;
}

/// What a process holds after renewing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseReport {
    /// The streams whose leases are this owner's, with their epochs.
    pub held: Vec<(StreamKey, i64)>,
    /// Turns under these leases that somebody wants stopped.
    pub canceled_turns: Vec<Uuid>,
    /// Calls of such turns that somebody wants stopped.
    pub canceled_calls: Vec<Uuid>,
}

/// How far a stream has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPosition {
    pub stream_id: Uuid,
    /// The number the next event will get.
    pub next_event_seq: i64,
    /// Changes whenever the text that is being written is kept again; `None` while there is none.
    pub partial: Option<String>,
}
