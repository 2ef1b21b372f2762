//! Results that are too large for a model: it gets the beginning, and reads on with a tool. The row has the whole result.

use std::sync::Arc;

use serde::Serialize;
use werkruf_contract::{BoxFuture, CallStatus, Failure, MODEL_BYTES, Results, StoredResult, Uuid, excerpt};
use werkruf_store::{CallRow, Records};

use super::attachments::NamedData;
use crate::stored::{StoredMeta, is_provider_run};

/// The same where the context window is small.
const LEAST: usize = 1024;
const HINT: &str = "This is the beginning of the result. The tool read_result returns the rest: pass job_id, and next_offset as offset.";

/// What the model of a turn gets of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultLimit {
    /// The most bytes that it gets whole.
    bytes: usize,
    /// Whether it reads pictures and files.
    pub(crate) attachments: bool,
}

impl Default for ResultLimit {
    fn default() -> Self {
        Self { bytes: MODEL_BYTES, attachments: true }
    }
}

impl ResultLimit {
    /// For a context window. Two bytes per token: a token of JSON has three to four bytes, so one result takes about half of the window.
    pub(crate) fn of(context_tokens: Option<u64>, attachments: bool) -> Self {
        let window = context_tokens.and_then(|tokens| usize::try_from(tokens).ok()).unwrap_or(usize::MAX);
        Self { bytes: window.saturating_mul(2).clamp(LEAST, MODEL_BYTES), attachments }
    }

    /// What the model gets of a result.
    pub(crate) fn shown(self, data: &str, message: Option<&str>, row: &CallRow) -> String {
        if data.len() <= self.bytes {
            return data.to_owned();
        }
        let beginning = excerpt(data, 0, self.bytes / 4);
        let message = message.map(|message| excerpt(message, 0, self.bytes / 8));
        let next_offset = beginning.len();
        let cut = CutResult { truncated: true, bytes: data.len(), job_id: row.id, next_offset, hint: HINT, message, beginning };
        serde_json::to_string(&cut).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct CutResult<'a> {
    truncated: bool,
    bytes: usize,
    job_id: Uuid,
    next_offset: usize,
    hint: &'static str,
    /// What the tool says in words; the data may have it too far behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    beginning: &'a str,
}

const WARNING: &str = r#"{"warning":"state_too_large: this was carried out, but the session state has no room to keep it","result":"#;

/// A result whose state patch was dropped. Otherwise the model would say that it was kept.
pub(super) fn with_warning(data: &str) -> String {
    format!("{WARNING}{data}}}")
}

/// Whether a message of the history has the beginning of a result only.
pub(crate) fn is_cut(content: &str) -> bool {
    content.strip_prefix(WARNING).unwrap_or(content).starts_with(r#"{"truncated":true,"bytes":"#)
}

/// The results of a turn's conversation. A turn outside a conversation has none.
pub(super) struct ConversationResults {
    pub(super) records: Arc<dyn Records>,
    pub(super) tenant_id: Uuid,
    pub(super) conversation_id: Option<Uuid>,
    pub(super) limit: ResultLimit,
}

impl std::fmt::Debug for ConversationResults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConversationResults").field("conversation_id", &self.conversation_id).finish_non_exhaustive()
    }
}

impl Results for ConversationResults {
    fn result(&self, job_id: Uuid) -> BoxFuture<'_, Result<Option<StoredResult>, Failure>> {
        Box::pin(async move {
            let Some(conversation_id) = self.conversation_id else { return Ok(None) };
            let row =
                self.records.call(self.tenant_id, job_id).await.map_err(|error| error.read_failure("The result cannot be read now."))?;
            let row = row.filter(|row| row.conversation_id == Some(conversation_id) && row.status == CallStatus::Succeeded);
            Ok(row.and_then(|row| {
                // What a provider ran is a web search or a foreign server; its rows have no meta.
                let untrusted = is_provider_run(&row) || StoredMeta::of(&row).is_untrusted();
                let data = row.response?;
                // The model has read the data with its bytes named, so positions count there.
                let data = NamedData::of_text(&data).map_or(data, |named| named.data.to_string());
                Some(StoredResult { data, tool: row.tool_name, untrusted })
            }))
        })
    }

    fn model_bytes(&self) -> usize {
        self.limit.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::test_rows::once_call;

    #[test]
    fn the_limit_follows_the_context_window() {
        let limit = |tokens| ResultLimit::of(tokens, true).bytes;
        assert_eq!([limit(None), limit(Some(1_000_000)), limit(Some(2000)), limit(Some(10))], [MODEL_BYTES, MODEL_BYTES, 4000, LEAST]);
    }

    #[test]
    fn a_large_result_is_shown_as_its_beginning() {
        let (row, limit) = (once_call(), ResultLimit::of(Some(2000), true));
        let whole = format!("\"{}\"", "x".repeat(3998));
        assert_eq!(limit.shown(&whole, Some("done"), &row), whole);
        let data = format!("[{}]", "\"ä\",".repeat(2000));
        let shown = limit.shown(&data, Some("done"), &row);
        assert!(is_cut(&shown) && is_cut(&with_warning(&shown)) && !is_cut(&data) && shown.len() < 1400, "{}", shown.len());
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let beginning = shown["beginning"].as_str().unwrap();
        assert!(data.starts_with(beginning) && beginning.len() > 600);
        assert_eq!((&shown["bytes"], &shown["next_offset"]), (&data.len().into(), &beginning.len().into()));
        assert_eq!((&shown["job_id"], &shown["message"]), (&row.id.to_string().into(), &"done".into()));
    }
}
