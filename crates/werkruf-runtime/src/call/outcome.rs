//! How a call ended, in the forms for its row, for the model and for clients.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use werkruf_contract::{
    CallResult, CallStatus, Effect, ErrorCode, Failure, Happened, Reply, State, Texts, ToolErrorDetail, ToolErrorType, ToolFinished,
};
use werkruf_store::{CallEnd, CallRow};

use super::attachments::NamedData;
use super::results::{ResultLimit, with_warning};
use super::state_patch::{drop_owned, list_dropped};
use crate::registry::Entry;
use crate::setup::Setup;
use crate::stored::{StoredMeta, UNTRUSTED};
use crate::taint::{UntrustedResult, is_untrusted};

/// The most bytes of an error's details that a model gets.
const ERROR_BYTES: usize = 8_000;

/// How a call ended. It never changes.
#[derive(Debug, Clone)]
pub(crate) struct CallOutcome {
    pub(crate) status: CallStatus,
    pub(crate) result: Result<Success, Failure>,
    pub(crate) attempt: u32,
    pub(crate) cache_hit: bool,
    pub(crate) finished_at: Timestamp,
    /// Strangers may have written what the call returned, an error included.
    pub(crate) untrusted: bool,
}

/// A result. Its data is written as JSON once and copied from then on.
#[derive(Debug, Clone)]
pub(crate) struct Success {
    pub(crate) data: String,
    /// The data as the model reads it, where it has pictures or files.
    pub(crate) named: Option<Arc<NamedData>>,
    pub(crate) message: Option<String>,
    pub(crate) state_patch: Option<State>,
    pub(crate) meta: Option<String>,
    pub(crate) untrusted: bool,
    /// The state patch was dropped, because the session state would have become too large.
    pub(crate) state_not_stored: bool,
}

/// What a model gets of a call's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelResult {
    pub(crate) content: String,
    /// The content and its pictures and files, as content parts of Chat Completions. Empty where there is text only.
    pub(crate) parts: Vec<Value>,
    pub(crate) status: &'static str,
}

impl ModelResult {
    /// What went wrong.
    pub(crate) const fn error(content: String) -> Self {
        Self { content, parts: Vec::new(), status: "error" }
    }
}

impl Success {
    /// A tool's reply. A reply that is too large is a failure. Fields of the session state that other tools own stay as they are.
    /// What the tool echoes of the server's secrets is redacted first.
    pub(crate) fn of(mut reply: Reply, entry: &Entry, setup: &Setup) -> Result<Self, Failure> {
        let spec = entry.spec();
        let data = setup.redaction.json(&mut reply.data);
        if data.len() > spec.max_response_bytes {
            let cause = format!("{} bytes; at most {} are kept", data.len(), spec.max_response_bytes);
            return Err(Failure::fatal(ErrorCode::ResponseTooLarge, "").because(cause));
        }
        drop_owned(&mut reply, entry, &setup.registry);
        let mut routing = reply.routing;
        let declared = routing.as_ref().is_some_and(|routing| routing.get(UNTRUSTED) == Some(&Value::Bool(true)));
        let untrusted = reply.untrusted || declared || is_untrusted(spec);
        if untrusted {
            routing.get_or_insert_default().insert(UNTRUSTED.to_owned(), true.into());
        }
        let mut meta = StoredMeta {
            source_counts: reply.source_counts,
            routing,
            token_usage: reply.token_usage,
            message: reply.message,
            state_patch: reply.state_patch,
        };
        let column = setup.redaction.meta(&mut meta);
        let named = NamedData::of(&reply.data).map(Arc::new);
        Ok(Self { data, named, message: meta.message, state_patch: meta.state_patch, meta: column, untrusted, state_not_stored: false })
    }

    /// A stored result, used again. Its patch was applied the first time.
    pub(crate) fn stored(row: &CallRow) -> Self {
        let meta = StoredMeta::of(row);
        let data = row.response.clone().unwrap_or_else(|| "null".to_owned());
        Self {
            named: NamedData::of_text(&data).map(Arc::new),
            data,
            untrusted: meta.is_untrusted(),
            message: meta.message,
            state_patch: None,
            meta: row.meta.clone(),
            // Only for the turn itself: a later one does not wait for the patch.
            state_not_stored: false,
        }
    }

