//! How far budgets are used: half, four fifths, all. Each is told once per budget, subject and period.

use jiff::Timestamp;
use serde_json::json;
use werkruf_contract::Uuid;
use werkruf_store::{Budget, BudgetScope, BudgetUse, OverBudget, StoreError};

use super::AlertSources;
use super::alert::Alert;
use crate::channels::Notification;

/// In percent. The first is the half that the store looks for; the last one is also reached by a request that the budget refused.
const THRESHOLDS: [i64; 3] = [50, 80, 100];

/// The thresholds that are reached, also by these refusals of tenants.
pub(super) async fn reached(sources: &AlertSources, refused: &[(Uuid, OverBudget)], now: Timestamp) -> Result<Vec<Alert>, StoreError> {
    let mut alerts = Vec::new();
    for (budget, found) in sources.store.half_used_budgets(now).await? {
        let thresholds = THRESHOLDS.into_iter().filter(|threshold| is_reached(*threshold, found.used, budget.limit));
        alerts.extend(thresholds.map(|threshold| alert(&budget, &found, threshold)));
    }
    if refused.is_empty() {
        return Ok(alerts);
    }
    let budgets: Vec<Budget> = sources.budgets.all_budgets().await?.into_iter().flat_map(|tenant| tenant.budgets).collect();
    for (tenant_id, over) in refused {
        let found = BudgetUse { counter: over.counter.clone(), used: over.used, reserved: over.reserved };
        let budget = budgets.iter().find(|budget| budget.tenant_id == *tenant_id && budget.id == over.counter.budget_id);
        alerts.extend(budget.map(|budget| alert(budget, &found, 100)));
    }
    Ok(alerts)
}

/// Nothing of a budget of 0 can be used; it is reached by a refusal.
fn is_reached(threshold: i64, used: i64, limit: i64) -> bool {
    limit > 0 && i128::from(used) * 100 >= i128::from(limit) * i128::from(threshold)
}

fn alert(budget: &Budget, found: &BudgetUse, threshold: i64) -> Alert {
    let counter = &found.counter;
    let (scope, period, unit) = (budget.scope.as_str(), budget.period.as_str(), budget.unit.as_str());
    let subject = Some(&counter.subject).filter(|subject| !subject.is_empty());
    let of = subject.map_or_else(|| scope.to_owned(), |subject| format!("{scope} {subject}"));
    let message = format!("The budget of {} {unit} per {period} for the {of} has reached {threshold} %.", budget.limit);
    let detail = json!({
        "budget_id": budget.id, "scope": scope, "subject": subject, "period": period, "period_start": counter.period_start,
        "threshold": threshold, "used": found.used, "limit": budget.limit, "unit": unit,
    });
    let key = format!("{}/{}/{}/{threshold}", budget.id, counter.subject, counter.period_start);
    let user_id = subject.filter(|_| budget.scope == BudgetScope::User).cloned();
    Alert { user_id, ..Alert::event(Notification::BudgetThreshold, budget.tenant_id, key, message, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_reached_exactly() {
        let reached = |used, limit| THRESHOLDS.map(|threshold| is_reached(threshold, used, limit));
        assert_eq!(reached(4, 10), [false, false, false]);
        assert_eq!(reached(5, 10), [true, false, false]);
        assert_eq!(reached(8, 10), [true, true, false]);
        assert_eq!(reached(10, 10), [true, true, true]);
        assert_eq!(reached(i64::MAX, i64::MAX), [true, true, true]);
        assert_eq!(reached(0, 0), [false, false, false]);
    }
}
