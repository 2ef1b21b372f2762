//! Approvals: a call that needs one waits until a user with the right role decides.
//!
//! Invariants: one row per call; a decision is final; deciding only stores the decision, and the turn's owner acts on it.

use jiff::Timestamp;
use serde_json::json;
use werkruf_contract::{ApprovalStatus, Uuid};

use crate::page::bytes_of;
use crate::{Act, Author, JsonText, ListRow, NewOutboxRow, Page, StoreFuture};

/// An approval request, written together with its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    pub id: Uuid,
    pub call_id: Uuid,
    pub tool_name: String,
    /// The server that the provider would call; only with a call that the provider runs itself.
    pub server_label: Option<String>,
    /// The arguments as they will run.
    pub arguments: JsonText,
    /// The decision holds for these arguments only.
    pub arguments_digest: String,
    /// A user with one of these roles decides.
    pub approver_roles: Vec<String>,
    /// As in the row of the call.
    pub taint: Option<JsonText>,
    pub asked_by: String,
    /// The credential of the request that made the call.
    pub asked_key: String,
    /// The person who retries a call of somebody else.
    pub retried_by: Option<String>,
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
    pub server_label: Option<String>,
    pub arguments: JsonText,
    pub arguments_digest: String,
    pub approver_roles: Vec<String>,
    pub taint: Option<JsonText>,
    pub asked_by: String,
    pub asked_key: String,
    pub retried_by: Option<String>,
    pub status: ApprovalStatus,
    pub decided_by: Option<String>,
    pub decided_key: Option<String>,
    pub created_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

impl ApprovalRow {
    /// Whether the call is for this person, or this person has retried it.
    pub fn was_asked_by(&self, person: &str) -> bool {
        self.asked_by == person || self.retried_by.as_deref() == Some(person)
    }
}

impl ListRow for ApprovalRow {
    fn list_bytes(&self) -> usize {
        bytes_of(&[Some(&self.arguments), self.taint.as_deref()])
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
    /// The credential of the decision; `None` where the server withdraws an approval.
    pub key: Option<String>,
    /// The person and the credential that asked may not decide this.
    pub by_another: bool,
    pub at: Timestamp,
    /// Who decided, for the audit log; `None` where the server withdraws an approval, which is no administrative act.
    pub author: Option<Author>,
    /// What the others are told, written together with the decision.
    pub outbox: Vec<NewOutboxRow>,
}

impl Decision {
    /// The entry of the audit log for a row that was decided. It says nothing about the arguments.
    pub(crate) fn act(&self, row: &ApprovalRow) -> Act {
        Act::new("approval.decide", row.id.to_string())
            .before(json!({"status": ApprovalStatus::Pending.as_str()}))
            .after(json!({"status": row.status.as_str(), "tool": row.tool_name, "call_id": row.call_id, "asked_by": row.asked_by}))
    }

    /// Why a decision was not stored: the asker made it, or it was decided before.
    pub fn outcome_without_change(&self, row: ApprovalRow) -> DecisionOutcome {
        let asked = row.was_asked_by(&self.by) || self.key.as_deref() == Some(&row.asked_key);
        if self.by_another && asked && row.status == ApprovalStatus::Pending && row.expires_at > self.at {
            DecisionOutcome::AskedByDecider(row)
        } else {
            DecisionOutcome::AlreadyDecided(row)
        }
    }
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The decision is stored in the row.
    Decided(ApprovalRow),
    /// An earlier decision or the expiry came first.
    AlreadyDecided(ApprovalRow),
    /// Whoever asked may not decide this.
    AskedByDecider(ApprovalRow),
}

/// Lists, reads and decides approvals.
pub trait Approvals: Send + Sync {
    fn approval(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>>;
    fn approvals(&self, tenant_id: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>>;
    /// Decides a pending approval that has not expired, if the decider may; `None` without such a row.
    fn decide(&self, tenant_id: Uuid, id: Uuid, decision: Decision) -> StoreFuture<'_, Option<DecisionOutcome>>;
    /// Marks every pending approval past its time as expired, and returns how many there were.
    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}
