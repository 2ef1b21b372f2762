//! Budgets: what model requests may use in a day or a month.
//!
//! Invariants: `used` of a period is the sum of the usage rows that count towards it, because it changes in the transactions that write these rows.
//! `reserved` is the sum of the reservations in progress, and `used + reserved` is never above the limit when a reservation is granted. A reservation ends with
//! the usage row of its request, with the takeover of its turn, or when it expires.

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde_json::{Value, json};
use werkruf_contract::Uuid;

use crate::audit::{Act, Author};
use crate::usage::{NewUsage, UsageOwner};
use crate::usage_statistics::{day, start_of};
use crate::{StoreError, StoreFuture};

/// Whose requests a budget counts. The order is the order in which periods are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetScope {
    Tenant,
    User,
    Key,
    Assistant,
}

impl BudgetScope {
    /// The value in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::Key => "key",
            Self::Assistant => "assistant",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Tenant, Self::User, Self::Key, Self::Assistant].into_iter().find(|scope| scope.as_str() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetPeriod {
    Day,
    Month,
}

impl BudgetPeriod {
    /// The value in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Day, Self::Month].into_iter().find(|period| period.as_str() == name)
    }

    /// The first day of the period that a day is in.
    pub fn start(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Month => day.first_of_month(),
        }
    }

    /// The first day of the period that contains a moment, in UTC.
    pub fn start_at(self, now: Timestamp) -> Date {
        self.start(day(now))
    }

    /// The last day of the period that a day is in.
    pub fn last(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Month => day.last_of_month(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetUnit {
    Tokens,
    NanoUsd,
    ModelCalls,
}

impl BudgetUnit {
    /// The value in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::NanoUsd => "nano_usd",
            Self::ModelCalls => "model_calls",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Tokens, Self::NanoUsd, Self::ModelCalls].into_iter().find(|unit| unit.as_str() == name)
    }

    /// What a request with these tokens and this cost has used. A request without a price costs nothing.
    pub(crate) fn amount(self, tokens: i64, cost_nano_usd: Option<i64>) -> i64 {
        match self {
            Self::Tokens => tokens,
            Self::NanoUsd => cost_nano_usd.unwrap_or(0),
            Self::ModelCalls => 1,
        }
    }
}

/// One budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub id: Uuid,
    pub tenant_id: Uuid,
    pub scope: BudgetScope,
    /// The user, key or assistant; `None`: each of them has this budget for itself. A tenant has no subject.
    pub subject: Option<String>,
    pub period: BudgetPeriod,
    pub unit: BudgetUnit,
    pub limit: i64,
    /// It comes from the configuration, which alone changes it.
    pub configured: bool,
    pub created_at: Timestamp,
}

impl Budget {
    /// Whether both count the same requests in the same unit: a tenant has one such budget at most.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let name = |budget: &Self| (budget.tenant_id, budget.scope, budget.subject.clone(), budget.period, budget.unit);
        name(self) == name(other)
    }

    /// The counter of the requests of a user, key and assistant on a day; `None` where the budget does not count them.
    pub fn counter(&self, user_id: &str, key_id: Option<&str>, assistant: Option<&str>, day: Date) -> Option<BudgetCounter> {
        let subject = match self.scope {
            BudgetScope::Tenant => "",
            BudgetScope::User => Some(user_id).filter(|id| !id.is_empty())?,
            BudgetScope::Key => key_id?,
            BudgetScope::Assistant => assistant.filter(|name| !name.is_empty())?,
        };
        let counts = self.subject.as_deref().is_none_or(|own| own == subject);
        counts.then(|| BudgetCounter {
            budget_id: self.id,
            subject: subject.to_owned(),
            period: self.period,
            period_start: self.period.start(day),
            unit: self.unit,
        })
    }

    /// Whether the period was over when the budget was made. It has no counters.
    pub(crate) fn is_before(&self, start: Date) -> bool {
        self.period.last(start) < day(self.created_at)
    }

    /// The periods in which processes that did not know the new budget may have written usage rows.
    pub(crate) fn first_periods(&self) -> Vec<Date> {
        let settled = self.created_at.checked_add(SETTLED_AFTER).unwrap_or(self.created_at);
        let mut starts = vec![self.period.start_at(self.created_at), self.period.start_at(settled)];
        starts.dedup();
        starts
    }

    /// What the audit log says about a budget.
    fn value(&self) -> Value {
        json!({
            "scope": self.scope.as_str(),
            "subject": self.subject,
            "period": self.period.as_str(),
            "unit": self.unit.as_str(),
            "limit": self.limit,
            "configured": self.configured,
        })
    }

    fn act(&self, action: &'static str) -> Act {
        let person = self.subject.clone().filter(|_| self.scope == BudgetScope::User);
        Act { person, ..Act::new(action, self.id.to_string()) }
    }
}

