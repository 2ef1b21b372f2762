//! What a provider ran itself (web searches, MCP calls), recorded like our own calls. Nothing of it is ever sent by us.

use serde_json::{Value, json};
use werkruf_contract::{CallStatus, EventType, Failure, ToolContext, ToolErrorType, ToolFinished};
use werkruf_llm::{Answer, ProviderItem};
use werkruf_store::CallRow;

use crate::corridor::{Arguments, Asked};
use crate::ground::{Draft, Ground};
use crate::record::{announce, new_row, object};

const FAILED: &str = "provider_call_failed";

/// Rows and events for the items of one answer, in the commit that makes the answer durable.
pub(crate) fn record_items(ground: &Ground, draft: &mut Draft, step: u32, context: &ToolContext, answer: &Answer) {
    for item in &answer.items {
        let Some(row) = row(ground, step, context, answer, item) else { continue };
        announce(draft, &row);
        let finished = ToolFinished {
            tool: row.tool_name.clone(),
            job_id: row.id,
            call_id: row.call_id.clone(),
            status: row.status,
            took_ms: 0,
            cache_hit: false,
        };
        draft.event(EventType::ToolFinished, &finished);
        draft.write.calls.push(row);
    }
}

/// Whether the provider ran this call itself: it has no key of ours, because nobody could ask us for it twice.
pub(crate) fn is_provided(row: &CallRow) -> bool {
    row.dedupe_key.is_none() && row.attempt == 0 && (row.status == CallStatus::Succeeded || row.error_code.as_deref() == Some(FAILED))
}

fn row(ground: &Ground, step: u32, context: &ToolContext, answer: &Answer, item: &ProviderItem) -> Option<CallRow> {
    let asked = Asked {
        job_id: ground.clock.new_id(),
        kind: item.call_kind()?,
        item_id: item.item_id.clone(),
        call_id: item.call_id.clone(),
        response_id: answer.response_id.clone(),
        output_index: item.output_index,
        name: item.name.clone().unwrap_or_else(|| item.kind.clone()),
        arguments: Arguments::Raw(item.arguments.clone().unwrap_or_default()),
        history_id: None,
        retry_of: None,
        idempotency_key: None,
        refused: None,
    };
    let mut row = new_row(ground, step, context, &asked);
    row.request = item.arguments.clone().filter(|text| serde_json::from_str::<Value>(text).is_ok());
    row.response = item.output.as_ref().map(Value::to_string);
    row.finished_at = Some(row.created_at);
    row.status = if item.succeeded() { CallStatus::Succeeded } else { CallStatus::Failed };
    if row.status == CallStatus::Failed {
        let details = object(json!({"status": item.status, "error": item.error}));
        let failure = Failure::new(ToolErrorType::Upstream, FAILED, "The provider's own call failed.").with_details(details);
        row.error = Some(failure.message.clone());
        row.error_type = Some(failure.kind.as_str().to_owned());
        row.error_code = Some(failure.code.to_string());
        row.error_detail = serde_json::to_string(&failure.into_detail(0)).ok();
    }
    Some(row)
}
