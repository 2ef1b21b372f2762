//! Approvals: a call that needs one waits until a user with the right role decides.
//!
//! Invariants: one row per call; a decision is final; deciding only stores the decision, and the turn's owner acts on it.

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Uuid};

use crate::{JsonText, ListRow, Page, StoreFuture};

/// An approval request, written together with its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    pub id: Uuid,
    pub call_id: Uuid,
    pub tool_name: String,
    /// The arguments as they will run.
    pub arguments: JsonText,
    /// The decision holds for these arguments only.
    pub arguments_digest: String,
    /// A user with one of these roles decides.
    pub approver_roles: Vec<String>,
    pub asked_by: String,
    pub expires_at: Timestamp,
}

/// A row of `approvals`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRow {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Uuid,
    pub call_id: Uuid,
    pub tool_name: String,
    pub arguments: JsonText,
    pub arguments_digest: String,
    pub approver_roles: Vec<String>,
    pub asked_by: String,
    pub status: ApprovalStatus,
    pub decided_by: Option<String>,
    pub created_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

impl ListRow for ApprovalRow {
    fn list_bytes(&self) -> usize {
        256 + self.arguments.len()
    }
}

/// Which approvals to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    pub turn_id: Option<Uuid>,
    /// Only those that one of these roles may decide.
    pub roles: Option<Vec<String>>,
}

/// A decision about an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub status: ApprovalStatus,
    /// The id of the user who decided, or the name of the credential.
    pub by: String,
    pub at: Timestamp,
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The decision is stored in the row.
    Decided(ApprovalRow),
    /// An earlier decision or the expiry came first.
    AlreadyDecided(ApprovalRow),
}

/// Lists, reads and decides approvals.
pub trait Approvals: Send + Sync {
    fn approval(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>>;
    fn approvals(&self, tenant_id: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>>;
    /// Decides a pending approval that has not expired; `None` without such a row.
    fn decide(&self, tenant_id: Uuid, id: Uuid, decision: Decision) -> StoreFuture<'_, Option<DecisionOutcome>>;
    /// Marks every pending approval past its time as expired, and returns how many there were.
    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}
