//! JSON documents for the schema's functions: usage rows, and what budgets count and reserve.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use werkruf_contract::Uuid;

use super::param::ms;
use crate::budgets::counted_on;
use crate::{BudgetClaim, BudgetCounter, NewReservation, NewUsage};

#[derive(Serialize)]
pub(super) struct UsageRow<'a> {
    id: Uuid,
    call_id: Option<Uuid>,
    key_id: Option<Uuid>,
    provider: &'a str,
    model: &'a str,
    operation: &'static str,
    tokens_prompt: i64,
    tokens_cached: i64,
    tokens_completion: i64,
    tokens_reasoning: i64,
    tokens_total: i64,
    estimated: bool,
    cost_nano_usd: Option<i64>,
    request_id: Option<&'a str>,
    started_at: Option<Timestamp>,
    took_ms: Option<i64>,
    tool_name: Option<&'a str>,
    assistant: Option<&'a str>,
    counted_on: Option<Date>,
    // `write_usage` tests whether these keys exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counted_in: Vec<CounterName<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Uuid>,
}

impl<'a> UsageRow<'a> {
    /// The row, as it is written at a time.
    pub(super) fn new(usage: &'a NewUsage, now: Timestamp) -> Self {
        Self {
            id: usage.id,
            call_id: usage.call_id,
            key_id: usage.key_id,
            provider: &usage.provider,
            model: &usage.model,
            operation: usage.operation,
            tokens_prompt: usage.tokens_prompt,
            tokens_cached: usage.tokens_cached,
            tokens_completion: usage.tokens_completion,
            tokens_reasoning: usage.tokens_reasoning,
            tokens_total: usage.tokens_total,
            estimated: usage.estimated,
            cost_nano_usd: usage.cost_nano_usd,
            request_id: usage.request_id.as_deref(),
            started_at: usage.started_at.map(ms),
            took_ms: usage.took_ms,
            tool_name: usage.tool_name.as_deref(),
            assistant: usage.assistant.as_deref(),
            counted_on: counted_on(&usage.counted_in, now),
            counted_in: usage.counted_in.iter().map(CounterName::from).collect(),
            reservation: usage.reservation,
        }
    }
}

#[derive(Serialize)]
struct CounterName<'a> {
    budget_id: Uuid,
    subject: &'a str,
    period: &'static str,
    period_start: Date,
    unit: &'static str,
}

impl<'a> From<&'a BudgetCounter> for CounterName<'a> {
    fn from(counter: &'a BudgetCounter) -> Self {
        Self {
            budget_id: counter.budget_id,
            subject: &counter.subject,
            period: counter.period.as_str(),
            period_start: counter.period_start,
            unit: counter.unit.as_str(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Reservation<'a> {
    id: Uuid,
    expires_at: Timestamp,
    claims: Vec<Claim<'a>>,
}

#[derive(Serialize)]
struct Claim<'a> {
    #[serde(flatten)]
    counter: CounterName<'a>,
    most: i64,
    amount: i64,
    less: i64,
}

impl<'a> Reservation<'a> {
    /// With the usage row that is written in the same transaction and counts at once.
    pub(super) fn new(reservation: &'a NewReservation, usage: Option<&NewUsage>) -> Self {
        let claim = |claim: &'a BudgetClaim| Claim {
            counter: CounterName::from(&claim.counter),
            most: claim.limit,
            amount: claim.amount,
            less: claim.used_by(usage),
        };
        Self { id: reservation.id, expires_at: ms(reservation.expires_at), claims: reservation.claims.iter().map(claim).collect() }
    }
}
