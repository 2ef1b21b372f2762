//! A person's word before a call runs: asked for, given or refused, once.
//!
//! Invariants: one row per call; a decision is final; whoever decides only leaves the decision here, the turn's owner
//! acts on it.

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Uuid};

use crate::{JsonText, Page, StoreFuture};

/// A wish for a person's word, written with the call it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    pub id: Uuid,
    pub call_id: Uuid,
    pub tool_name: String,
    /// The arguments as they will run.
    pub arguments: JsonText,
    /// What was approved is these arguments and no others.
    pub arguments_digest: String,
    /// One of these roles decides.
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

/// Which approvals to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    pub turn_id: Option<Uuid>,
    /// Only those one of these roles decides.
    pub roles: Option<Vec<String>>,
}

/// What came of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// It stands, and the row says so.
    Now(ApprovalRow),
    /// Somebody, or the clock, was first.
    Before(ApprovalRow),
}

/// Approvals, looked up and decided.
pub trait Approvals: Send + Sync {
    fn approval(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>>;
    fn approvals(&self, tenant_id: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>>;
    /// Decides a pending one whose time has not run out; `None` without such a row.
    fn decide(
        &self,
        tenant_id: Uuid,
        id: Uuid,
        status: ApprovalStatus,
        by: String,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<DecisionOutcome>>;
    /// Ends every pending one whose time has run out; how many there were.
    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64>;
    /// Ids that begin with the prefix: at most two, so "unique" can be told.
    fn approval_ids_with_prefix(&self, tenant_id: Uuid, prefix: String) -> StoreFuture<'_, Vec<Uuid>>;
}
