//! What each tenant used yesterday, told once after midnight UTC.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_store::{StoreError, UsageGroup, UsageQuery, UsageSum};

use super::AlertSources;
use super::alert::Alert;
use crate::channels::Notification;
use crate::engine::Engine;

/// The overviews of the day before this one, of the tenants that used a model.
pub(super) async fn before(engine: &Engine, sources: &AlertSources, today: Date) -> Result<Vec<Alert>, StoreError> {
    let (mut alerts, Ok(day)) = (Vec::new(), today.yesterday()) else { return Ok(Vec::new()) };
    for tenant in engine.store.people.tenants().await? {
        let sum = sum(sources, tenant.id, day, today).await?;
        if sum.calls > 0 {
            alerts.push(overview(sources, tenant.id, day, &sum).await?);
        }
    }
    Ok(alerts)
}

async fn sum(sources: &AlertSources, tenant_id: Uuid, from: Date, to: Date) -> Result<UsageSum, StoreError> {
    let (from, to) = (start_of(from), start_of(to));
    let query = UsageQuery { tenant_id, user_id: None, group_by: UsageGroup::Day, from, to };
    Ok(UsageSum::total(&sources.store.usage_sums(query).await?))
}

fn start_of(day: Date) -> Timestamp {
    day.to_zoned(TimeZone::UTC).map_or(Timestamp::MIN, |midnight| midnight.timestamp())
}

async fn overview(sources: &AlertSources, tenant_id: Uuid, day: Date, sum: &UsageSum) -> Result<Alert, StoreError> {
    let budgets = budgets(sources, tenant_id, day).await?;
    let message = format!("On {day} {} requests used {} tokens for {}.", sum.calls, sum.tokens_total, dollars(sum.cost_nano_usd));
    let detail = json!({
        "budget_id": null, "threshold": null, "limit": null,
        "scope": "tenant", "subject": null, "period": "day", "period_start": day, "calls": sum.calls, "tokens_total": sum.tokens_total,
        "cost_nano_usd": sum.cost_nano_usd, "unpriced_calls": sum.unpriced_calls, "estimated_calls": sum.estimated_calls,
        "used": sum.cost_nano_usd, "unit": "nano_usd", "budgets": budgets,
    });
    Ok(Alert::event(Notification::DailyOverview, tenant_id, day.to_string(), message, detail))
}

/// The tenant's budgets as they stood at the end of the day.
async fn budgets(sources: &AlertSources, tenant_id: Uuid, day: Date) -> Result<Vec<Value>, StoreError> {
    let of_tenant = sources.budgets.all_budgets().await?.into_iter().find(|budgets| budgets.tenant_id == tenant_id);
    let Some(of_tenant) = of_tenant.filter(|budgets| !budgets.budgets.is_empty()) else { return Ok(Vec::new()) };
    let uses = sources.store.budget_uses(tenant_id, start_of(day)).await?;
    let shown = uses.iter().filter_map(|found| {
        let budget = of_tenant.budgets.iter().find(|budget| budget.id == found.counter.budget_id)?;
        let subject = Some(&found.counter.subject).filter(|subject| !subject.is_empty());
        Some(json!({"budget_id": budget.id, "scope": budget.scope.as_str(), "subject": subject, "unit": budget.unit.as_str(), "limit": budget.limit,
            "used": found.used}))
    });
    Ok(shown.collect())
}

/// A cost for people, in US dollars with cents.
fn dollars(nano_usd: i64) -> String {
    let cents = nano_usd.saturating_add(5_000_000) / 10_000_000;
    format!("{}.{:02} USD", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::dollars;

    #[test]
    fn a_cost_is_rounded_to_cents() {
        let shown = [0, 4_999_999, 5_000_000, 1_995_000_000, 12_340_000_000].map(dollars);
        assert_eq!(shown, ["0.00 USD", "0.00 USD", "0.01 USD", "2.00 USD", "12.34 USD"]);
    }
}
