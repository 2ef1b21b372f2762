use werkruf_store::BudgetPeriod;

use super::*;

const TENANT: Uuid = Uuid::from_u128(1);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn budget(id: u128, scope: BudgetScope, subject: Option<&str>, unit: BudgetUnit) -> Budget {
    Budget {
        id: Uuid::from_u128(id),
        tenant_id: TENANT,
        scope,
        subject: subject.map(str::to_owned),
        period: BudgetPeriod::Day,
        unit,
        limit: 10,
        configured: false,
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn spender() -> Spender {
    Spender { tenant_id: TENANT, user_id: "3".to_owned(), key_id: Some(Uuid::from_u128(9)), assistant: Some("desk".to_owned()) }
}

fn ids(applicable: Option<Applicable>) -> Vec<u128> {
    applicable.map(|found| found.0.iter().map(|(budget, _)| budget.id.as_u128()).collect()).unwrap_or_default()
}

#[test]
fn a_budget_counts_its_own_subject_or_each_one_and_locks_are_in_order() {
    let key = Uuid::from_u128(9).to_string();
    let budgets = [
        budget(1, BudgetScope::Assistant, None, BudgetUnit::ModelCalls),
        budget(2, BudgetScope::Key, Some(&key), BudgetUnit::ModelCalls),
        budget(3, BudgetScope::Key, Some("other"), BudgetUnit::ModelCalls),
        budget(4, BudgetScope::User, None, BudgetUnit::ModelCalls),
        budget(5, BudgetScope::User, Some("4"), BudgetUnit::ModelCalls),
        budget(6, BudgetScope::Tenant, None, BudgetUnit::ModelCalls),
        budget(7, BudgetScope::Tenant, None, BudgetUnit::Tokens),
        budget(8, BudgetScope::Assistant, Some("desk"), BudgetUnit::ModelCalls),
    ];
    assert_eq!(ids(Applicable::among(&budgets, &spender())), [7, 6, 4, 2, 1, 8]);
    let nobody = Spender { tenant_id: TENANT, ..Spender::default() };
    assert_eq!(ids(Applicable::among(&budgets, &nobody)), [7, 6], "work that nobody requested counts for the tenant");
    assert_eq!(Applicable::among(&budgets[..3], &nobody), None);
    let subjects: Vec<String> = Applicable::among(&budgets, &spender()).unwrap().0.into_iter().map(|(_, subject)| subject).collect();
    assert_eq!(subjects, ["", "", "3", key.as_str(), "desk", "desk"]);
}

#[test]
fn a_claim_has_the_unit_of_its_budget() {
    let budgets = [
        budget(1, BudgetScope::Tenant, None, BudgetUnit::Tokens),
        budget(2, BudgetScope::Tenant, None, BudgetUnit::NanoUsd),
        budget(3, BudgetScope::Tenant, None, BudgetUnit::ModelCalls),
    ];
    let applicable = Applicable::among(&budgets, &spender()).unwrap();
    let now = at("2026-11-16T23:59:59Z");
    let reserve = |nano_usd| applicable.reservation(Uuid::nil(), WorstCase { tokens: 70, nano_usd, ..WorstCase::default() }, now, now);
    let amounts: Vec<i64> = reserve(Some(500)).unwrap().claims.iter().map(|claim| claim.amount).collect();
    assert_eq!(amounts, [70, 500, 1]);
    assert!(matches!(reserve(None), Err(BudgetRefusal::PriceUnknown { budget_id }) if budget_id == Uuid::from_u128(2)));
    assert!(applicable.counts_tokens());
    assert!(!Applicable::among(&budgets[2..], &spender()).unwrap().counts_tokens());
}
