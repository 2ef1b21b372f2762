//! Who may see and decide an approval, and what a decision starts.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Principal, Uuid};
use werkruf_store::{
    ApprovalFilter, ApprovalRow, Author, Decision, DecisionOutcome, NewOutboxRow, Order, OutboxFilter, Page, StoreError, crash,
};

use crate::call::decision_rows;
use crate::engine::Engine;
use crate::recovery::{expire_approvals, wake};
use crate::request::Refusal;

/// Who wants to see or decide. A key with scope `admin` needs no person.
#[derive(Debug, Clone, Copy)]
pub struct Decider<'a> {
    pub tenant_id: Uuid,
    pub person: Option<&'a Principal>,
    pub admin: bool,
    /// Names the credential. A decision without a person is stored under this name.
    pub credential: &'a str,
    /// Who decides, for the audit log.
    pub author: &'a Author,
}

impl Decider<'_> {
    /// The approver roles may see an approval. The asker may know that it exists; for everybody else it does not.
    fn may_see(&self, approval: &ApprovalRow) -> Result<(), Refusal> {
        let holds = |role: &String| self.person.is_some_and(|person| person.roles.iter().any(|held| held.name == *role));
        if self.admin || approval.approver_roles.iter().any(holds) {
            return Ok(());
        }
        if self.person.is_some_and(|person| approval.was_asked_by(&person.user_id)) {
            return Err(Refusal::NotTheApprover { roles: approval.approver_roles.join(", ") });
        }
        Err(Refusal::UnknownApproval)
    }
}

/// One approval, for a decider that may see it.
pub(crate) async fn approval(engine: &Engine, decider: Decider<'_>, id: Uuid) -> Result<ApprovalRow, Refusal> {
    let row = engine.store.approvals.approval(decider.tenant_id, id).await?.ok_or(Refusal::UnknownApproval)?;
    decider.may_see(&row)?;
    Ok(as_of_now(engine, row))
}

/// The approvals that this decider may decide.
pub(crate) async fn approvals(
    engine: &Engine,
    decider: Decider<'_>,
    status: Option<ApprovalStatus>,
    page: Page,
) -> Result<Vec<ApprovalRow>, Refusal> {
    expire_approvals(engine).await?;
    let roles = if decider.admin {
        None
    } else {
        Some(decider.person.map(|person| person.roles.iter().map(|role| role.name.clone()).collect()).unwrap_or_default())
    };
    let filter = ApprovalFilter { status, turn_id: None, roles };
    Ok(engine.store.approvals.approvals(decider.tenant_id, filter, page).await?)
}

