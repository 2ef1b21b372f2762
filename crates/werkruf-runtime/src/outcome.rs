//! How a call ended, and how that is told: to the row, to the model, to clients.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use werkruf_contract::{
    CallResult, CallStatus, Effect, Failure, Happened, Reply, State, Texts, ToolErrorDetail, ToolErrorType, ToolSpec, Uuid,
};
use werkruf_store::{CallEnd, CallRow};

/// More than this of one result is no help to a model.
const MODEL_BYTES: usize = 200_000;
/// Facts of an error beyond this are for programs, not for a model.
const ERROR_BYTES: usize = 8_000;

/// What a call left behind, once and for all.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) status: CallStatus,
    pub(crate) result: Result<Success, Failure>,
    pub(crate) attempt: u32,
    pub(crate) cache_hit: bool,
    pub(crate) finished_at: Timestamp,
}

/// A result, its data written as JSON once and spliced from then on.
#[derive(Debug, Clone)]
pub(crate) struct Success {
    pub(crate) data: String,
    pub(crate) message: Option<String>,
    pub(crate) state_patch: Option<State>,
    pub(crate) meta: Option<String>,
}

/// What a reply says beside its data, as the row keeps it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredMeta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_counts: Option<BTreeMap<String, u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) routing: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_usage: Option<BTreeMap<String, i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_patch: Option<State>,
}

impl StoredMeta {
    const fn is_empty(&self) -> bool {
        self.source_counts.is_none()
            && self.routing.is_none()
            && self.token_usage.is_none()
            && self.message.is_none()
            && self.state_patch.is_none()
    }
}

impl Success {
    /// Writes a reply down; too large an answer is a failure.
    pub(crate) fn of(reply: Reply, spec: &ToolSpec) -> Result<Self, Failure> {
        let data = reply.data.to_string();
        if data.len() > spec.max_response_bytes {
            let cause = format!("{} bytes; at most {} are kept", data.len(), spec.max_response_bytes);
            return Err(Failure::fatal("response_too_large", "").because(cause));
        }
        let meta = StoredMeta {
            source_counts: reply.source_counts,
            routing: reply.routing,
            token_usage: reply.token_usage,
            message: reply.message.clone(),
            state_patch: reply.state_patch.clone(),
        };
        let meta = if meta.is_empty() { None } else { serde_json::to_string(&meta).ok() };
        Ok(Self { data, message: reply.message, state_patch: reply.state_patch, meta })
    }

    /// A stored result, given again. Its patch was applied when it first came.
    pub(crate) fn stored(row: &CallRow) -> Self {
        let meta: Option<StoredMeta> = row.meta.as_deref().and_then(|text| serde_json::from_str(text).ok());
        Self {
            data: row.response.clone().unwrap_or_else(|| "null".to_owned()),
            message: meta.and_then(|meta| meta.message),
            state_patch: None,
            meta: row.meta.clone(),
        }
    }
}

impl Ended {
    /// A call that was never sent.
    pub(crate) const fn refused(failure: Failure, now: Timestamp) -> Self {
        Self { status: CallStatus::Failed, result: Err(failure), attempt: 0, cache_hit: false, finished_at: now }
    }

    /// A failed attempt, judged by the effect: a `once` call whose request may have left ends `outcome_unknown`.
    pub(crate) fn failed(failure: Failure, cause: CallStatus, effect: Effect, attempt: u32, now: Timestamp) -> Self {
        let unknown = effect == Effect::Once && failure.happened == Happened::Unknown;
        let failure = if unknown { outcome_unknown(failure) } else { failure };
        Self { status: cause, result: Err(failure), attempt, cache_hit: false, finished_at: now }
    }

    /// The same outcome for a call that joined: its own row, no attempt of its own.
    pub(crate) fn shared(&self, now: Timestamp) -> Self {
        let mut shared = self.clone();
        shared.attempt = 0;
        shared.finished_at = now;
        if let Ok(success) = &mut shared.result {
            success.state_patch = None;
        }
        shared
    }

    /// What the corridor itself found wrong gets its words here, in the person's language; a tool brings its own.
    pub(crate) fn in_words(mut self, words: &Texts) -> Self {
        if let Err(failure) = &mut self.result
            && failure.message.is_empty()
        {
            failure.message = words.text(&format!("call-{}", failure.code), &[]);
        }
        self
    }

    pub(crate) fn detail(&self) -> Option<ToolErrorDetail> {
        self.result.as_ref().err().map(|failure| failure.clone().into_detail(self.attempt))
    }

    /// For the row.
    pub(crate) fn end(&self, id: Uuid) -> CallEnd {
        let failure = self.result.as_ref().err();
        CallEnd {
            id,
            status: self.status,
            response: self.result.as_ref().ok().map(|success| success.data.clone()),
            meta: self.result.as_ref().ok().and_then(|success| success.meta.clone()),
            error: failure.map(|f| f.message.clone()),
            error_type: failure.map(|f| f.kind.as_str().to_owned()),
            error_code: failure.map(|f| f.code.to_string()),
            error_detail: self.detail().and_then(|detail| serde_json::to_string(&detail).ok()),
            cache_hit: self.cache_hit,
            finished_at: self.finished_at,
        }
    }

    /// For the model: the data itself, or what went wrong and what to do about it.
    pub(crate) fn for_model(&self) -> (String, &'static str) {
        match &self.result {
            Ok(success) if success.data.len() <= MODEL_BYTES => (success.data.clone(), "success"),
            Ok(success) => (cut(&success.data), "success"),
            Err(failure) => {
                let mut detail = failure.clone().into_detail(self.attempt).for_readers();
                if detail.details.as_ref().is_some_and(|details| json!(details).to_string().len() > ERROR_BYTES) {
                    detail.details = None;
                }
                (json!({"error": detail}).to_string(), "error")
            }
        }
    }

    /// For clients.
    pub(crate) fn result(&self, row: &CallRow) -> CallResult<Box<RawValue>> {
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

    pub(crate) fn took_ms(&self, row: &CallRow) -> u64 {
        let start = row.started_at.unwrap_or(row.created_at);
        u64::try_from(self.finished_at.as_millisecond() - start.as_millisecond()).unwrap_or(0)
    }
}

fn cut(data: &str) -> String {
    let mut end = MODEL_BYTES;
    while !data.is_char_boundary(end) {
        end -= 1;
    }
    json!({"truncated": true, "bytes": data.len(), "beginning": &data[..end]}).to_string()
}

/// The person and the model are told that nobody knows; the cause stays readable for the operator.
fn outcome_unknown(failure: Failure) -> Failure {
    let cause = format!("{}: {}{}", failure.code, failure.message, failure.cause.map(|c| format!(" ({c})")).unwrap_or_default());
    Failure {
        kind: ToolErrorType::Fatal,
        code: "outcome_unknown".into(),
        message: String::new(),
        cause: Some(cause),
        retry_after: None,
        ..failure
    }
}
