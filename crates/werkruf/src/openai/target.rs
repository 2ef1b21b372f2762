//! The conversation or turn that a request of an OpenAI client belongs to.

use werkruf_contract::Uuid;
use werkruf_runtime::Caller;
use werkruf_store::ResumePoint;

use super::input::Input;
use super::transcript::TranscriptDigest;
use crate::api::ApiState;
use crate::api::error::ApiError;

/// The conversation or turn that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The client named this conversation.
    Named(Uuid),
    /// The client resends the transcript or sends a tool result. Its transcript ends with this turn.
    Resumed(ResumePoint),
    /// The same tool results were sent before and started this turn.
    AlreadyRun(Uuid),
    New,
}

/// Finds it: the conversation that the request names, the one whose transcript it resends, or the one that waits for its results.
pub(super) async fn find_target(api: &ApiState, caller: &Caller, named: Option<Uuid>, input: &Input) -> Result<Target, ApiError> {
    if let Some(id) = named {
        return Ok(Target::Named(id));
    }
    let (clients, tenant_id, user_id) = (api.app.clients(), caller.principal.tenant_id, &caller.principal.user_id);
    let call_ids: Vec<String> = input.results().into_iter().map(|result| result.call_id).collect();
    let has_new_input = !input.new_user_message().text.is_empty() || !input.new_user_message().parts.is_empty() || !call_ids.is_empty();
    // The transcript digest identifies a conversation better than call ids do: some model servers reuse ids such as call_0.
    if has_new_input
        && let Some(digest) = input.digest_up_to_last_answer()
        && let Some(found) = clients.conversation_by_digest(tenant_id, user_id.clone(), digest).await?
    {
        return Ok(Target::Resumed(found));
    }
    if call_ids.is_empty() {
        return Ok(Target::New);
    }
    if let Some(found) = clients.conversation_awaiting(tenant_id, user_id.clone(), call_ids).await? {
        return Ok(Target::Resumed(found));
    }
    // These results may have been processed before: a client that lost the answer sends its request again.
    let earlier = clients.turn_by_request_digest(tenant_id, user_id.clone(), input.digest(TranscriptDigest::default())).await?;
    Ok(earlier.map_or(Target::New, |turn| Target::AlreadyRun(turn.turn_id)))
}
