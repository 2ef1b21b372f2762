//! Usage rows of tools that have a price: one per attempt that left. A tool without a price has none.

use jiff::Timestamp;
use werkruf_contract::{Failure, Happened, ToolSpec};
use werkruf_store::{CallRow, NewUsage};

use super::batch::Execution;
use super::scope::TurnScope;
use crate::stored::is_provider_run;

/// The row of an attempt that ended just now; `None` where nothing left.
pub(super) fn attempt_usage(
    scope: &TurnScope,
    execution: &Execution,
    started_at: Timestamp,
    failure: Option<&Failure>,
) -> Option<NewUsage> {
    if failure.is_some_and(never_left) {
        return None;
    }
    let took_ms = scope.clock.now().duration_since(started_at).as_millis().try_into().unwrap_or(0).max(0);
    let call_id = Some(execution.job_id);
    Some(NewUsage { call_id, started_at: Some(started_at), took_ms: Some(took_ms), ..priced(scope, execution.entry.spec())? })
}

/// The row of an attempt that was in progress when an earlier process stopped. Whether it left is not known.
pub(crate) fn lost_attempt(scope: &TurnScope, row: &CallRow) -> Option<NewUsage> {
    let entry = scope.setup.registry.find(&row.tool_name).filter(|_| row.dedupe_of.is_none() && !is_provider_run(row))?;
    Some(NewUsage { call_id: Some(row.id), started_at: row.started_at, estimated: true, ..priced(scope, entry.spec())? })
}

/// A service that answered was sent the request, also where it says that it did nothing.
fn never_left(failure: &Failure) -> bool {
    failure.happened == Happened::No && failure.upstream_status.is_none()
}

fn priced(scope: &TurnScope, tool: &ToolSpec) -> Option<NewUsage> {
    let cost_nano_usd = Some(tool.price_nano_usd?);
    let tool_name = Some(tool.name.to_string());
    // No model is asked.
    Some(NewUsage { key_id: scope.caller.key_id, tool_name, cost_nano_usd, ..NewUsage::new(scope.clock.new_id(), "tool", "", "tool") })
}
