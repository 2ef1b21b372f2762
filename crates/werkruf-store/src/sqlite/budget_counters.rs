//! The changes that one transaction makes to the counters of a tenant's budgets. A counter is read once and written once.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::row::{Columns, all, first};
use super::text::{Id, Stamp};
use crate::budgets::written_between;
use crate::{Budget, BudgetClaim, BudgetCounter, BudgetPeriod, BudgetScope, BudgetUnit, NewReservation, OverBudget, StoreError};

/// A date as the tables store it.
pub(super) fn date(day: Date) -> String {
    day.to_string()
}

/// The key of a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    budget_id: Uuid,
    subject: String,
    start: Date,
}

impl From<&BudgetCounter> for Key {
    fn from(counter: &BudgetCounter) -> Self {
        Self { budget_id: counter.budget_id, subject: counter.subject.clone(), start: counter.period_start }
    }
}

struct Counter {
    key: Key,
    /// False: the first change inserts the row.
    stored: bool,
    changed: bool,
    used: i64,
    reserved: i64,
}

/// A row of `budget_reservations`.
struct Reserved {
    id: Uuid,
    key: Key,
    amount: i64,
}

/// What the row of a reservation says besides.
struct Owner {
    turn_id: Option<Uuid>,
    expires_at: Timestamp,
}

/// Nothing is written before [`CounterChanges::write`].
pub(super) struct CounterChanges<'a> {
    c: &'a Connection,
    tenant: &'a Id,
    counters: Vec<Counter>,
    ended: Vec<Reserved>,
    added: Vec<(Reserved, Owner)>,
}

impl<'a> CounterChanges<'a> {
    pub(super) const fn new(c: &'a Connection, tenant: &'a Id) -> Self {
        Self { c, tenant, counters: Vec::new(), ended: Vec::new(), added: Vec::new() }
    }

    /// The counter, if its budget still exists.
    fn counter(&mut self, key: &Key) -> Result<Option<&mut Counter>, StoreError> {
        let place = match self.counters.iter().position(|known| known.key == *key) {
            Some(place) => place,
            None => {
                let Some(found) = self.read(key)? else { return Ok(None) };
                self.counters.push(found);
                self.counters.len() - 1
            }
        };
        Ok(self.counters.get_mut(place))
    }

    fn read(&self, key: &Key) -> Result<Option<Counter>, StoreError> {
        let values = params![self.tenant, Id::from(key.budget_id), key.subject, date(key.start)];
        let stored = first(&mut *self.c.prepare_cached(COUNTER)?, values, |columns| Ok((columns.int()?, columns.int()?)))?;
        let (stored, used, reserved) = match stored {
            Some((used, reserved)) => (true, used, reserved),
            // When the budget was made, everybody who had used something got a counter.
            None => match budget(self.c, self.tenant, key.budget_id)? {
                Some(budget) if !budget.is_before(key.start) => (false, 0, 0),
                Some(_) | None => return Ok(None),
            },
        };
        Ok(Some(Counter { key: key.clone(), stored, changed: false, used, reserved }))
    }

    /// A usage row counts.
    pub(super) fn count(&mut self, counter: &BudgetCounter, amount: i64) -> Result<(), StoreError> {
        if let Some(counter) = self.counter(&Key::from(counter))? {
            counter.used += amount;
            // A counter without a row is written even where nothing was used, so that it is listed.
            counter.changed |= amount != 0 || !counter.stored;
        }
        Ok(())
    }

    /// A usage row that is deleted counted towards the counters that are stored.
    pub(super) fn uncount(&mut self, counter: &BudgetCounter, amount: i64) -> Result<(), StoreError> {
        if let Some(counter) = self.counter(&Key::from(counter))?.filter(|counter| counter.stored) {
            counter.used -= amount;
            counter.changed = true;
        }
        Ok(())
    }

    /// Ends a reservation; one that is gone is no error. Returns whether there was one.
    pub(super) fn end(&mut self, id: Uuid) -> Result<bool, StoreError> {
        let found = all(&mut *self.c.prepare_cached(RESERVATION)?, params![self.tenant, Id::from(id)], reserved)?;
        let is_there = !found.is_empty();
        self.end_rows(found)?;
        Ok(is_there)
    }

