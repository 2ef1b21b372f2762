//! Who may see and decide an approval, and what a decision sets going.

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Principal, TurnStatus, Uuid};
use werkruf_store::{ApprovalFilter, ApprovalRow, DecisionOutcome, Page, StoreError, crash};

use crate::inbound::Refusal;
use crate::runtime::Runtime;

/// Who wants to see or decide. A key with scope admin needs no person.
#[derive(Debug, Clone, Copy)]
pub struct Decider<'a> {
    pub tenant_id: Uuid,
    pub person: Option<&'a Principal>,
    pub admin: bool,
    /// How a decision without a person is signed.
    pub signature: &'a str,
}

impl Decider<'_> {
    /// Its role decides; whoever asked without having it may know that it exists, nobody else.
    fn may_see(&self, approval: &ApprovalRow) -> Result<(), Refusal> {
        let holds = |role: &String| self.person.is_some_and(|person| person.roles.iter().any(|held| held.name == *role));
        if self.admin || approval.approver_roles.iter().any(holds) {
            return Ok(());
        }
        if self.person.is_some_and(|person| person.user_id == approval.asked_by) {
            return Err(Refusal::NotTheApprover { roles: approval.approver_roles.join(", ") });
        }
        Err(Refusal::UnknownApproval)
    }
}

impl Runtime {
    /// One approval, for whoever may decide it.
    pub async fn approval(&self, who: Decider<'_>, id: Uuid) -> Result<ApprovalRow, Refusal> {
        let row = self.house.parts.approvals.approval(who.tenant_id, id).await?.ok_or(Refusal::UnknownApproval)?;
        who.may_see(&row)?;
        Ok(self.as_of_now(row))
    }

    /// Those this one may decide.
    pub async fn approvals(&self, who: Decider<'_>, status: Option<ApprovalStatus>, page: Page) -> Result<Vec<ApprovalRow>, Refusal> {
        self.expire_approvals().await?;
        let roles = if who.admin {
            None
        } else {
            Some(who.person.map(|person| person.roles.iter().map(|role| role.name.clone()).collect()).unwrap_or_default())
        };
        let filter = ApprovalFilter { status, turn_id: None, roles };
        Ok(self.house.parts.approvals.approvals(who.tenant_id, filter, page).await?)
    }

    /// Decides, once and for all, and lets the turn go on.
    pub async fn decide(&self, who: Decider<'_>, id: Uuid, approve: bool) -> Result<ApprovalRow, Refusal> {
        self.approval(who, id).await?;
        let status = if approve { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
        let by = who.person.map_or(who.signature, |person| person.user_id.as_str()).to_owned();
        self.settle(who.tenant_id, id, status, by).await
    }

    /// Writes a decision and wakes its turn.
    pub(crate) async fn settle(&self, tenant_id: Uuid, id: Uuid, status: ApprovalStatus, by: String) -> Result<ApprovalRow, Refusal> {
        let now = self.house.parts.clock.now();
        match self.house.parts.approvals.decide(tenant_id, id, status, by, now).await?.ok_or(Refusal::UnknownApproval)? {
            DecisionOutcome::Now(row) => {
                crash::point("decided");
                tracing::info!(approval_id = %id, turn_id = %row.turn_id, status = %row.status, "an approval was decided");
                self.wake(tenant_id, row.turn_id).await?;
                self.house.parts.cluster.notify();
                Ok(row)
            }
            DecisionOutcome::Before(row) => {
                let row = self.as_of_now(row);
                let message = format!("this approval is {} already; a decision cannot be changed", row.status);
                Err(Refusal::Conflict { code: "already_decided", message })
            }
        }
    }

    /// Goes on with a turn that waits. One that still works here is told to look again when it has stopped.
    pub(crate) async fn wake(&self, tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
        if self.house.told_to_look_again(turn_id) {
            return Ok(());
        }
        if let Some(turn) = self.house.parts.records.turn(tenant_id, turn_id).await?
            && turn.status == TurnStatus::AwaitingApproval
            && !self.go_on_with(turn)
        {
            // Somebody began just now, perhaps before the decision could be seen.
            self.house.told_to_look_again(turn_id);
        }
        Ok(())
    }

    /// Ends what nobody decided in time. The turns are found by the recovery scan.
    pub(crate) async fn expire_approvals(&self) -> Result<u64, StoreError> {
        self.house.parts.approvals.expire_approvals(self.house.parts.clock.now()).await
    }

    /// Past its time is expired, whether or not the sweep has been here.
    fn as_of_now(&self, mut row: ApprovalRow) -> ApprovalRow {
        if row.status == ApprovalStatus::Pending && is_over(&row, self.house.parts.clock.now()) {
            row.status = ApprovalStatus::Expired;
        }
        row
    }
}

fn is_over(row: &ApprovalRow, now: Timestamp) -> bool {
    row.expires_at <= now
}
