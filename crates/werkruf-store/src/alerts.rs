//! Alerts: what the operator is told about the server and its tenants.
//!
//! Invariants: an alert and the notifications about it are written in one transaction. There is one open alert per tenant, kind and subject, and one
//! for good where it is told once; so however many processes see a condition, each program is told once.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::page::bytes_of;
use crate::{JsonText, ListRow, NewOutboxRow, Page, StoreFuture};

/// Alerts, and the conditions that are read from other tables.
pub trait Alerts: Send + Sync {
    /// Opens an alert with what is sent about it. False when it is open already or was told once; then nothing is written.
    fn open_alert(&self, alert: NewAlert) -> StoreFuture<'_, bool>;
    /// Ends an open alert, with what is sent about its end. False when it has ended already; then nothing is written.
    fn resolve_alert(&self, tenant_id: Uuid, id: Uuid, rows: Vec<NewOutboxRow>, now: Timestamp) -> StoreFuture<'_, bool>;
    /// The open alerts of all tenants, without those that are told once.
    fn open_alerts(&self) -> StoreFuture<'_, Vec<AlertRow>>;
    /// The conditions of these open alerts were seen at this time.
    fn touch_alerts(&self, ids: Vec<Uuid>, now: Timestamp) -> StoreFuture<'_, ()>;
    /// The alerts of a tenant, or of the server under the nil id.
    fn alerts(&self, tenant_id: Uuid, open_only: bool, page: Page) -> StoreFuture<'_, Vec<AlertRow>>;
    /// What is wrong by the rows of all tenants: approvals that were asked for until the first time, and turns that were given up since the second.
    fn stored_conditions(&self, asked_until: Timestamp, poison_since: Timestamp) -> StoreFuture<'_, StoredConditions>;
}

/// What an alert is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlertKey {
    /// The nil id for the server.
    pub tenant_id: Uuid,
    pub kind: String,
    pub subject: String,
}

/// An alert to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAlert {
    pub id: Uuid,
    pub key: AlertKey,
    /// It is told once for its key and does not end.
    pub once: bool,
    /// The process that sees the condition, where others cannot.
    pub source: Option<String>,
    pub detail: JsonText,
    pub rows: Vec<NewOutboxRow>,
    pub now: Timestamp,
}

/// A row of `alerts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRow {
    pub id: Uuid,
    pub key: AlertKey,
    pub once: bool,
    pub source: Option<String>,
    pub detail: JsonText,
    pub opened_at: Timestamp,
    pub seen_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
}

impl ListRow for AlertRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[Some(&self.key.subject), Some(&self.detail)])
    }
}

/// Conditions in the rows of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredConditions {
    /// Tenants with rows in the outbox that were tried and given up, and how many. What could never be sent is not counted.
    pub dead_letters: Vec<(Uuid, u64)>,
    /// At most [`MAX_CONDITIONS`], the oldest first.
    pub approvals: Vec<WaitingApproval>,
    pub poison: Vec<PoisonTurn>,
}

/// At most so many conditions of one kind are read.
pub(crate) const MAX_CONDITIONS: u32 = 1000;

/// An approval that nobody has decided yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingApproval {
    pub tenant_id: Uuid,
    pub id: Uuid,
    pub tool_name: String,
    pub created_at: Timestamp,
}

/// A turn that was given up because every process that ran it stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonTurn {
    pub tenant_id: Uuid,
    pub id: Uuid,
    pub finished_at: Timestamp,
}
