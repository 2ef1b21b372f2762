//! [`UsageRows`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{Usage, Uuid};

use super::SqliteStore;
use super::budget_counters::{CounterChanges, all_budgets_of, date};
use super::row::{self, first};
use super::text::{Id, Stamp, id_or_null};
use crate::budgets::counted_on;
use crate::usage_statistics::day;
use crate::{BudgetCounter, NewUsage, RequestsOf, StoreError, StoreFuture, UsageOwner, UsageRows};

impl UsageRows for SqliteStore {
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let tenant = Id::from(owner.tenant_id);
            let mut changes = CounterChanges::new(c, &tenant);
            put_usage_row(c, &owner, &usage, now, &mut changes)?;
            changes.write()
        }))
    }

    fn delete_usage(&self, tenant_id: Uuid, id: Option<Uuid>, reservation: Option<Uuid>) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let tenant = Id::from(tenant_id);
            let mut changes = CounterChanges::new(c, &tenant);
            if let Some(id) = id {
                delete_usage_row(c, &tenant, id, &mut changes)?;
            }
            if let Some(reservation) = reservation {
                changes.end(reservation)?;
            }
            changes.write()
        }))
    }

    fn turn_usage(&self, tenant_id: Uuid, turn_id: Uuid, of: RequestsOf) -> StoreFuture<'_, Usage> {
        Box::pin(self.readers.look_up(move |c| {
            let all = of == RequestsOf::TurnAndTools;
            let sums = first(&mut *c.prepare_cached(TURN_USAGE)?, params![Id::from(tenant_id), Id::from(turn_id), all], row::usage)?;
            Ok(sums.unwrap_or_default())
        }))
    }
}

/// Ids sort by time, so all usage rows of a turn have ids above the turn's.
const TURN_USAGE: &str = "SELECT coalesce(sum(tokens_prompt), 0), coalesce(sum(tokens_cached), 0), coalesce(sum(tokens_completion), 0),
      coalesce(sum(tokens_reasoning), 0), coalesce(sum(tokens_total), 0),
      CASE WHEN count(cost_nano_usd) = count(*) THEN sum(cost_nano_usd) END, count(*)
    FROM api_usage WHERE +tenant_id = ?1 AND turn_id = ?2 AND id > ?2 AND (?3 OR operation = 'chat')";

/// Writes a row, counts it and ends its reservation. The changes are written afterwards.
pub(super) fn put_usage_row(
    c: &Connection,
    who: &UsageOwner,
    usage: &NewUsage,
    now: Timestamp,
    changes: &mut CounterChanges<'_>,
) -> Result<(), StoreError> {
    if let Some(id) = usage.reservation {
        changes.end(id)?;
    }
    if insert(c, who, usage, now)? {
        for counter in &usage.counted_in {
            changes.count(counter, counter.unit.amount(usage.tokens_total, usage.cost_nano_usd));
        }
        return Ok(());
    }
    replace_estimate(c, usage, changes)
}

/// Returns false where there is a row with this id.
fn insert(c: &Connection, who: &UsageOwner, usage: &NewUsage, now: Timestamp) -> Result<bool, StoreError> {
    let inserted = c
        .prepare_cached(
            "INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model,
           operation, tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd,
           request_id, started_at, took_ms, tool_name, assistant, counted_on, cost_usd)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
           ?18 / 1000000000.0)
         ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            Id::from(usage.id),
            Id::from(who.tenant_id),
            who.user_id,
            id_or_null(who.conversation_id),
            id_or_null(who.turn_id),
            id_or_null(usage.call_id),
            id_or_null(usage.key_id),
            Stamp::from(now),
            usage.provider,
            usage.model,
            usage.operation,
            usage.tokens_prompt,
            usage.tokens_cached,
            usage.tokens_completion,
            usage.tokens_reasoning,
            usage.tokens_total,
            usage.estimated,
            usage.cost_nano_usd,
            usage.request_id,
            usage.started_at.map(Stamp::from),
            usage.took_ms,
            usage.tool_name,
            usage.assistant,
            counted_on(&usage.counted_in, now).map(date),
        ])?;
    Ok(inserted == 1)
}

const BEFORE: &str = "SELECT tokens_total, cost_nano_usd, created_at, counted_on FROM api_usage WHERE id = ?1 AND estimated";
const REPLACE: &str = "UPDATE api_usage SET model = ?2, request_id = ?3, took_ms = ?4, tokens_prompt = ?5, tokens_cached = ?6,
    tokens_completion = ?7, tokens_reasoning = ?8, tokens_total = ?9, estimated = ?10, cost_nano_usd = ?11, cost_usd = ?11 / 1000000000.0
    WHERE id = ?1 AND estimated";

/// What a row is known to have used replaces its estimate, and the difference counts. A row that is no estimate stays as it is.
fn replace_estimate(c: &Connection, usage: &NewUsage, changes: &mut CounterChanges<'_>) -> Result<(), StoreError> {
    let id = Id::from(usage.id);
    let before = first(&mut *c.prepare_cached(BEFORE)?, params![id], |columns| {
        let (tokens, cost, of_row) = (columns.int()?, columns.int_or_null()?, day(columns.time()?));
        Ok((tokens, cost, columns.text_or_null()?.and_then(|text| text.parse().ok()).unwrap_or(of_row)))
    })?;
    let Some((tokens, cost, on)) = before else { return Ok(()) };
    for counter in &usage.counted_in {
        let amount = counter.unit.amount(usage.tokens_total, usage.cost_nano_usd) - counter.unit.amount(tokens, cost);
        changes.count(&BudgetCounter { period_start: counter.period.start(on), ..counter.clone() }, amount);
    }
    c.prepare_cached(REPLACE)?.execute(params![
        id,
        usage.model,
        usage.request_id,
        usage.took_ms,
        usage.tokens_prompt,
        usage.tokens_cached,
        usage.tokens_completion,
        usage.tokens_reasoning,
        usage.tokens_total,
        usage.estimated,
        usage.cost_nano_usd,
    ])?;
    Ok(())
}

const DELETED: &str = "SELECT user_id, key_id, assistant, tokens_total, cost_nano_usd, created_at, counted_on FROM api_usage
    WHERE tenant_id = ?1 AND id = ?2";

/// Does nothing where there is no such row. The changes are written afterwards.
pub(super) fn delete_usage_row(c: &Connection, tenant: &Id, id: Uuid, changes: &mut CounterChanges<'_>) -> Result<(), StoreError> {
    let id = Id::from(id);
    let budgets = all_budgets_of(c, tenant)?;
    if !budgets.is_empty() {
        let row = first(&mut *c.prepare_cached(DELETED)?, params![tenant, id], |columns| {
            let subjects = (columns.text()?, columns.text_or_null()?, columns.text_or_null()?);
            let (tokens, cost, of_row) = (columns.int()?, columns.int_or_null()?, day(columns.time()?));
            Ok((subjects, tokens, cost, columns.text_or_null()?.and_then(|text| text.parse().ok()).unwrap_or(of_row)))
        })?;
        let Some(((user_id, key_id, assistant), tokens, cost, on)) = row else { return Ok(()) };
        for budget in &budgets {
            let Some(counter) = budget.counter(&user_id, key_id.as_deref(), assistant.as_deref(), on) else { continue };
            changes.uncount(&counter, budget.unit.amount(tokens, cost));
        }
    }
    c.prepare_cached("DELETE FROM api_usage WHERE tenant_id = ?1 AND id = ?2")?.execute(params![tenant, id])?;
    Ok(())
}
