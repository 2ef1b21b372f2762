//! Which budgets count a request, and what it claims from them.

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_store::{Budget, BudgetClaim, BudgetCounter, BudgetScope, BudgetUnit, NewReservation, OverBudget};

use super::refusal::BudgetRefusal;

/// Whose request it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spender {
    pub(crate) tenant_id: Uuid,
    /// Empty where no user requested the work.
    pub(crate) user_id: String,
    pub(crate) key_id: Option<Uuid>,
    pub(crate) assistant: Option<String>,
}

impl Spender {
    /// The subject of this request among those that a budget counts; `None` where the budget does not count the request.
    fn subject(&self, budget: &Budget) -> Option<String> {
        let own = match budget.scope {
            BudgetScope::Tenant => return Some(String::new()),
            BudgetScope::User => Some(self.user_id.clone()).filter(|id| !id.is_empty()),
            BudgetScope::Key => self.key_id.map(|id| id.to_string()),
            BudgetScope::Assistant => self.assistant.clone().filter(|name| !name.is_empty()),
        }?;
        budget.subject.as_ref().is_none_or(|subject| *subject == own).then_some(own)
    }
}

/// What a request uses at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorstCase {
    pub(crate) tokens: i64,
    /// Those of the prompt.
    pub(crate) prompt: i64,
    /// `None`: the model has no price.
    pub(crate) nano_usd: Option<i64>,
    /// The longest answer that the tokens of the turn leave room for, where that is less than usual.
    pub(crate) max_output: Option<u32>,
}

/// The budgets that count a request, with its subject in each, in the order in which their counters are locked. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applicable(Vec<(Budget, String)>);

impl Applicable {
    pub(super) fn among(budgets: &[Budget], spender: &Spender) -> Option<Self> {
        let mut counted: Vec<(Budget, String)> =
            budgets.iter().filter_map(|budget| Some((budget.clone(), spender.subject(budget)?))).collect();
        counted.sort_by(|(a, a_subject), (b, b_subject)| {
            (a.scope, a_subject, a.period, a.unit, a.id).cmp(&(b.scope, b_subject, b.period, b.unit, b.id))
        });
        (!counted.is_empty()).then_some(Self(counted))
    }

    /// Whether the worst case must be computed; a budget of calls needs none.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.0.iter().any(|(budget, _)| budget.unit != BudgetUnit::ModelCalls)
    }

    /// Whether a budget counts money.
    pub(crate) fn counts_money(&self) -> bool {
        self.0.iter().any(|(budget, _)| budget.unit == BudgetUnit::NanoUsd)
    }

    /// The counters at this moment.
    pub(crate) fn counters(&self, now: Timestamp) -> Vec<BudgetCounter> {
        self.0.iter().map(|(budget, subject)| counter(budget, subject, now)).collect()
    }

    /// Claims the worst case. The error names the budget in money that cannot count a model without a price.
    pub(crate) fn reservation(
        &self,
        id: Uuid,
        worst: WorstCase,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<NewReservation, BudgetRefusal> {
        let claim = |(budget, subject): &(Budget, String)| {
            let amount = match budget.unit {
                BudgetUnit::Tokens => worst.tokens,
                BudgetUnit::NanoUsd => worst.nano_usd.ok_or_else(|| BudgetRefusal::price_unknown(budget))?,
                BudgetUnit::ModelCalls => 1,
            };
            Ok(BudgetClaim { counter: counter(budget, subject, now), limit: budget.limit, amount })
        };
        let claims = self.0.iter().map(claim).collect::<Result<_, _>>()?;
        Ok(NewReservation { id, claims, expires_at })
    }

    /// Why a reservation was refused.
    pub(crate) fn refusal(&self, over: &OverBudget, now: Timestamp) -> BudgetRefusal {
        let budget = self.0.iter().map(|(budget, _)| budget).find(|budget| budget.id == over.counter.budget_id);
        BudgetRefusal::exceeded(budget, over, now)
    }
}

fn counter(budget: &Budget, subject: &str, now: Timestamp) -> BudgetCounter {
    let Budget { id, period, unit, .. } = *budget;
    BudgetCounter { budget_id: id, subject: subject.to_owned(), period, period_start: period.start_at(now), unit }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
