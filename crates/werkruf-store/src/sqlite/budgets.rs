//! [`Budgets`], [`ManageBudgets`] and [`BudgetStatistics`] on SQLite.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::record;
use super::budget_counters::{CounterChanges, budget, date, uncounted};
use super::row::{self, all};
use super::text::{Id, Stamp};
use super::usage::put_usage_row;
use crate::budgets::{ConfiguredChange, MOST_SUBJECTS, SETTLED_AFTER, created, deleted, no_tenant};
use crate::reading::{BUDGET, qualified};
use crate::{
    Author, Budget, BudgetPeriod, BudgetScope, BudgetStatistics, BudgetUse, Budgets, ManageBudgets, NewReservation, NewUsage, OverBudget,
    StoreError, StoreFuture, TenantBudgets, UsageOwner,
};

impl Budgets for SqliteStore {
    fn all_budgets(&self) -> StoreFuture<'_, Vec<TenantBudgets>> {
        Box::pin(self.readers.list(|c| {
            // One statement: the version is that of these budgets.
            let sql = format!(
                "SELECT tenants.id, budgets_version, budgets.id IS NOT NULL, {} FROM tenants LEFT JOIN budgets ON budgets.tenant_id = tenants.id
                 WHERE budgets_version > 0 ORDER BY tenants.id, budgets.id",
                qualified(BUDGET, "budgets")
            );
            Ok(TenantBudgets::collect(all(&mut *c.prepare_cached(&sql)?, [], row::tenant_budget)?))
        }))
    }

    fn reserve(
        &self,
        owner: UsageOwner,
        reservation: NewReservation,
        usage: Option<NewUsage>,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<OverBudget>> {
        Box::pin(self.writer.submit(move |c| {
            let tenant = Id::from(owner.tenant_id);
            let mut changes = CounterChanges::new(c, &tenant);
            if let Some(refused) = changes.refusal(&reservation.claims)? {
                return Ok(Some(refused));
            }
            if let Some(usage) = &usage {
                put_usage_row(c, &owner, usage, now, &mut changes)?;
            }
            changes.begin(&reservation, owner.turn_id, |claim| claim.used_by(usage.as_ref()))?;
            changes.write()?;
            Ok(None)
        }))
    }

    fn release_expired(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let young = self.readers.look_up(|c| unsettled(c, now)).await?;
            for budget in young {
                // The sums may take a while, and the writer does not wait for them: what is uncounted does not change by rows that are counted.
                let found = self
                    .readers
                    .list(move |c| {
                        let of_start = |start| Ok((start, uncounted(c, &budget, start)?));
                        let found: Result<Vec<_>, StoreError> = budget.first_periods().into_iter().map(of_start).collect();
                        Ok((budget, found?))
                    })
                    .await?;
                self.writer.submit(move |c| settle(c, &found.0, &found.1)).await?;
            }
            let expired = self.readers.look_up(|c| expired(c, now)).await?;
            // In most cases there is nothing to do, and no need for the writer.
            if expired.is_empty() {
                return Ok(0);
            }
            self.writer.submit(move |c| release(c, &expired, now)).await
        })
    }
}

impl ManageBudgets for SqliteStore {
    fn create_budget(&self, budget: Budget, by: Author) -> StoreFuture<'_, bool> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            if !insert(c, &budget)? {
                return Ok(false);
            }
            raise_version(c, budget.tenant_id)?;
            record(c, &recorder, budget.tenant_id, &by, &[created(&budget)], budget.created_at)?;
            Ok(true)
        }))
    }

    fn delete_budget(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let (recorder, at) = (self.recorder.clone(), self.clock.now());
        Box::pin(self.writer.submit(move |c| {
            let Some(found) = budget(c, &Id::from(tenant_id), id)? else { return Ok(false) };
            delete(c, tenant_id, id)?;
            raise_version(c, tenant_id)?;
            record(c, &recorder, tenant_id, &by, &[deleted(&found)], at)?;
            Ok(true)
        }))
    }

    fn put_configured_budgets(&self, budgets: Vec<Budget>, now: Timestamp) -> StoreFuture<'_, ()> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let stored = all(&mut c.prepare(&format!("SELECT {BUDGET} FROM budgets"))?, [], row::budget)?;
            let change = ConfiguredChange::new(stored, &budgets, now);
            for budget in &change.delete {
                delete(c, budget.tenant_id, budget.id)?;
            }
            for (_, budget) in &change.change {
                let values = params![Id::from(budget.tenant_id), Id::from(budget.id), budget.limit, budget.configured];
                c.execute("UPDATE budgets SET max_amount = ?3, configured = ?4 WHERE tenant_id = ?1 AND id = ?2", values)?;
            }
            for budget in &change.create {
                insert(c, budget)?;
            }
            for (tenant_id, acts) in change.acts() {
                raise_version(c, tenant_id)?;
                record(c, &recorder, tenant_id, &Author::server(), &acts, now)?;
            }
            Ok(())
        }))
    }
}

