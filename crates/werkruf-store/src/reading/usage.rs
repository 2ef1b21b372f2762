//! Usage rows, their sums, and budgets.

/// Part of [`readings`](super::readings).
macro_rules! usage_readings {
    () => {
        pub(super) fn usage(c: &mut Columns<'_>) -> Result<werkruf_contract::Usage, $crate::StoreError> {
            Ok(werkruf_contract::Usage {
                input_tokens: c.int()?,
                cached_tokens: c.int()?,
                output_tokens: c.int()?,
                reasoning_tokens: c.int()?,
                total_tokens: c.int()?,
                cost_usd: c.int_or_null()?.map(werkruf_contract::Usage::dollars),
                model_calls: c.small()?,
            })
        }

        pub(super) fn usage_sum(c: &mut Columns<'_>) -> Result<$crate::UsageSum, $crate::StoreError> {
            Ok($crate::UsageSum {
                key: Some(c.text()?).filter(|key| !key.is_empty()),
                calls: c.int()?,
                tokens_prompt: c.int()?,
                tokens_cached: c.int()?,
                tokens_completion: c.int()?,
                tokens_reasoning: c.int()?,
                tokens_total: c.int()?,
                cost_nano_usd: c.int()?,
                unpriced_calls: c.int()?,
                estimated_calls: c.int()?,
            })
        }

        pub(super) fn usage_request(c: &mut Columns<'_>) -> Result<$crate::UsageRequest, $crate::StoreError> {
            Ok($crate::UsageRequest {
                id: c.id()?,
                request_id: c.text_or_null()?,
                at: c.time()?,
                took_ms: c.int_or_null()?,
                provider: c.text()?,
                model: c.text()?,
                operation: c.text()?,
                tool_name: c.text_or_null()?,
                tokens_prompt: c.int()?,
                tokens_cached: c.int()?,
                tokens_completion: c.int()?,
                estimated: c.flag()?,
                cost_nano_usd: c.int_or_null()?,
            })
        }

        pub(super) fn turn_request(c: &mut Columns<'_>) -> Result<$crate::TurnRequest, $crate::StoreError> {
            let (call_id, tokens_reasoning, tokens_total) = (c.id_or_null()?, c.int()?, c.int()?);
            Ok($crate::TurnRequest { call_id, tokens_reasoning, tokens_total, request: usage_request(c)? })
        }

        pub(super) fn budget(c: &mut Columns<'_>) -> Result<$crate::Budget, $crate::StoreError> {
            Ok($crate::Budget {
                id: c.id()?,
                tenant_id: c.id()?,
                scope: c.parsed($crate::BudgetScope::parse)?,
                subject: c.text_or_null()?,
                period: c.parsed($crate::BudgetPeriod::parse)?,
                unit: c.parsed($crate::BudgetUnit::parse)?,
                limit: c.int()?,
                configured: c.flag()?,
                created_at: c.time()?,
            })
        }

        /// A tenant, the version of its budgets, whether there is a budget, and the budget.
        pub(super) fn tenant_budget(
            c: &mut Columns<'_>,
        ) -> Result<(werkruf_contract::Uuid, i64, Option<$crate::Budget>), $crate::StoreError> {
            let (tenant_id, version, found) = (c.id()?, c.int()?, c.flag()?);
            Ok((tenant_id, version, if found { Some(budget(c)?) } else { None }))
        }

        pub(super) fn budget_use(c: &mut Columns<'_>) -> Result<$crate::BudgetUse, $crate::StoreError> {
            let counter = $crate::BudgetCounter {
                budget_id: c.id()?,
                subject: c.text()?,
                period: c.parsed($crate::BudgetPeriod::parse)?,
                period_start: c.parsed(|text| text.parse().ok())?,
                unit: c.parsed($crate::BudgetUnit::parse)?,
            };
            Ok($crate::BudgetUse { counter, used: c.int()?, reserved: c.int()? })
        }

        /// A budget, and what is used of it.
        pub(super) fn used_budget(c: &mut Columns<'_>) -> Result<($crate::Budget, $crate::BudgetUse), $crate::StoreError> {
            let budget = budget(c)?;
            let (subject, period_start) = (c.text()?, c.parsed(|text| text.parse().ok())?);
            let counter = $crate::BudgetCounter { budget_id: budget.id, subject, period: budget.period, period_start, unit: budget.unit };
            Ok((budget, $crate::BudgetUse { counter, used: c.int()?, reserved: c.int()? }))
        }
    };
}
pub(crate) use usage_readings;
