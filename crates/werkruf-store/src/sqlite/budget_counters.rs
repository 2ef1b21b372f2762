//! The changes that one transaction makes to the counters of a tenant's budgets. A counter is written once, and read only where a claim needs room.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::row::{self, Columns, all, first};
use super::text::{Id, Stamp};
use crate::budgets::written_between;
use crate::reading::BUDGET;
use crate::{Budget, BudgetClaim, BudgetCounter, NewReservation, OverBudget, StoreError};

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

/// What a transaction adds to a counter. The row is read only where a claim asks for its values.
struct Counter {
    key: Key,
    stored: Option<Stored>,
    used: i64,
    reserved: i64,
    /// The row is inserted where it is missing and its budget exists.
    is_listed: bool,
}

/// A counter as it is before the changes.
#[derive(Clone, Copy)]
enum Stored {
    Row {
        used: i64,
        reserved: i64,
    },
    /// The first change inserts the row.
    NoRow,
    /// The budget was deleted, or was made after the period.
    NoBudget,
}

/// A row of `budget_reservations`.
struct Reserved {
    id: Uuid,
    key: Key,
    amount: i64,
    expires_at: Timestamp,
}

impl Reserved {
    /// Whether the row of this reservation, which ends, is as good for the next one.
    fn serves(&self, next: &Self) -> bool {
        (self.id, &self.key, self.amount) == (next.id, &next.key, next.amount) && self.expires_at >= next.expires_at
    }
}

/// Nothing is written before [`CounterChanges::write`].
pub(super) struct CounterChanges<'a> {
    c: &'a Connection,
    tenant: &'a Id,
    counters: Vec<Counter>,
    ended: Vec<Reserved>,
    added: Vec<(Reserved, Option<Uuid>)>,
}

impl<'a> CounterChanges<'a> {
    pub(super) const fn new(c: &'a Connection, tenant: &'a Id) -> Self {
        Self { c, tenant, counters: Vec::new(), ended: Vec::new(), added: Vec::new() }
    }

    fn counter(&mut self, key: &Key) -> &mut Counter {
        let place = self.counters.iter().position(|known| known.key == *key).unwrap_or_else(|| {
            self.counters.push(Counter { key: key.clone(), stored: None, used: 0, reserved: 0, is_listed: false });
            self.counters.len() - 1
        });
        &mut self.counters[place]
    }

    /// The used and reserved amounts with the changes so far; `None` where there is no budget to count for.
    fn amounts(&mut self, key: &Key) -> Result<Option<(i64, i64)>, StoreError> {
        let (c, tenant) = (self.c, self.tenant);
        let counter = self.counter(key);
        let stored = match counter.stored {
            Some(stored) => stored,
            None => *counter.stored.insert(read(c, tenant, key)?),
        };
        Ok(match stored {
            Stored::Row { used, reserved } => Some((used + counter.used, reserved + counter.reserved)),
            Stored::NoRow => Some((counter.used, counter.reserved)),
            Stored::NoBudget => None,
        })
    }

    /// A usage row counts. A counter without a row gets one even where nothing was used, so that it is listed.
    pub(super) fn count(&mut self, counter: &BudgetCounter, amount: i64) {
        let counter = self.counter(&Key::from(counter));
        counter.used += amount;
        counter.is_listed = true;
    }

    /// A usage row that is deleted counted towards the counters that are stored.
    pub(super) fn uncount(&mut self, counter: &BudgetCounter, amount: i64) {
        self.counter(&Key::from(counter)).used -= amount;
    }

    /// Ends a reservation; one that is gone is no error. Returns whether there was one.
    pub(super) fn end(&mut self, id: Uuid) -> Result<bool, StoreError> {
        let found = all(&mut *self.c.prepare_cached(RESERVATION)?, params![self.tenant, Id::from(id)], reserved)?;
        let is_there = !found.is_empty();
        self.end_rows(found);
        Ok(is_there)
    }

    /// Ends a reservation that is over at this time. Its id may have been reserved again since it was found.
    pub(super) fn end_expired(&mut self, id: Uuid, now: Timestamp) -> Result<bool, StoreError> {
        let mut found = all(&mut *self.c.prepare_cached(RESERVATION)?, params![self.tenant, Id::from(id)], reserved)?;
        found.retain(|row| row.expires_at <= now);
        let is_there = !found.is_empty();
        self.end_rows(found);
        Ok(is_there)
    }

