//! [`Approvals`] on PostgreSQL.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::{ApprovalStatus, Uuid};

use super::PostgresStore;
use super::audit::record;
use super::fault::Fault;
use super::flush::{DbRole, Transaction};
use super::outbox::OutboxItem;
use super::param::{clean_or_null, ms, p};
use super::records::ListColumns;
use super::row::{APPROVAL, all_within, approval, first};
use super::text::clean;
use super::turn_documents::document;
use crate::{ApprovalFilter, ApprovalRow, Approvals, Decision, DecisionOutcome, Order, Page, Recorder, StoreError, StoreFuture, crash};

impl Approvals for PostgresStore {
    fn approval(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>> {
        Box::pin(async move {
            let sql = format!("SELECT {APPROVAL} FROM approvals WHERE tenant_id = $1 AND id = $2");
            first(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&id)]).await?, approval)
        })
    }

    fn approvals(&self, tenant_id: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>> {
        Box::pin(async move {
            let status = filter.status.map(ApprovalStatus::as_str);
            let limit = i64::from(page.limit);
            let values = [p(&tenant_id), p(&page.after), p(&status), p(&filter.turn_id), (&filter.roles as _, Type::TEXT_ARRAY), p(&limit)];
            let order = match page.order {
                Order::OldestFirst => "id",
                Order::NewestFirst => "id DESC",
            };
            let sql = ListColumns { columns: APPROVAL, bytes: "octet_length(arguments::text)" }.within(&list_sql(page.order), order, page);
            all_within(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, approval, page.max_bytes)
        })
    }

    fn decide(&self, tenant_id: Uuid, id: Uuid, decision: Decision) -> StoreFuture<'_, Option<DecisionOutcome>> {
        Box::pin(self.decide_now(tenant_id, id, decision))
    }

    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(self.expire(now))
    }
}

fn list_sql(order: Order) -> String {
    let (past, order) = match order {
        Order::OldestFirst => ("id > $2", "ASC"),
        Order::NewestFirst => ("id < $2", "DESC"),
    };
    format!(
        "SELECT {APPROVAL} FROM approvals WHERE tenant_id = $1 AND ($2 IS NULL OR {past}) AND ($3 IS NULL OR status = $3)
           AND ($4 IS NULL OR turn_id = $4)
           AND ($5 IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(approver_roles) AS role WHERE role = ANY ($5)))
         ORDER BY id {order} LIMIT $6"
    )
}

impl PostgresStore {
    async fn decide_now(&self, tenant_id: Uuid, id: Uuid, decision: Decision) -> Result<Option<DecisionOutcome>, StoreError> {
        let entry = Arc::new((decision, self.recorder.clone()));
        let deciding = self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move { decide(transaction, &entry.1, tenant_id, id, &entry.0).await })
        });
        deciding.await
    }
}

async fn decide(
    transaction: &Transaction,
    recorder: &Recorder,
    tenant_id: Uuid,
    id: Uuid,
    decision: &Decision,
) -> Result<Option<DecisionOutcome>, Fault> {
    let sql = format!(
        "WITH decided AS (
           UPDATE approvals SET status = $3, decided_by = $4, decided_at = $5, decided_key = $6
           WHERE tenant_id = $1 AND id = $2 AND status = 'pending' AND expires_at > $5
             AND (NOT $7 OR (asked_by <> $4 AND retried_by IS DISTINCT FROM $4 AND asked_key IS DISTINCT FROM $6)) RETURNING {APPROVAL}
         )
         SELECT {APPROVAL}, true FROM decided UNION ALL
         SELECT {APPROVAL}, false FROM approvals WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (SELECT 1 FROM decided)"
    );
    let (by, key, status, now) = (clean(&decision.by), clean_or_null(decision.key.as_deref()), decision.status.as_str(), ms(decision.at));
    let values = [p(&tenant_id), p(&id), p(&status), p(&by), p(&now), p(&key), p(&decision.by_another)];
    let rows = transaction.query(&sql, &values).await?;
    let Some((row, decided)) = first(&rows, |columns| Ok((approval(columns)?, columns.flag()?)))? else { return Ok(None) };
    if decided && !decision.outbox.is_empty() {
        // Before the audit log: whoever locks both locks the lanes first.
        let items = document(&decision.outbox.iter().map(OutboxItem::from).collect::<Vec<_>>())?;
        transaction.query("SELECT put_outbox($1, $2, $3::text::jsonb)", &[p(&tenant_id), p(&now), (&items, Type::TEXT)]).await?;
    }
    if let Some(author) = decision.author.as_ref().filter(|_| decided) {
        record(transaction, recorder, tenant_id, author, &[decision.act(&row)], decision.at).await?;
    }
    crash::point("before_decision");
    // A stored decision with the same values is this one, where an earlier attempt may have been committed.
    let same = row.status == decision.status && row.decided_by.as_deref() == Some(&*by) && row.decided_at == Some(now);
    let is_own = decided || (transaction.is_retry() && same);
    Ok(Some(if is_own { DecisionOutcome::Decided(row) } else { decision.outcome_without_change(row) }))
}