/// After this time every process knows a new budget, and no usage row is written any more that does not count towards it.
pub(crate) const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// Of a budget that each user, key or assistant has for itself, so many counters are listed.
pub(crate) const MOST_SUBJECTS: u32 = 100;
/// Counters of periods that began before this are deleted.
pub(crate) const COUNTER_AGE: SignedDuration = SignedDuration::from_hours(92 * 24);

/// How the configured budgets of the database change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredChange {
    pub(crate) delete: Vec<Budget>,
    /// The budget as it is, and as it will be.
    pub(crate) change: Vec<(Budget, Budget)>,
    pub(crate) create: Vec<Budget>,
}

impl ConfiguredChange {
    /// What makes `wanted` of the budgets that are stored.
    pub(crate) fn new(stored: Vec<Budget>, wanted: &[Budget], now: Timestamp) -> Self {
        let mut change = Self::default();
        for budget in wanted {
            match stored.iter().find(|known| known.is_same(budget)) {
                Some(known) if known.configured && known.limit == budget.limit => {}
                Some(known) => change.change.push((known.clone(), Budget { limit: budget.limit, configured: true, ..known.clone() })),
                None => change.create.push(Budget { configured: true, created_at: now, ..budget.clone() }),
            }
        }
        change.delete = stored.into_iter().filter(|known| known.configured && !wanted.iter().any(|budget| budget.is_same(known))).collect();
        change
    }

    /// The tenants with their acts, each once.
    pub(crate) fn acts(&self) -> Vec<(Uuid, Vec<Act>)> {
        let deleted = self.delete.iter().map(|budget| (budget.tenant_id, deleted(budget)));
        let changed = self
            .change
            .iter()
            .map(|(before, after)| (before.tenant_id, before.act("budget.change").before(before.value()).after(after.value())));
        let created = self.create.iter().map(|budget| (budget.tenant_id, created(budget)));
        let mut acts: Vec<(Uuid, Vec<Act>)> = Vec::new();
        for (tenant_id, act) in deleted.chain(changed).chain(created) {
            match acts.iter_mut().find(|(known, _)| *known == tenant_id) {
                Some((_, known)) => known.push(act),
                None => acts.push((tenant_id, vec![act])),
            }
        }
        acts
    }
}

/// The acts on budgets.
pub(crate) fn created(budget: &Budget) -> Act {
    budget.act("budget.create").after(budget.value())
}

pub(crate) fn deleted(budget: &Budget) -> Act {
    budget.act("budget.delete").before(budget.value())
}

/// The budgets of a tenant need its row.
pub(crate) fn no_tenant(tenant_id: Uuid) -> StoreError {
    StoreError::Broken(format!("there is no tenant {tenant_id} for a budget"))
}

/// The budgets of a tenant as a process knows them. The version changes with every change of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantBudgets {
    pub tenant_id: Uuid,
    pub version: i64,
    pub budgets: Vec<Budget>,
}

impl TenantBudgets {
    /// From rows in the order of tenants, each with the version of its tenant.
    pub(crate) fn collect(rows: Vec<(Uuid, i64, Option<Budget>)>) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for (tenant_id, version, budget) in rows {
            match found.last_mut().filter(|last| last.tenant_id == tenant_id) {
                Some(last) => last.budgets.extend(budget),
                None => found.push(Self { tenant_id, version, budgets: budget.into_iter().collect() }),
            }
        }
        found
    }
}

/// Names one counter: a row of `budget_periods`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetCounter {
    pub budget_id: Uuid,
    /// Empty for a tenant. It is the `user_id`, `key_id` or `assistant` of the usage rows that count.
    pub subject: String,
    pub period: BudgetPeriod,
    /// The first day of the period, in UTC.
    pub period_start: Date,
    pub unit: BudgetUnit,
}

