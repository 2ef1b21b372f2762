//! [`Budgets`], [`ManageBudgets`] and [`BudgetStatistics`] on PostgreSQL. Budgets are made and deleted as `werkruf_system`, because a change raises the version in the row of the tenant; one
//! such change at a time.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::record;
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::param::{clean_or_null, ms, p};
use super::row::{self, Columns, all, first, only};
use super::text::clean;
use super::turn_documents::document;
use super::usage_documents::{Reservation, UsageRow};
use crate::budgets::{ConfiguredChange, MOST_SUBJECTS, SETTLED_AFTER, created, deleted, no_tenant};
use crate::reading::{BUDGET, qualified};
use crate::{
    Author, Budget, BudgetPeriod, BudgetStatistics, BudgetUse, Budgets, ManageBudgets, NewReservation, NewUsage, OverBudget, StoreError,
    StoreFuture, TenantBudgets, UsageOwner,
};

impl Budgets for PostgresStore {
    fn all_budgets(&self) -> StoreFuture<'_, Vec<TenantBudgets>> {
        Box::pin(async move {
            // One statement: the version is that of these budgets.
            let sql = format!(
                "SELECT tenants.id, budgets_version, budgets.id IS NOT NULL, {} FROM tenants LEFT JOIN budgets ON budgets.tenant_id = tenants.id
                 WHERE budgets_version > 0 ORDER BY tenants.id, budgets.id",
                qualified(BUDGET, "budgets")
            );
            Ok(TenantBudgets::collect(all(&self.query(DbRole::System, &sql, &[]).await?, row::tenant_budget)?))
        })
    }

    fn reserve(
        &self,
        owner: UsageOwner,
        reservation: NewReservation,
        usage: Option<NewUsage>,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<OverBudget>> {
        Box::pin(async move {
            let sql = "SELECT reserve_budgets($1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb, $8)::text";
            let rows = document(&usage.iter().map(|usage| UsageRow::new(usage, now)).collect::<Vec<_>>())?;
            let claims = document(&Reservation::new(&reservation, usage.as_ref()))?;
            let (user, now) = (clean(&owner.user_id), ms(now));
            let values = [
                p(&owner.tenant_id),
                p(&user),
                p(&owner.conversation_id),
                p(&owner.turn_id),
                p(&now),
                (&rows as _, Type::TEXT),
                (&claims as _, Type::TEXT),
            ];
            let rows = self.query_once(DbRole::Tenant(owner.tenant_id), sql, &values).await?;
            only(&rows, |columns| refusal(columns, Some(&reservation)))
        })
    }

    fn release_expired(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let now = ms(now);
            let rows = self.query(DbRole::System, "SELECT release_expired($1)", &[p(&now)]).await?;
            let released = only(&rows, |columns| columns.int())?;
            let known = ms(now.checked_sub(SETTLED_AFTER).unwrap_or(now));
            let sql = format!("SELECT {BUDGET} FROM budgets WHERE NOT settled AND created_at <= $1");
            // Each in its own transaction, which locks counters of one budget only.
            for budget in all(&self.query(DbRole::System, &sql, &[p(&known)]).await?, row::budget)? {
                let (starts, key) = (budget.first_periods(), [p(&budget.tenant_id), p(&budget.id)]);
                let [tenant, id] = key.clone();
                let statements = [
                    Statement { sql: SETTLE, params: &[tenant, id, (&starts, Type::DATE_ARRAY)] },
                    Statement { sql: SETTLED, params: &key },
                ];
                self.run(DbRole::System, &statements).await?;
            }
            Ok(u64::try_from(released).unwrap_or(0))
        })
    }
}