impl BudgetStatistics for SqliteStore {
    fn budget_uses(&self, tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Vec<BudgetUse>> {
        Box::pin(self.readers.list(move |c| {
            let [day, month] = [BudgetPeriod::Day, BudgetPeriod::Month].map(|period| date(period.start_at(now)));
            let values = params![Id::from(tenant_id), day, month, MOST_SUBJECTS];
            all(&mut *c.prepare_cached(USES)?, values, row::budget_use)
        }))
    }

    fn half_used_budgets(&self, now: Timestamp) -> StoreFuture<'_, Vec<(Budget, BudgetUse)>> {
        Box::pin(self.readers.list(move |c| {
            let [day, month] = [BudgetPeriod::Day, BudgetPeriod::Month].map(|period| date(period.start_at(now)));
            all(&mut *c.prepare_cached(&half_used())?, params![day, month], row::used_budget)
        }))
    }
}

const USES: &str = "SELECT budget_id, subject, period, period_start, unit, used, reserved FROM (
      SELECT budget_id, p.subject, period, period_start, unit, used, reserved,
        row_number() OVER (PARTITION BY budget_id ORDER BY used DESC, reserved DESC, p.subject) AS place
      FROM budget_periods AS p INDEXED BY budget_periods_by_start
      JOIN budgets AS b ON b.tenant_id = p.tenant_id AND b.id = budget_id
      WHERE p.tenant_id = ?1 AND period_start IN (?2, ?3) AND period_start = CASE period WHEN 'day' THEN ?2 ELSE ?3 END)
    WHERE place <= ?4 ORDER BY budget_id, subject";

/// The half is rounded up.
fn half_used() -> String {
    format!(
        "SELECT {}, p.subject, period_start, used, reserved FROM budget_periods AS p INDEXED BY budget_periods_by_start
         JOIN budgets AS b ON b.tenant_id = p.tenant_id AND b.id = budget_id
         WHERE period_start IN (?1, ?2) AND period_start = CASE period WHEN 'day' THEN ?1 ELSE ?2 END
           AND max_amount > 0 AND used >= max_amount - max_amount / 2 ORDER BY b.tenant_id, b.id, p.subject",
        qualified(BUDGET, "b")
    )
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    vec![half_used()]
}

const EXPIRED: &str = "SELECT DISTINCT tenant_id, id FROM budget_reservations WHERE expires_at <= ?1";

fn expired(c: &Connection, now: Timestamp) -> Result<Vec<(Uuid, Uuid)>, StoreError> {
    all(&mut *c.prepare_cached(EXPIRED)?, params![Stamp::from(now)], |columns| Ok((columns.id()?, columns.id()?)))
}

/// Returns how many of these reservations there still were.
fn release(c: &Connection, expired: &[(Uuid, Uuid)], now: Timestamp) -> Result<u64, StoreError> {
    let mut released = 0;
    for (tenant_id, id) in expired {
        let tenant = Id::from(*tenant_id);
        let mut changes = CounterChanges::new(c, &tenant);
        released += u64::from(changes.end_expired(*id, now)?);
        changes.write()?;
    }
    Ok(released)
}