/// The day whose budgets count a request, where it is not the day of its usage row: a request is counted where it was reserved.
pub(crate) fn counted_on(counters: &[BudgetCounter], now: Timestamp) -> Option<Date> {
    let of_row = day(now);
    let other = |counter: &&BudgetCounter| counter.period.start(of_row) != counter.period_start;
    // A day says more than a month.
    let counter = counters.iter().filter(other).min_by_key(|counter| counter.period)?;
    Some(counter.period.last(counter.period_start))
}

/// The usage rows of a period are those that were written between these moments and count on its days.
pub(crate) fn written_between(period: BudgetPeriod, start: Date) -> (Timestamp, Timestamp) {
    let at = |day: Option<Date>, otherwise| day.map_or(otherwise, start_of);
    let (before, after) = (start.checked_sub(1.day()).ok(), period.last(start).checked_add(3.days()).ok());
    (at(before, Timestamp::MIN), at(after, Timestamp::MAX))
}

/// What a request may use at most, towards one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetClaim {
    pub counter: BudgetCounter,
    pub limit: i64,
    pub amount: i64,
}

impl BudgetClaim {
    /// What a usage row of the same transaction has used of the claim.
    pub(crate) fn used_by(&self, usage: Option<&NewUsage>) -> i64 {
        let counted = usage.filter(|usage| usage.counted_in.contains(&self.counter));
        counted.map_or(0, |usage| self.counter.unit.amount(usage.tokens_total, usage.cost_nano_usd))
    }

    /// The refusal, where the counter has no room.
    pub(crate) fn over(&self, used: i64, reserved: i64) -> Option<OverBudget> {
        let fits = used.saturating_add(reserved).saturating_add(self.amount) <= self.limit;
        (!fits).then(|| OverBudget { counter: self.counter.clone(), limit: self.limit, used, reserved, amount: self.amount })
    }
}

/// The worst case of one request. Claims are in the order of locks: scope, subject, period, unit, id of the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReservation {
    pub id: Uuid,
    pub claims: Vec<BudgetClaim>,
    /// Later than any end of the request. Then the reservation is released.
    pub expires_at: Timestamp,
}

/// The budget that a reservation was refused for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    pub counter: BudgetCounter,
    pub limit: i64,
    pub used: i64,
    pub reserved: i64,
    pub amount: i64,
}

/// A counter as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    pub counter: BudgetCounter,
    pub used: i64,
    pub reserved: i64,
}

/// Budgets, and reservations that no commit of a turn makes.
pub trait Budgets: Send + Sync {
    /// The budgets of all tenants that have any, or had any.
    fn all_budgets(&self) -> StoreFuture<'_, Vec<TenantBudgets>>;
    /// Reserves for a request that no commit of a turn admits, and writes its estimated usage row, if there is one, in the same transaction. The row counts as used at once; so
    /// the reservation keeps the claims less what the row has used. `None`: reserved. Refused: nothing is written.
    fn reserve(
        &self,
        owner: UsageOwner,
        reservation: NewReservation,
        usage: Option<NewUsage>,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<OverBudget>>;
    /// Releases expired reservations of all tenants, and counts usage rows that processes have written that did not know a new budget yet. Returns how many reservations there were.
    fn release_expired(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}

/// Makes and deletes budgets.
pub trait ManageBudgets: Send + Sync {
    /// Creates a budget; its counters start with what the current period has used already. False if there is one with this id, or one with the same scope, subject, period and
    /// unit.
    fn create_budget(&self, budget: Budget, by: Author) -> StoreFuture<'_, bool>;
    /// False when there is none.
    fn delete_budget(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool>;
    /// Makes the configured budgets of all tenants these: others that were configured are deleted, and counters of those that stay go on. A budget is recognised by tenant, scope,
    /// subject, period and unit.
    fn put_configured_budgets(&self, budgets: Vec<Budget>, now: Timestamp) -> StoreFuture<'_, ()>;
}

/// What is used of budgets.
pub trait BudgetStatistics: Send + Sync {
    /// The counters of a tenant for the periods that contain this moment: of each budget the hundred that used most.
    fn budget_uses(&self, tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Vec<BudgetUse>>;
    /// The counters of all tenants, for the periods that contain this moment, of which half or more is used.
    fn half_used_budgets(&self, now: Timestamp) -> StoreFuture<'_, Vec<(Budget, BudgetUse)>>;
}
