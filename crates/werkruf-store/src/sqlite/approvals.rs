//! [`Approvals`] on SQLite, and the approval rows that a turn writes.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{ApprovalStatus, Uuid};

use super::SqliteStore;
use super::audit::record;
use super::insert::WriteContext;
use super::outbox_rows::put;
use super::row::{APPROVAL, all_within, approval, first};
use super::text::{Id, Stamp, id_or_null};
use crate::{
    ApprovalFilter, ApprovalRow, Approvals, Decision, DecisionOutcome, NewApproval, Order, Page, Recorder, StoreError, StoreFuture, crash,
};

impl Approvals for SqliteStore {
    fn approval(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>> {
        Box::pin(self.readers.look_up(move |c| by_id(c, &Id::from(tenant_id), &Id::from(id))))
    }

    fn approvals(&self, tenant_id: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>> {
        Box::pin(self.readers.list(move |c| list(c, tenant_id, &filter, page)))
    }

    fn decide(&self, tenant_id: Uuid, id: Uuid, decision: Decision) -> StoreFuture<'_, Option<DecisionOutcome>> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| decide(c, &recorder, tenant_id, &Id::from(id), &decision)))
    }

    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            // Reads first: there is almost never an expired approval, and a read costs no commit.
            let due = self.readers.look_up(move |c| due(c, now)).await?;
            if !due {
                return Ok(0);
            }
            self.writer.submit(move |c| expire(c, now)).await
        })
    }
}

fn by_id(c: &Connection, tenant: &Id, id: &Id) -> Result<Option<ApprovalRow>, StoreError> {
    let mut statement = c.prepare_cached(&format!("SELECT {APPROVAL} FROM approvals WHERE tenant_id = ?1 AND id = ?2"))?;
    first(&mut statement, params![tenant, id], approval)
}

fn list(c: &Connection, tenant_id: Uuid, filter: &ApprovalFilter, page: Page) -> Result<Vec<ApprovalRow>, StoreError> {
    let (past, order) = match page.order {
        Order::OldestFirst => ("id > ?2", "ASC"),
        Order::NewestFirst => ("id < ?2", "DESC"),
    };
    let mut statement = c.prepare_cached(&format!(
        "SELECT {APPROVAL} FROM approvals WHERE tenant_id = ?1 AND (?2 IS NULL OR {past}) AND (?3 IS NULL OR status = ?3)
           AND (?4 IS NULL OR turn_id = ?4) AND (?5 IS NULL OR EXISTS
             (SELECT 1 FROM json_each(approver_roles) AS named JOIN json_each(?5) AS held ON held.value = named.value))
         ORDER BY id {order} LIMIT ?6"
    ))?;
    let roles = filter.roles.as_ref().map(|roles| json(roles)).transpose()?;
    let values = params![
        Id::from(tenant_id),
        id_or_null(page.after),
        filter.status.map(ApprovalStatus::as_str),
        id_or_null(filter.turn_id),
        roles,
        page.limit,
    ];
    all_within(&mut statement, values, approval, page.max_bytes)
}

fn decide(
    c: &Connection,
    recorder: &Recorder,
    tenant_id: Uuid,
    id: &Id,
    decision: &Decision,
) -> Result<Option<DecisionOutcome>, StoreError> {
    let tenant = &Id::from(tenant_id);
    let decided = c
        .prepare_cached(
            "UPDATE approvals SET status = ?3, decided_by = ?4, decided_at = ?5, decided_key = ?6
             WHERE tenant_id = ?1 AND id = ?2 AND status = 'pending' AND expires_at > ?5
               AND (NOT ?7 OR (asked_by <> ?4 AND retried_by IS NOT ?4 AND asked_key IS NOT ?6))",
        )?
        .execute(params![tenant, id, decision.status.as_str(), decision.by, Stamp::from(decision.at), decision.key, decision.by_another])?;
    let Some(row) = by_id(c, tenant, id)? else { return Ok(None) };
    if decided == 1 {
        put(c, tenant, &decision.outbox, &Stamp::from(decision.at))?;
    }
    if let Some(author) = decision.author.as_ref().filter(|_| decided == 1) {
        record(c, recorder, tenant_id, author, &[decision.act(&row)], decision.at)?;
    }
    crash::point("before_decision");
    Ok(Some(if decided == 1 { DecisionOutcome::Decided(row) } else { decision.outcome_without_change(row) }))
}

fn due(c: &Connection, now: Timestamp) -> Result<bool, StoreError> {
    let mut statement = c.prepare_cached("SELECT EXISTS (SELECT 1 FROM approvals WHERE status = 'pending' AND expires_at <= ?1)")?;
    Ok(first(&mut statement, params![Stamp::from(now)], |columns| columns.flag())?.unwrap_or(false))
}

fn expire(c: &Connection, now: Timestamp) -> Result<u64, StoreError> {
    let expired = c
        .prepare_cached("UPDATE approvals SET status = 'expired', decided_at = ?1 WHERE status = 'pending' AND expires_at <= ?1")?
        .execute(params![Stamp::from(now)])?;
    Ok(u64::try_from(expired).unwrap_or(u64::MAX))
}

fn json(roles: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(roles).map_err(|error| StoreError::Broken(error.to_string()))
}

impl WriteContext<'_> {
    /// Inserts an approval request.
    pub(super) fn approval(&self, c: &Connection, conversation_id: Option<Uuid>, approval: &NewApproval) -> Result<(), StoreError> {
        c.prepare_cached(
            "INSERT INTO approvals (tenant_id, id, conversation_id, turn_id, call_id, tool_name, server_label, arguments, arguments_digest,
               approver_roles, taint, asked_by, asked_key, retried_by, status, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'pending', ?15, ?16)",
        )?
        .execute(params![
            self.tenant,
            Id::from(approval.id),
            id_or_null(conversation_id),
            self.turn,
            Id::from(approval.call_id),
            approval.tool_name,
            approval.server_label,
            approval.arguments,
            approval.arguments_digest,
            json(&approval.approver_roles)?,
            approval.taint,
            approval.asked_by,
            approval.asked_key,
            approval.retried_by,
            self.now,
            Stamp::from(approval.expires_at),
        ])?;
        Ok(())
    }

    /// Cancels the pending approval of a call. A decision that was made meanwhile stays.
    pub(super) fn withdraw(&self, c: &Connection, call_id: Uuid) -> Result<(), StoreError> {
        c.prepare_cached(
            "UPDATE approvals SET status = 'canceled', decided_at = ?3 WHERE tenant_id = ?1 AND call_id = ?2 AND status = 'pending'",
        )?
        .execute(params![self.tenant, Id::from(call_id), self.now])?;
        Ok(())
    }
}