/// Budgets that every process knows by now.
fn unsettled(c: &Connection, now: Timestamp) -> Result<Vec<Budget>, StoreError> {
    let known = Stamp::from(now.checked_sub(SETTLED_AFTER).unwrap_or(now));
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE NOT settled AND created_at <= ?1");
    all(&mut *c.prepare_cached(&sql)?, params![known], row::budget)
}

fn settle(c: &Connection, budget: &Budget, found: &[(Date, Vec<(String, i64)>)]) -> Result<(), StoreError> {
    let values = params![Id::from(budget.tenant_id), Id::from(budget.id)];
    // Another call may have settled it, or it was deleted.
    if c.execute("UPDATE budgets SET settled = 1 WHERE tenant_id = ?1 AND id = ?2 AND NOT settled", values)? == 1 {
        for (start, uncounted) in found {
            add(c, budget, *start, uncounted)?;
        }
    }
    Ok(())
}

fn add(c: &Connection, budget: &Budget, start: Date, uncounted: &[(String, i64)]) -> Result<(), StoreError> {
    for (subject, used) in uncounted {
        c.prepare_cached(
            "INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved) VALUES (?1, ?2, ?3, ?4, ?5, 0)
             ON CONFLICT (tenant_id, budget_id, subject, period_start) DO UPDATE SET used = used + excluded.used",
        )?
        .execute(params![Id::from(budget.tenant_id), Id::from(budget.id), subject, date(start), used])?;
    }
    Ok(())
}

/// False where there is one with this id or name.
fn insert(c: &Connection, budget: &Budget) -> Result<bool, StoreError> {
    let inserted = c.execute(
        "INSERT INTO budgets (tenant_id, id, scope, subject, period, unit, max_amount, configured, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        params![
            Id::from(budget.tenant_id),
            Id::from(budget.id),
            budget.scope.as_str(),
            budget.subject,
            budget.period.as_str(),
            budget.unit.as_str(),
            budget.limit,
            budget.configured,
            Stamp::from(budget.created_at),
        ],
    )?;
    if inserted == 1 {
        let start = budget.period.start_at(budget.created_at);
        let mut used = uncounted(c, budget, start)?;
        // A budget for one counter always has it.
        let own = if budget.scope == BudgetScope::Tenant { Some(String::new()) } else { budget.subject.clone() };
        used.extend(own.filter(|_| used.is_empty()).map(|own| (own, 0)));
        add(c, budget, start, &used)?;
    }
    Ok(inserted == 1)
}

/// Deletes a budget with its counters and reservations.
fn delete(c: &Connection, tenant_id: Uuid, id: Uuid) -> Result<(), StoreError> {
    let values = params![Id::from(tenant_id), Id::from(id)];
    c.execute("DELETE FROM budget_reservations WHERE tenant_id = ?1 AND budget_id = ?2", values)?;
    c.execute("DELETE FROM budgets WHERE tenant_id = ?1 AND id = ?2", values)?;
    Ok(())
}

/// Deletes the budgets that name a person or a key of theirs. The counters of budgets for each person stay, as the usage rows do.
pub(super) fn delete_budgets_of(c: &Connection, tenant_id: Uuid, user_id: &str) -> Result<(), StoreError> {
    let found = all(&mut c.prepare(OF_PERSON)?, params![Id::from(tenant_id), user_id], |columns| columns.id())?;
    for id in &found {
        delete(c, tenant_id, *id)?;
    }
    if found.is_empty() { Ok(()) } else { raise_version(c, tenant_id) }
}

const OF_PERSON: &str = "SELECT id FROM budgets WHERE tenant_id = ?1 AND (scope = 'user' AND subject = ?2
    OR scope = 'key' AND subject IN (SELECT id FROM api_keys WHERE tenant_id = ?1 AND user_id = ?2))";

/// Every process learns by the version that it must read the budgets again.
fn raise_version(c: &Connection, tenant_id: Uuid) -> Result<(), StoreError> {
    let raised = c.execute("UPDATE tenants SET budgets_version = budgets_version + 1 WHERE id = ?1", params![Id::from(tenant_id)])?;
    if raised == 1 { Ok(()) } else { Err(no_tenant(tenant_id)) }
}

#[cfg(test)]
#[path = "budgets_tests.rs"]
mod tests;