    /// What the tool says to the person: its message, or the field `message` of its data.
    pub(crate) fn own_text(&self) -> Option<String> {
        let of_data = || serde_json::from_str::<Value>(&self.data).ok().and_then(|data| Some(data.get("message")?.as_str()?.to_owned()));
        self.message.clone().or_else(of_data).filter(|text| !text.trim().is_empty())
    }

    /// Drops the patch. The person reads it after the tool's own words, and the model beside the data.
    fn drop_patch(&mut self, notice: &str) {
        let mut meta: StoredMeta = self.meta.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        list_dropped(&mut meta.routing, vec![json!({"reason": ErrorCode::StateTooLarge.as_str()})]);
        let message = self.message.take().map_or_else(|| notice.to_owned(), |own| format!("{own}\n\n{notice}"));
        (meta.message, meta.state_patch) = (Some(message.clone()), None);
        (self.message, self.state_patch, self.state_not_stored) = (Some(message), None, true);
        self.meta = meta.to_column();
    }
}

impl CallOutcome {
    /// A call that was never sent.
    pub(crate) const fn refused(failure: Failure, now: Timestamp) -> Self {
        Self { status: CallStatus::Failed, result: Err(failure), attempt: 0, cache_hit: false, finished_at: now, untrusted: false }
    }

    /// A failed attempt. A `once` call whose request may have left the process ends with code `outcome_unknown`.
    pub(crate) fn failed(failure: Failure, cause: CallStatus, effect: Effect, attempt: u32, now: Timestamp) -> Self {
        let unknown = effect == Effect::Once && failure.happened == Happened::Unknown;
        let failure = if unknown { outcome_unknown(failure) } else { failure };
        Self { status: cause, result: Err(failure), attempt, cache_hit: false, finished_at: now, untrusted: false }
    }

    /// The same outcome for a call that followed this one: it has its own row and no attempt of its own.
    pub(crate) fn shared(&self, now: Timestamp) -> Self {
        let mut shared = self.clone();
        shared.attempt = 0;
        shared.finished_at = now;
        if let Ok(success) = &mut shared.result {
            success.state_patch = None;
        }
        shared
    }

    /// The outcome of a call whose patch would make the session state too large. It stays succeeded, and says that nothing was kept.
    pub(crate) fn without_patch(&self, texts: &Texts) -> Self {
        let mut outcome = self.clone();
        if let Ok(success) = &mut outcome.result {
            success.drop_patch(&texts.text("state-not-stored", &[]));
        }
        outcome
    }

    /// Fills in the message of a failure that the pipeline itself found, in the user's language. Tools bring their own messages.
    pub(crate) fn with_message(mut self, texts: &Texts) -> Self {
        if let Err(failure) = &mut self.result
            && failure.message.is_empty()
        {
            failure.message = texts.text(&format!("call-{}", failure.code), &[]);
        }
        self
    }

    /// A stored outcome.
    pub(crate) fn stored(call: &CallRow) -> Self {
        let result = if call.status == CallStatus::Succeeded {
            Ok(Success::stored(call))
        } else {
            let detail: Option<ToolErrorDetail> = call.error_detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
            Err(detail.map_or_else(|| Failure::fatal(ErrorCode::Interrupted, "The call was interrupted."), stored_failure))
        };
        let finished_at = call.finished_at.unwrap_or(call.updated_at);
        let untrusted = StoredMeta::of(call).is_untrusted();
        Self { status: call.status, result, attempt: call.attempt, cache_hit: call.cache_hit, finished_at, untrusted }
    }

    pub(crate) fn detail(&self) -> Option<ToolErrorDetail> {
        self.result.as_ref().err().map(|failure| failure.clone().into_detail(self.attempt))
    }

    /// For the row.
    pub(crate) fn call_end(&self, row: &CallRow) -> CallEnd {
        let failure = self.result.as_ref().err();
        CallEnd {
            id: row.id,
            status: self.status,
            response: self.result.as_ref().ok().map(|success| success.data.clone()),
            meta: match &self.result {
                Ok(success) => success.meta.clone(),
                Err(_) => self.untrusted.then(|| json!({"routing": {UNTRUSTED: true}}).to_string()),
            },
            error: failure.map(|f| f.message.clone()),
            error_type: failure.map(|f| f.kind.as_str().to_owned()),
            error_code: failure.map(|f| f.code.to_string()),
            error_detail: self.detail().and_then(|detail| serde_json::to_string(&detail).ok()),
            permission: row.permission.clone(),
            cache_hit: self.cache_hit,
            finished_at: self.finished_at,
        }
    }

