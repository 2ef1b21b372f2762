//! Why a budget admits no request, for people and programs.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Value, json};
use werkruf_contract::{ErrorCode, Failure, Texts, ToolErrorType, TurnError, Uuid};
use werkruf_store::{Budget, BudgetPeriod, BudgetScope, BudgetUnit, OverBudget};

use super::period::{moment, period_end};

/// A refused model request. It names nobody: the subject of a budget stays with its operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// The budget has no room for the worst case of the request.
    Exceeded {
        budget_id: Uuid,
        scope: BudgetScope,
        period: BudgetPeriod,
        period_start: Date,
        unit: BudgetUnit,
        limit: i64,
        used: i64,
        resets_at: Timestamp,
        retry_after_ms: u64,
    },
    /// The tokens that the request itself allows (`X-Budget-Tokens`) are not enough.
    RequestTokens { limit: i64, used: i64 },
    /// A budget in money cannot count a model without a price.
    PriceUnknown { budget_id: Uuid },
}

impl BudgetRefusal {
    pub(super) const fn price_unknown(budget: &Budget) -> Self {
        Self::PriceUnknown { budget_id: budget.id }
    }

    /// `budget` is the one of the counter; `None` where it was deleted meanwhile.
    pub(super) fn exceeded(budget: Option<&Budget>, over: &OverBudget, now: Timestamp) -> Self {
        let (scope, period) = (budget.map_or(BudgetScope::Tenant, |budget| budget.scope), over.counter.period);
        let resets_at = period_end(period, over.counter.period_start);
        let wait = u64::try_from(resets_at.duration_since(now).as_millis()).unwrap_or(0);
        Self::Exceeded {
            budget_id: over.counter.budget_id,
            scope,
            period,
            period_start: over.counter.period_start,
            unit: over.counter.unit,
            limit: over.limit,
            used: over.used,
            resets_at,
            retry_after_ms: wait.max(1000),
        }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Exceeded { .. } | Self::RequestTokens { .. } => ErrorCode::BudgetExceeded,
            Self::PriceUnknown { .. } => ErrorCode::PriceUnknown,
        }
    }

    pub fn kind(&self) -> ToolErrorType {
        match self {
            Self::Exceeded { .. } | Self::RequestTokens { .. } => ToolErrorType::RateLimit,
            // It helps to name another model, or a price; waiting does not.
            Self::PriceUnknown { .. } => ToolErrorType::Validation,
        }
    }

    /// How long until the budget resets; `None` where waiting does not help.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Exceeded { retry_after_ms, .. } => Some(*retry_after_ms),
            Self::RequestTokens { .. } | Self::PriceUnknown { .. } => None,
        }
    }

    /// For programs.
    pub fn details(&self) -> Value {
        match self {
            Self::Exceeded { budget_id, scope, period, unit, limit, used, resets_at, .. } => json!({
                "budget_id": budget_id, "scope": scope.as_str(), "period": period.as_str(), "unit": unit.as_str(),
                "limit": limit, "used": used, "resets_at": format!("{resets_at:.3}"),
            }),
            Self::RequestTokens { limit, used } => json!({"scope": "request", "unit": "tokens", "limit": limit, "used": used}),
            Self::PriceUnknown { budget_id } => json!({"budget_id": budget_id}),
        }
    }

    /// What a person reads.
    pub fn message(&self, texts: &Texts) -> String {
        match self {
            Self::Exceeded { resets_at, .. } => texts.text("error-budget_exceeded", &[("until", moment(*resets_at).into())]),
            Self::RequestTokens { .. } => texts.text("error-budget_tokens", &[]),
            Self::PriceUnknown { .. } => texts.text("error-price_unknown", &[]),
        }
    }

    /// The error of a turn.
    pub(crate) fn turn_error(&self, texts: &Texts) -> TurnError {
        let error = TurnError::new(self.kind(), self.code(), self.message(texts));
        TurnError { retry_after_ms: self.retry_after_ms(), cause: Some(self.details().to_string()), ..error }
    }

    /// The error of a tool that may not ask a model.
    pub(crate) fn failure(&self, texts: &Texts) -> Failure {
        Failure::new(self.kind(), self.code(), self.message(texts))
            .because(self.details().to_string())
            .retry_after(self.retry_after_ms().map(Duration::from_millis))
            .nothing_happened()
    }
}