    /// Ends all reservations of a turn.
    pub(super) fn end_of_turn(&mut self, turn: &Id) -> Result<(), StoreError> {
        let found = all(&mut *self.c.prepare_cached(OF_TURN)?, params![self.tenant, turn], reserved)?;
        self.end_rows(found)
    }

    fn end_rows(&mut self, rows: Vec<Reserved>) -> Result<(), StoreError> {
        for row in rows {
            if self.ended.iter().any(|known| known.id == row.id && known.key == row.key) {
                continue;
            }
            if let Some(counter) = self.counter(&row.key)? {
                counter.reserved -= row.amount;
                counter.changed = true;
            }
            self.ended.push(row);
        }
        Ok(())
    }

    /// The first claim that has no room. The claim of a budget that was deleted has.
    pub(super) fn refusal(&mut self, claims: &[BudgetClaim]) -> Result<Option<OverBudget>, StoreError> {
        for claim in claims {
            let Some(counter) = self.counter(&Key::from(&claim.counter))? else { continue };
            if let Some(over) = claim.over(counter.used, counter.reserved) {
                return Ok(Some(over));
            }
        }
        Ok(None)
    }

    /// Reserves without a check. `less` is what a usage row in the same transaction has used of a claim.
    pub(super) fn begin(
        &mut self,
        reservation: &NewReservation,
        turn_id: Option<Uuid>,
        less: impl Fn(&BudgetClaim) -> i64,
    ) -> Result<(), StoreError> {
        for claim in &reservation.claims {
            let (key, amount) = (Key::from(&claim.counter), claim.amount - less(claim));
            let Some(counter) = self.counter(&key)?.filter(|_| amount > 0) else { continue };
            counter.reserved += amount;
            counter.changed = true;
            self.added.push((Reserved { id: reservation.id, key, amount }, Owner { turn_id, expires_at: reservation.expires_at }));
        }
        Ok(())
    }

    /// Reserves where every claim has room, and says which has none otherwise.
    pub(super) fn reserve(&mut self, reservation: &NewReservation, turn_id: Uuid) -> Result<Option<OverBudget>, StoreError> {
        let refused = self.refusal(&reservation.claims)?;
        if refused.is_none() {
            self.begin(reservation, Some(turn_id), |_| 0)?;
        }
        Ok(refused)
    }

    /// Writes each counter that changed, and the reservations. A reservation that replaces one of the same counter takes its row.
    pub(super) fn write(self) -> Result<(), StoreError> {
        let Self { c, tenant, counters, mut ended, added } = self;
        for counter in counters.iter().filter(|counter| counter.changed) {
            let sql = if counter.stored { CHANGE } else { INSERT };
            let Key { budget_id, subject, start } = &counter.key;
            c.prepare_cached(sql)?.execute(params![tenant, Id::from(*budget_id), subject, date(*start), counter.used, counter.reserved])?;
        }
        for (row, owner) in added {
            let (id, start) = (Id::from(row.id), date(row.key.start));
            let (budget, turn, expires) = (Id::from(row.key.budget_id), owner.turn_id.map(Id::from), Stamp::from(owner.expires_at));
            match ended.iter().position(|old| old.key == row.key) {
                Some(place) => {
                    let old = Id::from(ended.swap_remove(place).id);
                    let values = params![tenant, id, budget, row.key.subject, start, row.amount, turn, expires, old];
                    c.prepare_cached(REPLACE)?.execute(values)?
                }
                None => {
                    c.prepare_cached(RESERVE)?.execute(params![tenant, id, budget, row.key.subject, start, row.amount, turn, expires])?
                }
            };
        }
        for Reserved { id, key, .. } in ended {
            let values = params![tenant, Id::from(id), Id::from(key.budget_id), key.subject, date(key.start)];
            c.prepare_cached(END)?.execute(values)?;
        }
        Ok(())
    }
}

const COUNTER: &str =
    "SELECT used, reserved FROM budget_periods WHERE tenant_id = ?1 AND budget_id = ?2 AND subject = ?3 AND period_start = ?4";
const CHANGE: &str = "UPDATE budget_periods SET used = ?5, reserved = max(?6, 0)
    WHERE tenant_id = ?1 AND budget_id = ?2 AND subject = ?3 AND period_start = ?4";
const INSERT: &str =
    "INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const RESERVATION: &str = "SELECT id, budget_id, subject, period_start, amount FROM budget_reservations WHERE tenant_id = ?1 AND id = ?2";
