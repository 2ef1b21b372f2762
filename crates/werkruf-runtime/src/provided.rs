//! What a provider runs itself (web searches, MCP calls), recorded like our own calls while it happens. Nothing of it is ever
//! sent by us.
//!
//! Invariants: a row before a word of it is heard; every row ends, with its item, with the answer, or when the answer is given
//! up; a place belongs to one answer, so an answer that broke off after it had rows keeps its step and the next one has another.

use serde_json::{Value, json};
use werkruf_contract::{CallKind, CallStatus, Failure, ToolContext, ToolErrorType};
use werkruf_llm::{Answer, ProviderItem};
use werkruf_store::{CallRow, ProviderCallUpdate};

use crate::corridor::{Arguments, Asked};
use crate::ground::{Draft, Ground};
use crate::outcome::{Ended, Success};
use crate::record::{announce, new_row, object, record, shown};

const FAILED: &str = "provider_call_failed";

/// The provider's own calls of the answer that is being heard, as their rows are.
#[derive(Default)]
pub(crate) struct Provided {
    rows: Vec<CallRow>,
    /// Answers that broke off and kept their step, since this was last looked at.
    pub(crate) given_up: u32,
}

impl Provided {
    /// Whether the answer has left rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows the answer has.
    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a call for us stands where the provider has begun something itself.
    pub(crate) fn clashes_with(&self, answer: &Answer) -> bool {
        answer.calls.iter().any(|call| self.rows.iter().any(|row| row.output_index == call.output_index))
    }

    /// An item begins. `None` where it is no call, or is known.
    pub(crate) fn begin(&mut self, ground: &Ground, step: u32, context: &ToolContext, item: &ProviderItem) -> Option<Draft> {
        if self.rows.iter().any(|row| row.output_index == item.output_index) {
            return None;
        }
        let row = begun(ground, step, context, item)?;
        let mut draft = ground.draft();
        announce(&mut draft, &row);
        draft.write.calls.push(row.clone());
        self.rows.push(row);
        Some(draft)
    }

    /// An item ends. `None` where nothing began.
    pub(crate) fn finish(&mut self, ground: &Ground, item: &ProviderItem) -> Option<Draft> {
        let row = self.rows.iter_mut().find(|row| row.output_index == item.output_index && !row.status.is_terminal())?;
        let mut draft = ground.draft();
        conclude(ground, &mut draft, row, item);
        Some(draft)
    }

    /// The answer is whole: what it says of the provider's calls becomes durable with it, also of those nobody heard of before.
    pub(crate) fn settle(&mut self, ground: &Ground, draft: &mut Draft, step: u32, context: &ToolContext, answer: &Answer) {
        for item in &answer.items {
            match self.rows.iter_mut().find(|row| row.output_index == item.output_index) {
                Some(row) if row.status.is_terminal() => {}
                Some(row) => conclude(ground, draft, row, item),
                None => {
                    let Some(mut row) = begun(ground, step, context, item) else { continue };
                    announce(draft, &row);
                    let ended = outcome(ground, item);
                    crate::record::conclude(&mut row, &ended);
                    row.response = output(item);
                    record(ground, draft, &row, None, &ended);
                    draft.write.calls.push(row);
                }
            }
        }
        self.close(ground, draft, CallStatus::Failed);
    }

    /// Nothing more will be heard of this answer.
    pub(crate) fn close(&mut self, ground: &Ground, draft: &mut Draft, status: CallStatus) {
        for row in self.rows.drain(..).filter(|row| !row.status.is_terminal()) {
            break_off(ground, draft, &row, status);
        }
    }
}

/// Ends a row whose answer broke off.
pub(crate) fn break_off(ground: &Ground, draft: &mut Draft, row: &CallRow, status: CallStatus) {
    let code = if status == CallStatus::Canceled { "canceled" } else { "interrupted" };
    let failure = Failure::new(ToolErrorType::Upstream, code, "The answer broke off while the provider ran this.");
    record(ground, draft, row, None, &Ended::failed(failure, status, row.effect, row.attempt, ground.clock.now()));
}

/// Whether the provider ran this call itself.
pub(crate) fn is_provided(row: &CallRow) -> bool {
    match row.kind {
        CallKind::Mcp | CallKind::WebSearch => true,
        CallKind::Function => false,
        // Both sides have such; theirs has no keys of ours, because nobody could ask us for it twice.
        CallKind::Custom => {
            // Rows of earlier versions were written when all was over.
            let told = row.attempt == 0 && (row.status == CallStatus::Succeeded || row.error_code.as_deref() == Some(FAILED));
            row.dedupe_key.is_none() && row.idempotency_key.is_none() && (row.attempt == 1 || told)
        }
    }
}

fn begun(ground: &Ground, step: u32, context: &ToolContext, item: &ProviderItem) -> Option<CallRow> {
    let asked = Asked {
        job_id: ground.clock.new_id(),
        kind: item.call_kind()?,
        item_id: item.item_id.clone(),
        call_id: item.call_id.clone(),
        response_id: item.response_id.clone(),
        output_index: item.output_index,
        name: name(item),
        arguments: Arguments::Raw(item.arguments.clone().unwrap_or_default()),
        history_id: None,
        retry_of: None,
        idempotency_key: None,
        refused: None,
    };
    let mut row = new_row(ground, step, context, &asked);
    row.request = request(item);
    row.status = CallStatus::Running;
    row.attempt = 1;
    row.started_at = Some(row.created_at);
    Some(row)
}

fn name(item: &ProviderItem) -> String {
    item.name.clone().unwrap_or_else(|| item.kind.clone())
}

fn request(item: &ProviderItem) -> Option<String> {
    item.arguments.clone().filter(|text| serde_json::from_str::<Value>(text).is_ok())
}

/// What the item says in the end wins over what it said when it began.
fn conclude(ground: &Ground, draft: &mut Draft, row: &mut CallRow, item: &ProviderItem) {
    let heard = ProviderCallUpdate {
        id: row.id,
        tool_name: shown(&name(item)),
        response_id: item.response_id.clone(),
        item_id: item.item_id.clone(),
        call_id: item.call_id.clone(),
        request: request(item),
        raw_arguments: item.arguments.clone(),
    };
    row.tool_name.clone_from(&heard.tool_name);
    row.call_id = heard.call_id.clone().or(row.call_id.take());
    draft.write.provider_updates.push(heard);
    let ended = outcome(ground, item);
    record(ground, draft, row, None, &ended);
    if let Some(end) = draft.write.ends.last_mut() {
        end.response = output(item);
    }
    row.status = ended.status;
}

/// As it came, also from a call that failed.
fn output(item: &ProviderItem) -> Option<String> {
    item.output.as_ref().map(Value::to_string)
}

fn outcome(ground: &Ground, item: &ProviderItem) -> Ended {
    let result = if item.succeeded() {
        Ok(Success { data: output(item).unwrap_or_default(), message: None, state_patch: None, meta: None })
    } else {
        let details = object(json!({"status": item.status, "error": item.error}));
        Err(Failure::new(ToolErrorType::Upstream, FAILED, "The provider's own call failed.").with_details(details))
    };
    let status = if result.is_ok() { CallStatus::Succeeded } else { CallStatus::Failed };
    Ended { status, result, attempt: 1, cache_hit: false, finished_at: ground.clock.now() }
}
