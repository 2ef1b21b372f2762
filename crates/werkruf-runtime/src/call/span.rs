//! The span of a tool call, over all of its attempts.

use werkruf_store::CallRow;

use super::outcome::CallOutcome;
use super::scope::TurnScope;
use crate::journal::Change;
use crate::stored::is_provider_run;
use crate::trace::{Attribute, NewSpan, SpanKind, names};

/// Ends the span of a call, also of one that was refused. It leaves when the outcome is durable: until then another process may run the call again.
pub(super) fn end_span(scope: &TurnScope, row: &CallRow, outcome: &CallOutcome) {
    let (trace, provider_run) = (&scope.trace, is_provider_run(row));
    if !trace.is_on() {
        return;
    }
    let tool = if provider_run { row.tool_name.as_str() } else { trace.tool_name(&row.tool_name) };
    // The conventions call a tool an extension if the provider runs it.
    let kind = if provider_run { "extension" } else { "function" };
    let mut attributes = vec![
        (names::OPERATION_NAME, Attribute::from(names::EXECUTE_TOOL)),
        (names::TOOL_NAME, tool.into()),
        (names::TOOL_TYPE, kind.into()),
        (names::WERKRUF_CALL_ID, row.id.into()),
    ];
    let call_id = row.call_id.as_deref().map(|id| id.chars().filter(|c| !c.is_control()).take(256).collect());
    attributes.push((names::TOOL_CALL_ID, Attribute::Text(call_id.unwrap_or_else(|| row.id.to_string()))));
    let given = row.request.as_deref().or(row.raw_arguments.as_deref()).unwrap_or_default();
    let result = || outcome.for_model(row, scope.result_limit).content;
    attributes.extend(trace.text(|| given.to_owned()).map(|text| (names::TOOL_ARGUMENTS, Attribute::Text(text))));
    attributes.extend(trace.text(result).map(|text| (names::TOOL_RESULT, Attribute::Text(text))));
    let span = trace.ended(NewSpan {
        id: trace.span_of(Some(row.id)),
        parent: trace.span_of(None),
        name: format!("{} {tool}", names::EXECUTE_TOOL),
        kind: SpanKind::Internal,
        started_at: row.started_at.unwrap_or(row.created_at),
        ended_at: outcome.finished_at,
        attributes,
        error: outcome.result.as_ref().err().map(|failure| failure.code.as_ref()),
    });
    if let Some(span) = span {
        scope.journal.stage(Change::Span(span));
    }
}
