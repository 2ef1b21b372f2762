//! The log of function calls: one line per call that ended, and one per chat turn. Everything that a model, a tool or a person has chosen is a field
//! of its own, which the log writes escaped; the message of a line is constant.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::{TurnStatus, Usage, Uuid};
use werkruf_store::CallRow;

use super::outcome::{CallOutcome, Success};
use super::scope::TurnScope;
use crate::redaction::Redaction;
use crate::stored::StoredMeta;

/// The most bytes of arguments, and of a cause, in one line.
const LINE_BYTES: usize = 4096;
/// Where tools keep their results in an object.
const LISTS: [&str; 3] = ["items", "results", "sources"];

/// The line of a call. What the models used is the turn's total at this moment.
pub(super) fn log_call(scope: &TurnScope, row: &CallRow, outcome: &CallOutcome, took_ms: u64) {
    let conversation_id = scope.conversation_id.map(tracing::field::display);
    let (turn_id, job_id, function, status) = (scope.turn_id, row.id, row.tool_name.as_str(), outcome.status);
    let given = row.request.as_deref().or(row.raw_arguments.as_deref()).unwrap_or_default();
    let arguments = arguments(&scope.setup.redaction, scope.setup.log_arguments, given);
    let Usage { model_calls: api_calls, input_tokens: tokens_input, output_tokens: tokens_output, .. } = scope.used();
    let cost_usd = cost(&scope.used());
    match &outcome.result {
        Ok(success) => tracing::info!(target: "werkruf::function_calling", conversation_id, %turn_id, %job_id, function, arguments,
            result_count = result_count(success), api_calls, tokens_input, tokens_output, cost_usd, %status, took_ms, "a function call ended"),
        Err(failure) => {
            let cause = failure.cause.as_deref().map(|cause| &cause[..cause.floor_char_boundary(LINE_BYTES)]);
            tracing::warn!(target: "werkruf::function_calling", conversation_id, %turn_id, %job_id, function, arguments, result_count = 0,
                api_calls, tokens_input, tokens_output, cost_usd, error = &*failure.code, cause, %status, took_ms, "a function call failed");
        }
    }
}

/// The line of a chat turn that ended, with what its own model requests used.
pub(crate) fn log_turn(scope: &TurnScope, status: TurnStatus, calls: usize, error: Option<&str>) {
    log_turn_line(scope.conversation_id, scope.turn_id, &scope.used(), status, calls, error);
}

/// The line of a chat turn that ended before it started.
pub(crate) fn log_unstarted_turn(conversation_id: Option<Uuid>, turn_id: Uuid, status: TurnStatus, error: &str) {
    log_turn_line(conversation_id, turn_id, &Usage::default(), status, 0, Some(error));
}

fn log_turn_line(conversation_id: Option<Uuid>, turn_id: Uuid, used: &Usage, status: TurnStatus, calls: usize, error: Option<&str>) {
    let conversation_id = conversation_id.map(tracing::field::display);
    let Usage { model_calls: api_calls, input_tokens: tokens_input, output_tokens: tokens_output, .. } = used;
    let cost_usd = cost(used);
    tracing::info!(target: "werkruf::function_calling", conversation_id, %turn_id, calls, api_calls, tokens_input, tokens_output, cost_usd, error,
        %status, "a turn ended");
}

/// `None` where a price is unknown.
fn cost(used: &Usage) -> Option<f64> {
    if used.model_calls == 0 { Some(0.0) } else { used.cost_usd }
}

/// The names of the arguments, or all of them where the operator wants it, as JSON.
fn arguments(redaction: &Redaction, whole: bool, text: &str) -> String {
    let Ok(mut given) = serde_json::from_str::<Value>(text) else { return "unreadable".to_owned() };
    if !whole {
        given = given.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    }
    // A model may take a secret that it has read for a name.
    let mut shown = redaction.json(&mut given);
    shown.truncate(shown.floor_char_boundary(LINE_BYTES));
    shown
}

/// How many results a call returned: as its tool says, else the length of its list, which an object has in one of [`LISTS`], else the object's `count`.
/// Other data counts as one.
fn result_count(success: &Success) -> u64 {
    let list = |text: &str| serde_json::from_str::<Vec<IgnoredAny>>(text).ok().map(|list| list.len() as u64);
    let meta: StoredMeta = success.meta.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if let Some(counts) = meta.source_counts {
        return counts.values().fold(0, |sum, count| sum.saturating_add(*count));
    }
    if let Some(length) = list(&success.data) {
        return length;
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(&success.data).unwrap_or_default();
    let listed = LISTS.iter().find_map(|name| list(fields.get(*name)?.get()));
    let counted = || serde_json::from_str(fields.get("count")?.get()).ok();
    listed.or_else(counted).unwrap_or_else(|| u64::from(success.data != "null"))
}

#[cfg(test)]
mod tests {
    use super::{Success, arguments, result_count};
    use crate::redaction::Redaction;

    #[test]
    fn arguments_are_shown_without_secrets() {
        let redaction = Redaction::new(&["sk-12345".to_owned()]).unwrap();
        let given = r#"{"to": "Ada", "key sk-12345": "sk-12345"}"#;
        assert_eq!(arguments(&redaction, false, given), r#"["to","key [redacted]"]"#);
        assert_eq!(arguments(&redaction, true, given), r#"{"to":"Ada","key [redacted]":"[redacted]"}"#);
        assert_eq!([arguments(&redaction, false, "{"), arguments(&redaction, false, "7")], ["unreadable", "[]"]);
    }

    #[test]
    fn results_are_counted() {
        for (data, meta, expected) in [
            ("null", None, 0),
            ("[]", None, 0),
            ("[1, {}, [2]]", None, 3),
            (r#"{"items": [1, 2], "count": 2, "message": "two"}"#, None, 2),
            (r#"{"items": [], "count": 0}"#, None, 0),
            (r#"{"results": [1, 2], "facets": [3]}"#, None, 2),
            (r#"{"results": {"pages": []}, "count": 4}"#, None, 4),
            (r#"{"sources": [1]}"#, None, 1),
            (r#"{"count": -1}"#, None, 1),
            (r#"{"name": "Ada", "roles": [1, 2]}"#, None, 1),
            (r#"{"id": 7}"#, None, 1),
            (r#""text""#, None, 1),
            (r#"{"items": [1, 2]}"#, Some(r#"{"source_counts": {"x": 4, "y": 5}}"#), 9),
        ] {
            let success = Success {
                data: data.to_owned(),
                named: None,
                message: None,
                state_patch: None,
                meta: meta.map(str::to_owned),
                untrusted: false,
                state_not_stored: false,
            };
            assert_eq!(result_count(&success), expected, "{data}");
        }
    }
}