impl ManageBudgets for PostgresStore {
    fn create_budget(&self, budget: Budget, by: Author) -> StoreFuture<'_, bool> {
        let budget = Budget { subject: budget.subject.map(|subject| clean(&subject).into_owned()), ..budget };
        let entry = Arc::new((self.recorder.clone(), by, budget));
        Box::pin(self.with(DbRole::System, move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                let (recorder, by, budget) = &*entry;
                lock_budgets(transaction).await?;
                if let Some(known) = budget_by_id(transaction, budget.tenant_id, budget.id).await? {
                    return Ok(transaction.is_retry() && known.is_same(budget));
                }
                if !insert(transaction, budget).await? {
                    return Ok(false);
                }
                raise_version(transaction, budget.tenant_id).await?;
                record(transaction, recorder, budget.tenant_id, by, &[created(budget)], budget.created_at).await?;
                Ok(true)
            })
        }))
    }

    fn delete_budget(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let (entry, at) = (Arc::new((self.recorder.clone(), by)), self.clock.now());
        Box::pin(self.with(DbRole::System, move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                lock_budgets(transaction).await?;
                let Some(found) = budget_by_id(transaction, tenant_id, id).await? else { return Ok(transaction.is_retry()) };
                delete(transaction, tenant_id, id).await?;
                raise_version(transaction, tenant_id).await?;
                record(transaction, &entry.0, tenant_id, &entry.1, &[deleted(&found)], at).await?;
                Ok(true)
            })
        }))
    }

    fn put_configured_budgets(&self, budgets: Vec<Budget>, now: Timestamp) -> StoreFuture<'_, ()> {
        let entry = Arc::new((self.recorder.clone(), budgets));
        Box::pin(self.with(DbRole::System, move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move { put_configured(transaction, &entry.0, &entry.1, ms(now)).await })
        }))
    }
}

impl BudgetStatistics for PostgresStore {
    fn budget_uses(&self, tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Vec<BudgetUse>> {
        Box::pin(async move {
            let [day, month] = [BudgetPeriod::Day, BudgetPeriod::Month].map(|period| period.start_at(now));
            let most = i64::from(MOST_SUBJECTS);
            let rows = self.query(DbRole::Tenant(tenant_id), USES, &[p(&tenant_id), p(&day), p(&month), p(&most)]).await?;
            all(&rows, row::budget_use)
        })
    }

    fn half_used_budgets(&self, now: Timestamp) -> StoreFuture<'_, Vec<(Budget, BudgetUse)>> {
        Box::pin(async move {
            let [day, month] = [BudgetPeriod::Day, BudgetPeriod::Month].map(|period| period.start_at(now));
            // The half is rounded up.
            let sql = format!(
                "SELECT {}, p.subject, period_start::text, used, reserved FROM budget_periods AS p
                 JOIN budgets AS b ON b.tenant_id = p.tenant_id AND b.id = budget_id
                 WHERE period_start IN ($1, $2) AND period_start = CASE period WHEN 'day' THEN $1 ELSE $2 END
                   AND max_amount > 0 AND used >= max_amount - max_amount / 2 ORDER BY b.tenant_id, b.id, p.subject",
                qualified(BUDGET, "b")
            );
            all(&self.query(DbRole::System, &sql, &[p(&day), p(&month)]).await?, row::used_budget)
        })
    }
}

const USES: &str = "SELECT budget_id, subject, period, period_start::text, unit, used, reserved FROM (
      SELECT budget_id, p.subject, period, period_start, unit, used, reserved,
        row_number() OVER (PARTITION BY budget_id ORDER BY used DESC, reserved DESC, p.subject) AS place
      FROM budget_periods AS p JOIN budgets AS b ON b.tenant_id = p.tenant_id AND b.id = budget_id
      WHERE p.tenant_id = $1 AND period_start IN ($2, $3) AND period_start = CASE period WHEN 'day' THEN $2 ELSE $3 END) AS listed
    WHERE place <= $4 ORDER BY budget_id, subject";
const SETTLE: &str = "SELECT settle_budget($1, $2, $3)::text";
const SETTLED: &str = "UPDATE budgets SET settled = true WHERE tenant_id = $1 AND id = $2";

/// What a function says about the claim that has no room.
#[derive(Deserialize)]
struct Refused {
    /// From 0.
    claim: usize,
    used: i64,
    reserved: i64,
}

/// The budget that had no room, from a column with a [`Refused`] or NULL.
pub(super) fn refusal(columns: &mut Columns<'_>, reservation: Option<&NewReservation>) -> Result<Option<OverBudget>, StoreError> {
    let Some(text) = columns.text_or_null()? else { return Ok(None) };
    let Refused { claim, used, reserved } = serde_json::from_str(&text).map_err(|error| StoreError::Broken(error.to_string()))?;
    let claim = reservation.and_then(|reservation| reservation.claims.get(claim));
    let claim = claim.ok_or_else(|| StoreError::Broken(format!("no claim was refused like this: {text}")))?;
    Ok(Some(OverBudget { counter: claim.counter.clone(), limit: claim.limit, used, reserved, amount: claim.amount }))
}

/// Budgets change one after another.
async fn lock_budgets(transaction: &Transaction) -> Result<(), Fault> {
    transaction.query("SELECT lock_budgets()::text", &[]).await.map(|_| ())
}

