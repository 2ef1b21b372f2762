//! Requests with results of the client's tools that were sent before. A library that loses an answer sends its request again by itself; then the
//! server's tools must not run twice. Everything else is a new request: only an `Idempotency-Key` asks for the old answer.

use std::io::Write;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{ToolContext, TurnStatus, hex};
use werkruf_runtime::{Caller, Continuation};
use werkruf_store::SentTurn;

use super::input::Input;
use super::server_tools::server_tools;
use super::start::TurnRequest;

/// How long a completed answer is returned again. OpenAI's libraries wait eight seconds at most, or as long as `Retry-After` says up to a minute.
const REPLAY_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// What became of an earlier request with the same transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Earlier {
    /// The same request runs, or was answered just now.
    Same(SentTurn),
    /// It failed or was canceled. What it stored is in its conversation.
    Unanswered(SentTurn),
    /// There is none, or it has an answer of its own.
    None,
}

impl Earlier {
    /// Judges the turns of requests with the same transcript, the newest first. One that continued no waiting call started from the client's own
    /// history, like a first message, and does not count.
    pub(super) fn among(turns: Vec<SentTurn>, own: &Continuation, now: Timestamp) -> Self {
        let mut turns: Vec<SentTurn> = turns.into_iter().filter(|turn| turn.request.is_some()).collect();
        let same = turns.iter().position(|turn| turn.request.as_ref() == Some(&own.request));
        if turns.is_empty() {
            return Self::None;
        }
        let turn = turns.swap_remove(same.unwrap_or(0));
        let is_recent = || turn.finished_at.is_some_and(|at| now.duration_since(at) <= REPLAY_WINDOW);
        match turn.status {
            TurnStatus::Failed | TurnStatus::Canceled => Self::Unanswered(turn),
            TurnStatus::Completed if same.is_some() && is_recent() => Self::Same(turn),
            TurnStatus::Completed => Self::None,
            _ if same.is_some() => Self::Same(turn),
            _ => Self::None,
        }
    }
}

/// The digests of a request with results; `None` for one without.
pub(super) fn continuation(
    request: &TurnRequest,
    values: &[Value],
    input: &Input,
    headers: &HeaderMap,
    context: &ToolContext,
    caller: &Caller,
) -> Option<Continuation> {
    let results = input.results();
    if results.is_empty() {
        return None;
    }
    let results: Vec<_> = results.iter().map(|result| json!([result.call_id, result.content, result.parts])).collect();
    // Ids and times of the request itself differ each time, and so does the field `stream` where a client falls back.
    let shape = json!({
        "instructions": request.instructions,
        "model": request.model,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "allowed_tools": request.allowed_tools,
        "parallel_tool_calls": request.parallel_tool_calls,
        "temperature": request.temperature,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "options": request.options,
        "server_tools": server_tools(headers),
        "key": caller.key_id,
        "context": [context.workflow_id, context.collection_id, context.document_id, context.document_version_id, context.case_id,
            context.safety_mode, context.locale],
        "budget_tokens": context.budget_tokens,
    });
    Some(Continuation { request: digest(&(shape, values))?, results: digest(&results)? })
}

/// The digest of a value's JSON, which is not built: messages may be large.
fn digest(value: &impl serde::Serialize) -> Option<String> {
    let mut hash = Sha256Writer(Sha256::new());
    serde_json::to_writer(&mut hash, value).ok()?;
    Some(hex(&hash.0.finalize()))
}

struct Sha256Writer(Sha256);

impl Write for Sha256Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use werkruf_contract::{TurnStatus, Uuid};
    use werkruf_runtime::Continuation;
    use werkruf_store::SentTurn;

    use super::{Earlier, REPLAY_WINDOW};

    fn turn(request: Option<&str>, status: TurnStatus) -> SentTurn {
        SentTurn {
            conversation_id: Uuid::nil(),
            turn_id: Uuid::nil(),
            status,
            finished_at: status.is_terminal().then_some(Timestamp::UNIX_EPOCH),
            is_newest: true,
            request: request.map(str::to_owned),
            results: request.map(str::to_owned),
        }
    }

    #[test]
    fn only_the_same_request_is_joined_or_answered_again_and_not_for_long() {
        let own = Continuation { request: "a".to_owned(), results: "r".to_owned() };
        let after = |turns: &[SentTurn], seconds: i64| {
            Earlier::among(turns.to_vec(), &own, Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds))
        };
        let [same, running, waiting] =
            [TurnStatus::Completed, TurnStatus::Planning, TurnStatus::AwaitingApproval].map(|status| turn(Some("a"), status));
        let window = REPLAY_WINDOW.as_secs();
        assert_eq!(after(&[], 0), Earlier::None);
        assert_eq!(after(std::slice::from_ref(&same), window), Earlier::Same(same.clone()));
        assert_eq!(after(std::slice::from_ref(&same), window + 1), Earlier::None);
        for joined in [running, waiting] {
            assert_eq!(after(std::slice::from_ref(&joined), 100 * window), Earlier::Same(joined));
        }
        for other in [TurnStatus::Completed, TurnStatus::Planning] {
            assert_eq!(after(&[turn(Some("b"), other)], 0), Earlier::None, "another request");
            assert_eq!(after(&[turn(None, other)], 0), Earlier::None, "no continuation");
            assert_eq!(after(&[turn(Some("b"), other), turn(None, other), same.clone()], 0), Earlier::Same(same.clone()));
        }
        for status in [TurnStatus::Failed, TurnStatus::Canceled] {
            for request in ["a", "b"] {
                let failed = turn(Some(request), status);
                assert_eq!(after(std::slice::from_ref(&failed), 100 * window), Earlier::Unanswered(failed));
            }
            assert_eq!(after(&[turn(Some("b"), status), same.clone()], window + 1), Earlier::None, "the same request has its answer");
        }
    }
}