    /// For the model: the data itself, or what went wrong and what to do about it.
    pub(crate) fn for_model(&self, row: &CallRow, limit: ResultLimit) -> ModelResult {
        match &self.result {
            Ok(success) => {
                let named = success.named.as_ref().map(|named| named.text(limit.attachments));
                let data = limit.shown(named.as_deref().unwrap_or(&success.data), success.message.as_deref(), row);
                let content = if success.state_not_stored { with_warning(&data) } else { data };
                let attached = success.named.as_ref().filter(|named| limit.attachments && !named.attachments.is_empty());
                let parts = attached.map(|named| named.parts(&content)).unwrap_or_default();
                ModelResult { content, parts, status: "success" }
            }
            Err(failure) => {
                let mut detail = failure.clone().into_detail(self.attempt).for_readers();
                if detail.details.as_ref().is_some_and(|details| json!(details).to_string().len() > ERROR_BYTES) {
                    detail.details = None;
                }
                ModelResult::error(json!({"error": detail}).to_string())
            }
        }
    }

    /// The metadata of the message for the model: its pictures and files, and whether strangers wrote it.
    pub(crate) fn metadata(&self, row: &CallRow, result: &ModelResult) -> Option<String> {
        let mut metadata = Map::new();
        if self.untrusted {
            metadata.insert(UNTRUSTED.to_owned(), json!([UntrustedResult::of(row)]));
        }
        if !result.parts.is_empty() {
            metadata.insert("content".to_owned(), json!(result.parts));
        }
        (!metadata.is_empty()).then(|| Value::Object(metadata).to_string())
    }

    /// For clients.
    pub(crate) fn call_result(&self, row: &CallRow) -> CallResult<Box<RawValue>> {
        CallResult {
            job_id: row.id,
            call_id: row.call_id.clone(),
            tool: row.tool_name.clone(),
            status: self.status,
            took_ms: self.took_ms(row),
            cache_hit: self.cache_hit,
            data: self.result.as_ref().ok().and_then(|success| RawValue::from_string(success.data.clone()).ok()),
            error: self.detail().map(ToolErrorDetail::for_readers),
        }
    }

    /// The event for clients that watch the turn.
    pub(crate) fn finished_event(&self, row: &CallRow) -> ToolFinished {
        ToolFinished {
            tool: row.tool_name.clone(),
            job_id: row.id,
            call_id: row.call_id.clone(),
            status: self.status,
            took_ms: self.took_ms(row),
            cache_hit: self.cache_hit,
        }
    }

    pub(crate) fn took_ms(&self, row: &CallRow) -> u64 {
        let start = row.started_at.unwrap_or(row.created_at);
        u64::try_from(self.finished_at.as_millisecond() - start.as_millisecond()).unwrap_or(0)
    }
}

/// User and model learn that the outcome is unknown; the cause stays readable for the operator.
fn outcome_unknown(failure: Failure) -> Failure {
    let cause = format!("{}: {}{}", failure.code, failure.message, failure.cause.map(|c| format!(" ({c})")).unwrap_or_default());
    Failure {
        kind: ToolErrorType::Fatal,
        code: ErrorCode::OutcomeUnknown.into(),
        message: String::new(),
        cause: Some(cause),
        retry_after: None,
        ..failure
    }
}

fn stored_failure(detail: ToolErrorDetail) -> Failure {
    Failure {
        kind: detail.kind,
        code: detail.code.unwrap_or_default().into(),
        message: detail.message,
        cause: detail.cause,
        retry_after: detail.retry_after_ms.and_then(|ms| u64::try_from(ms).ok()).map(std::time::Duration::from_millis),
        upstream_status: detail.upstream_status.and_then(|status| u16::try_from(status).ok()),
        endpoint: detail.endpoint,
        details: detail.details,
        happened: Happened::No,
    }
}

/// The failure of a call that was open when its process stopped.
pub(crate) fn interrupted() -> Failure {
    Failure::new(ToolErrorType::Retryable, ErrorCode::Interrupted, "").nothing_happened()
}

/// The failure of a call that was canceled.
pub(crate) fn canceled() -> Failure {
    Failure::fatal(ErrorCode::Canceled, "")
}