const OF_TURN: &str = "SELECT id, budget_id, subject, period_start, amount FROM budget_reservations WHERE tenant_id = ?1 AND turn_id = ?2";
const RESERVE: &str = "INSERT INTO budget_reservations (tenant_id, id, budget_id, subject, period_start, amount, turn_id, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const REPLACE: &str = "UPDATE budget_reservations SET id = ?2, amount = ?6, turn_id = ?7, expires_at = ?8
    WHERE tenant_id = ?1 AND id = ?9 AND budget_id = ?3 AND subject = ?4 AND period_start = ?5";
const END: &str =
    "DELETE FROM budget_reservations WHERE tenant_id = ?1 AND id = ?2 AND budget_id = ?3 AND subject = ?4 AND period_start = ?5";

fn reserved(columns: &mut Columns<'_>) -> Result<Reserved, StoreError> {
    let id = columns.id()?;
    let key = Key { budget_id: columns.id()?, subject: columns.text()?, start: columns.parsed(|text| text.parse().ok())? };
    Ok(Reserved { id, key, amount: columns.int()? })
}

/// The columns of [`read_budget`].
pub(super) const BUDGET: &str = "id, tenant_id, scope, subject, period, unit, max_amount, configured, created_at";

pub(super) fn read_budget(columns: &mut Columns<'_>) -> Result<Budget, StoreError> {
    Ok(Budget {
        id: columns.id()?,
        tenant_id: columns.id()?,
        scope: columns.parsed(BudgetScope::parse)?,
        subject: columns.text_or_null()?,
        period: columns.parsed(BudgetPeriod::parse)?,
        unit: columns.parsed(BudgetUnit::parse)?,
        limit: columns.int()?,
        configured: columns.flag()?,
        created_at: columns.time()?,
    })
}

pub(super) fn budget(c: &Connection, tenant: &Id, id: Uuid) -> Result<Option<Budget>, StoreError> {
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE tenant_id = ?1 AND id = ?2");
    first(&mut *c.prepare_cached(&sql)?, params![tenant, Id::from(id)], read_budget)
}

pub(super) fn all_budgets_of(c: &Connection, tenant: &Id) -> Result<Vec<Budget>, StoreError> {
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE tenant_id = ?1");
    all(&mut *c.prepare_cached(&sql)?, params![tenant], read_budget)
}

/// One statement, so that the rows and the counters are of one moment. Calls of tools with a price are no model requests.
const UNCOUNTED: &str = "SELECT of, used - coalesce((SELECT budget_periods.used FROM budget_periods
        WHERE tenant_id = ?1 AND budget_id = ?9 AND subject = of AND period_start = ?4), 0) AS uncounted
    FROM (SELECT CASE ?6 WHEN 'tenant' THEN '' WHEN 'user' THEN user_id WHEN 'key' THEN key_id ELSE assistant END AS of,
        sum(CASE ?7 WHEN 'tokens' THEN tokens_total WHEN 'nano_usd' THEN coalesce(cost_nano_usd, 0) ELSE 1 END) AS used
      FROM api_usage WHERE tenant_id = ?1 AND created_at >= ?2 AND created_at < ?3
        AND coalesce(counted_on, substr(created_at, 1, 10)) BETWEEN ?4 AND ?5 AND (?8 IS NULL OR of = ?8) AND (?6 = 'tenant' OR of <> '')
        AND operation <> 'tool'
      GROUP BY 1)
    WHERE uncounted > 0";

/// What usage rows of a period have used that the counters of a budget do not have, by subject.
pub(super) fn uncounted(c: &Connection, budget: &Budget, start: Date) -> Result<Vec<(String, i64)>, StoreError> {
    let (from, to) = written_between(budget.period, start);
    let values = params![
        Id::from(budget.tenant_id),
        Stamp::from(from),
        Stamp::from(to),
        date(start),
        date(budget.period.last(start)),
        budget.scope.as_str(),
        budget.unit.as_str(),
        budget.subject,
        Id::from(budget.id),
    ];
    all(&mut *c.prepare_cached(UNCOUNTED)?, values, |columns| Ok((columns.text()?, columns.int()?)))
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    [COUNTER, CHANGE, RESERVATION, REPLACE, END].map(str::to_owned).to_vec()
}