async fn budget_by_id(transaction: &Transaction, tenant_id: Uuid, id: Uuid) -> Result<Option<Budget>, Fault> {
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE tenant_id = $1 AND id = $2");
    Ok(first(&transaction.query(&sql, &[p(&tenant_id), p(&id)]).await?, row::budget)?)
}

/// False where there is one with this id or name.
async fn insert(transaction: &Transaction, budget: &Budget) -> Result<bool, Fault> {
    let (subject, at) = (clean_or_null(budget.subject.as_deref()), ms(budget.created_at));
    let (scope, period, unit) = (budget.scope.as_str(), budget.period.as_str(), budget.unit.as_str());
    let values = [
        p(&budget.tenant_id),
        p(&budget.id),
        p(&scope),
        p(&subject),
        p(&period),
        p(&unit),
        p(&budget.limit),
        p(&budget.configured),
        p(&at),
    ];
    let sql = "INSERT INTO budgets (tenant_id, id, scope, subject, period, unit, max_amount, configured, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING true";
    if transaction.query(sql, &values).await?.is_empty() {
        return Ok(false);
    }
    let start = vec![budget.period.start_at(at)];
    transaction.query(SETTLE, &[p(&budget.tenant_id), p(&budget.id), (&start, Type::DATE_ARRAY)]).await?;
    Ok(true)
}

/// Deletes a budget with its counters and reservations. The reservations go last: none can be added when the counters are gone.
async fn delete(transaction: &Transaction, tenant_id: Uuid, id: Uuid) -> Result<(), Fault> {
    let key = [p(&tenant_id), p(&id)];
    let lock = "SELECT 1 FROM budget_periods WHERE tenant_id = $1 AND budget_id = $2 ORDER BY subject, period_start FOR UPDATE";
    transaction.query(lock, &key).await?;
    transaction.query("DELETE FROM budgets WHERE tenant_id = $1 AND id = $2", &key).await?;
    transaction.query("DELETE FROM budget_reservations WHERE tenant_id = $1 AND budget_id = $2", &key).await?;
    Ok(())
}

/// Finds the budgets that name a person or a key of theirs. The counters of budgets for each person stay, as the usage rows do.
pub(super) const OF_PERSON: &str = "SELECT id FROM budgets WHERE tenant_id = $1 AND (scope = 'user' AND subject = $2
    OR scope = 'key' AND subject IN (SELECT id::text FROM api_keys WHERE tenant_id = $1 AND user_id = $2))";

/// Deletes budgets, as `werkruf_system`.
pub(super) async fn delete_all(transaction: &Transaction, tenant_id: Uuid, ids: &[Uuid]) -> Result<(), Fault> {
    for id in ids {
        delete(transaction, tenant_id, *id).await?;
    }
    if ids.is_empty() { Ok(()) } else { raise_version(transaction, tenant_id).await }
}

/// Every process learns by the version that it must read the budgets again.
async fn raise_version(transaction: &Transaction, tenant_id: Uuid) -> Result<(), Fault> {
    let sql = "UPDATE tenants SET budgets_version = budgets_version + 1 WHERE id = $1 RETURNING true";
    let raised = transaction.query(sql, &[p(&tenant_id)]).await?;
    if raised.is_empty() { Err(no_tenant(tenant_id).into()) } else { Ok(()) }
}

async fn put_configured(transaction: &Transaction, recorder: &crate::Recorder, budgets: &[Budget], now: Timestamp) -> Result<(), Fault> {
    lock_budgets(transaction).await?;
    let stored = all(&transaction.query(&format!("SELECT {BUDGET} FROM budgets"), &[]).await?, row::budget)?;
    let change = ConfiguredChange::new(stored, budgets, now);
    for budget in &change.delete {
        delete(transaction, budget.tenant_id, budget.id).await?;
    }
    for (_, budget) in &change.change {
        let sql = "UPDATE budgets SET max_amount = $3, configured = $4 WHERE tenant_id = $1 AND id = $2";
        let values = [p(&budget.tenant_id), p(&budget.id), p(&budget.limit), p(&budget.configured)];
        transaction.query(sql, &values).await?;
    }
    for budget in &change.create {
        insert(transaction, budget).await?;
    }
    for (tenant_id, acts) in change.acts() {
        raise_version(transaction, tenant_id).await?;
        record(transaction, recorder, tenant_id, &Author::server(), &acts, now).await?;
    }
    Ok(())
}