    /// Ends all reservations of a turn.
    pub(super) fn end_of_turn(&mut self, turn: &Id) -> Result<(), StoreError> {
        let found = all(&mut *self.c.prepare_cached(OF_TURN)?, params![self.tenant, turn], reserved)?;
        self.end_rows(found);
        Ok(())
    }

    fn end_rows(&mut self, rows: Vec<Reserved>) {
        for row in rows {
            if self.ended.iter().any(|known| known.id == row.id && known.key == row.key) {
                continue;
            }
            self.counter(&row.key).reserved -= row.amount;
            self.ended.push(row);
        }
    }

    /// The first claim that has no room. The claim of a budget that was deleted has.
    pub(super) fn refusal(&mut self, claims: &[BudgetClaim]) -> Result<Option<OverBudget>, StoreError> {
        for claim in claims {
            let Some((used, reserved)) = self.amounts(&Key::from(&claim.counter))? else { continue };
            if let Some(over) = claim.over(used, reserved) {
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
            if amount <= 0 || self.amounts(&key)?.is_none() {
                continue;
            }
            let counter = self.counter(&key);
            counter.reserved += amount;
            counter.is_listed = true;
            self.added.push((Reserved { id: reservation.id, key, amount, expires_at: reservation.expires_at }, turn_id));
        }
        Ok(())
    }

    /// Reserves where every claim has room, and says which has none otherwise.
    pub(super) fn reserve(&mut self, reservation: &NewReservation, turn_id: Uuid) -> Result<Option<OverBudget>, StoreError> {
        if let [claim] = reservation.claims.as_slice()
            && self.reserve_at_once(claim)?
        {
            let (id, amount, expires_at) = (reservation.id, claim.amount, reservation.expires_at);
            self.added.push((Reserved { id, key: Key::from(&claim.counter), amount, expires_at }, Some(turn_id)));
            return Ok(None);
        }
        let refused = self.refusal(&reservation.claims)?;
        if refused.is_none() {
            self.begin(reservation, Some(turn_id), |_| 0)?;
        }
        Ok(refused)
    }

    /// Changes the counter of the only claim, if its row is there and has room: one statement instead of a read and a write. Otherwise nothing happens.
    fn reserve_at_once(&mut self, claim: &BudgetClaim) -> Result<bool, StoreError> {
        let (c, tenant) = (self.c, self.tenant);
        let counter = self.counter(&Key::from(&claim.counter));
        if counter.stored.is_some() || claim.amount <= 0 {
            return Ok(false);
        }
        let (Key { budget_id, subject, start }, reserved) = (&counter.key, counter.reserved + claim.amount);
        let values = params![tenant, Id::from(*budget_id), subject, date(*start), counter.used, reserved, claim.limit];
        let is_reserved = c.prepare_cached(RESERVE_WITHIN)?.execute(values)? == 1;
        if is_reserved {
            (counter.used, counter.reserved, counter.is_listed) = (0, 0, false);
        }
        Ok(is_reserved)
    }

    /// Writes each counter, and the reservations. A reservation that replaces one of the same counter takes its row; one that is the same needs no write.
    pub(super) fn write(self) -> Result<(), StoreError> {
        let Self { c, tenant, counters, mut ended, added } = self;
        for counter in &counters {
            write_counter(c, tenant, counter)?;
        }
        for (row, turn_id) in added {
            // The row with the same id first: another one cannot take this id while that row is there.
            let same = ended.iter().position(|old| old.key == row.key && old.id == row.id);
            let place = same.or_else(|| ended.iter().position(|old| old.key == row.key));
            let replaced = place.map(|place| ended.swap_remove(place));
            if replaced.as_ref().is_some_and(|old| old.serves(&row)) {
                continue;
            }
            let (id, start) = (Id::from(row.id), date(row.key.start));
            let (budget, turn, expires) = (Id::from(row.key.budget_id), turn_id.map(Id::from), Stamp::from(row.expires_at));
            match replaced {
                Some(old) => {
                    let values = params![tenant, id, budget, row.key.subject, start, row.amount, turn, expires, Id::from(old.id)];
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

fn read(c: &Connection, tenant: &Id, key: &Key) -> Result<Stored, StoreError> {
    let values = params![tenant, Id::from(key.budget_id), key.subject, date(key.start)];
    let row =
        first(&mut *c.prepare_cached(COUNTER)?, values, |columns| Ok(Stored::Row { used: columns.int()?, reserved: columns.int()? }))?;
    match row {
        Some(row) => Ok(row),
        // When the budget was made, everybody who had used something got a counter.
        None => match budget(c, tenant, key.budget_id)? {
            Some(budget) if !budget.is_before(key.start) => Ok(Stored::NoRow),
            Some(_) | None => Ok(Stored::NoBudget),
        },
    }
}

fn write_counter(c: &Connection, tenant: &Id, counter: &Counter) -> Result<(), StoreError> {
    let (Key { budget_id, subject, start }, is_changed) = (&counter.key, counter.used != 0 || counter.reserved != 0);
    if !is_changed && !counter.is_listed {
        return Ok(());
    }
    let values = params![tenant, Id::from(*budget_id), subject, date(*start), counter.used, counter.reserved];
    if c.prepare_cached(CHANGE)?.execute(values)? == 0 && counter.is_listed && matches!(read(c, tenant, &counter.key)?, Stored::NoRow) {
        c.prepare_cached(INSERT)?.execute(values)?;
    }
    Ok(())
}

const COUNTER: &str =
    "SELECT used, reserved FROM budget_periods WHERE tenant_id = ?1 AND budget_id = ?2 AND subject = ?3 AND period_start = ?4";
const CHANGE: &str = "UPDATE budget_periods SET used = used + ?5, reserved = max(reserved + ?6, 0)
    WHERE tenant_id = ?1 AND budget_id = ?2 AND subject = ?3 AND period_start = ?4";
const RESERVE_WITHIN: &str = "UPDATE budget_periods SET used = used + ?5, reserved = max(reserved + ?6, 0)
    WHERE tenant_id = ?1 AND budget_id = ?2 AND subject = ?3 AND period_start = ?4 AND used + ?5 + reserved + ?6 <= ?7";
const INSERT: &str =
    "INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved) VALUES (?1, ?2, ?3, ?4, ?5, max(?6, 0))";
const RESERVATION: &str =
    "SELECT id, budget_id, subject, period_start, amount, expires_at FROM budget_reservations WHERE tenant_id = ?1 AND id = ?2";
const OF_TURN: &str =
    "SELECT id, budget_id, subject, period_start, amount, expires_at FROM budget_reservations WHERE tenant_id = ?1 AND turn_id = ?2";
const RESERVE: &str = "INSERT INTO budget_reservations (tenant_id, id, budget_id, subject, period_start, amount, turn_id, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const REPLACE: &str = "UPDATE budget_reservations SET id = ?2, amount = ?6, turn_id = ?7, expires_at = ?8
    WHERE tenant_id = ?1 AND id = ?9 AND budget_id = ?3 AND subject = ?4 AND period_start = ?5";
const END: &str =
    "DELETE FROM budget_reservations WHERE tenant_id = ?1 AND id = ?2 AND budget_id = ?3 AND subject = ?4 AND period_start = ?5";

fn reserved(columns: &mut Columns<'_>) -> Result<Reserved, StoreError> {
    let id = columns.id()?;
    let key = Key { budget_id: columns.id()?, subject: columns.text()?, start: columns.parsed(|text| text.parse().ok())? };
    Ok(Reserved { id, key, amount: columns.int()?, expires_at: columns.time()? })
}

pub(super) fn budget(c: &Connection, tenant: &Id, id: Uuid) -> Result<Option<Budget>, StoreError> {
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE tenant_id = ?1 AND id = ?2");
    first(&mut *c.prepare_cached(&sql)?, params![tenant, Id::from(id)], row::budget)
}

pub(super) fn all_budgets_of(c: &Connection, tenant: &Id) -> Result<Vec<Budget>, StoreError> {
    let sql = format!("SELECT {BUDGET} FROM budgets WHERE tenant_id = ?1");
    all(&mut *c.prepare_cached(&sql)?, params![tenant], row::budget)
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
    [COUNTER, CHANGE, RESERVE_WITHIN, RESERVATION, REPLACE, END].map(str::to_owned).to_vec()
}