/// Decides, once, and continues the turn.
pub(crate) async fn decide(engine: &Arc<Engine>, decider: Decider<'_>, id: Uuid, approve: bool) -> Result<ApprovalRow, Refusal> {
    let asked = approval(engine, decider, id).await?;
    let status = if approve { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
    let by = decider.person.map_or(decider.credential, |person| person.user_id.as_str()).to_owned();
    let (key, by_another) = (Some(decider.credential.to_owned()), approve && engine.setup().four_eyes);
    let (at, author) = (engine.store.clock.now(), Some(decider.author.clone()));
    let outbox = rows_for_others(engine, ApprovalRow { status, decided_by: Some(by.clone()), ..asked }).await?;
    store_decision(engine, decider.tenant_id, id, Decision { status, by, key, by_another, at, author, outbox }).await
}

/// Withdraws the pending approval of a call that is canceled. `None` when the call has none, false when it was decided first.
pub(crate) async fn cancel_approval(engine: &Arc<Engine>, tenant_id: Uuid, turn_id: Uuid, call_id: Uuid) -> Result<Option<bool>, Refusal> {
    let filter = ApprovalFilter { turn_id: Some(turn_id), status: Some(ApprovalStatus::Pending), roles: None };
    let Some(approval) = approval_of_call(engine, tenant_id, call_id, filter).await? else { return Ok(None) };
    let (status, by, at) = (ApprovalStatus::Canceled, "canceled".to_owned(), engine.store.clock.now());
    let decision = Decision { status, by, key: None, by_another: false, at, author: None, outbox: Vec::new() };
    match store_decision(engine, tenant_id, approval.id, decision).await {
        Ok(_) => Ok(Some(true)),
        Err(Refusal::Conflict { .. }) => Ok(Some(false)),
        Err(refusal) => Err(refusal),
    }
}

/// The approval of a call. A turn may wait for more approvals than one page holds.
async fn approval_of_call(
    engine: &Engine,
    tenant_id: Uuid,
    call_id: Uuid,
    filter: ApprovalFilter,
) -> Result<Option<ApprovalRow>, StoreError> {
    let mut page = Page::default();
    loop {
        let batch = engine.store.approvals.approvals(tenant_id, filter.clone(), page).await?;
        let last = usize::try_from(page.limit).is_ok_and(|limit| batch.len() < limit);
        page.after = batch.last().map(|approval| approval.id);
        let found = batch.into_iter().find(|approval| approval.call_id == call_id);
        if found.is_some() || last || page.after.is_none() {
            return Ok(found);
        }
    }
}

/// Writes a decision and wakes its turn.
async fn store_decision(engine: &Arc<Engine>, tenant_id: Uuid, id: Uuid, decision: Decision) -> Result<ApprovalRow, Refusal> {
    match engine.store.approvals.decide(tenant_id, id, decision).await?.ok_or(Refusal::UnknownApproval)? {
        DecisionOutcome::Decided(row) => {
            crash::point("decided");
            tracing::info!(approval_id = %id, turn_id = %row.turn_id, status = %row.status, "an approval was decided");
            wake(engine, tenant_id, row.turn_id).await?;
            engine.store.cluster.notify();
            engine.journals.outbox.wake();
            Ok(row)
        }
        DecisionOutcome::AskedByDecider(_) => Err(Refusal::FourEyes),
        DecisionOutcome::AlreadyDecided(row) => {
            let row = as_of_now(engine, row);
            let message = format!("this approval is {} already; a decision cannot be changed", row.status);
            Err(Refusal::Conflict { code: "already_decided", message })
        }
    }
}

/// What the people who got buttons are told about the decision of another one. The row is as the decision leaves it.
async fn rows_for_others(engine: &Engine, row: ApprovalRow) -> Result<Vec<NewOutboxRow>, StoreError> {
    if engine.setup().channels.of_people().next().is_none() {
        return Ok(Vec::new());
    }
    let (store, tenant_id) = (&engine.store, row.tenant_id);
    let all = Page::of(u32::MAX, Order::OldestFirst);
    let asked = store.outbox.outbox(tenant_id, OutboxFilter::of_approval(row.id), all).await?;
    let mut people: HashMap<String, Arc<Principal>> = HashMap::new();
    for id in asked.iter().filter_map(|row| row.recipient.user_id.clone()).chain(row.decided_by.clone()) {
        if let Some(person) = store.people.principal(tenant_id, id.clone()).await? {
            people.insert(id, person);
        }
    }
    let by = row.decided_by.as_deref().unwrap_or_default();
    let by = people.get(by).map_or(by, |person| person.name.as_str());
    let locale_of = |id: &str| people.get(id).map(|person| person.locale.clone()).unwrap_or_default();
    Ok(decision_rows(&row, by, &asked, locale_of, &store.clock))
}

/// An approval past its time counts as expired, whether or not the scan has marked it.
fn as_of_now(engine: &Engine, mut row: ApprovalRow) -> ApprovalRow {
    if row.status == ApprovalStatus::Pending && is_expired(&row, engine.store.clock.now()) {
        row.status = ApprovalStatus::Expired;
    }
    row
}

fn is_expired(row: &ApprovalRow, now: Timestamp) -> bool {
    row.expires_at <= now
}
