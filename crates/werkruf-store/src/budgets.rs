//! Budgets: what model requests may use in a day or a month.
//!
//! Invariants: `used` of a period is the sum of the usage rows that count towards it, because it changes in the transactions that write these rows.
//! `reserved` is the sum of the reservations in progress, and `used + reserved` is never above the limit when a reservation is granted. A reservation ends with
//! the usage row of its request, with the takeover of its turn, or when it expires.

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::Uuid;

use crate::StoreFuture;
use crate::audit::Author;
use crate::usage::{NewUsage, UsageOwner};

/// Whose requests a budget counts. The order is the order in which periods are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetScope {
    Tenant,
    User,
    Key,
    Assistant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetPeriod {
    Day,
    Month,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetUnit {
    Tokens,
    NanoUsd,
    ModelCalls,
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

/// The budgets of a tenant as a process knows them. The version changes with every change of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantBudgets {
    pub tenant_id: Uuid,
    pub version: i64,
    pub budgets: Vec<Budget>,
}

/// Names one counter: a row of `budget_periods`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetCounter {
    pub budget_id: Uuid,
    /// Empty for a tenant.
    pub subject: String,
    /// The first day of the period, in UTC.
    pub period_start: Date,
    pub unit: BudgetUnit,
}

/// What a request may use at most, towards one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetClaim {
    pub counter: BudgetCounter,
    pub limit: i64,
    pub amount: i64,
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
    /// Creates a budget; its counters start with what the current period has used already. False if there is one with this id, or one with the same scope, subject, period and
    /// unit.
    fn create_budget(&self, budget: Budget, by: Author) -> StoreFuture<'_, bool>;
    /// False when there is none.
    fn delete_budget(&self, tenant_id: Uuid, id: Uuid, by: Author) -> StoreFuture<'_, bool>;
    /// Makes the configured budgets of all tenants these: others that were configured are deleted, and counters of those that stay go on. A budget is recognised by tenant, scope,
    /// subject, period and unit.
    fn put_configured_budgets(&self, budgets: Vec<Budget>, now: Timestamp) -> StoreFuture<'_, ()>;
    /// The counters of a tenant for the periods that contain this moment.
    fn budget_uses(&self, tenant_id: Uuid, now: Timestamp) -> StoreFuture<'_, Vec<BudgetUse>>;
    /// Reserves for a request that no commit of a turn admits, and writes its estimated usage row, if there is one, in the same transaction. The row counts as used at once; so
    /// the reservation keeps the claims less what the row has used. `None`: reserved. Refused: nothing is written.
    fn reserve(
        &self,
        owner: UsageOwner,
        reservation: NewReservation,
        usage: Option<NewUsage>,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<OverBudget>>;
    /// Ends a reservation whose request was never sent, and deletes its estimated usage row.
    fn cancel_reservation(&self, tenant_id: Uuid, id: Uuid, usage_id: Option<Uuid>, counted_in: Vec<BudgetCounter>) -> StoreFuture<'_, ()>;
    /// Releases expired reservations of all tenants. Returns how many there were.
    fn release_expired(&self, now: Timestamp) -> StoreFuture<'_, u64>;
}
