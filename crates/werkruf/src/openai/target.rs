//! The conversation or turn that a request of an OpenAI client belongs to.

use werkruf_contract::Uuid;
use werkruf_runtime::{Caller, Continuation};
use werkruf_store::ResumePoint;

use super::client_calls::{belongs_to, repeats_calls};
use super::copies::CopiedConversation;
use super::input::Input;
use super::resent::Earlier;
use super::responses::client_calls_of_turn;
use super::transcript::TranscriptDigest;
use crate::api::ApiState;
use crate::api::error::ApiError;

/// The conversation or turn that a request belongs to.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// The client named this conversation.
    Named(Uuid),
    /// The client resends the transcript or sends a tool result. Its transcript ends with this turn.
    Resumed(ResumePoint),
    /// The same messages started this turn, which has no answer. The conversation holds them, and what the server's tools have done since.
    Unanswered(ResumePoint),
    /// A copy of the conversation in which the calls of the request wait for their results again.
    Copied {
        copy: CopiedConversation,
        /// Whether the copy holds the new message of the user.
        has_message: bool,
    },
    /// The same request was sent before and started this turn.
    AlreadyRun(Uuid),
    New,
}

/// Finds it: the conversation that the request names, the one whose transcript it resends, or the one that waits for its results.
pub(super) async fn find_target(
    api: &ApiState,
    caller: &Caller,
    named: Option<Uuid>,
    input: &Input,
    continues: Option<&Continuation>,
    has_key: bool,
) -> Result<Target, ApiError> {
    if let Some(id) = named {
        return Ok(Target::Named(id));
    }
    let (store, tenant_id, user_id) = (&api.app.client_store, caller.principal.tenant_id, &caller.principal.user_id);
    let call_ids: Vec<String> = input.results().into_iter().map(|result| result.call_id).collect();
    let has_new_input = !input.new_user_message().text.is_empty() || !input.new_user_message().parts.is_empty() || !call_ids.is_empty();
    // The transcript digest identifies a conversation better than call ids do: some model servers reuse ids such as call_0.
    if has_new_input
        && let Some(digest) = input.digest_up_to_last_answer()
        && let Some(found) = store.conversation_by_digest(tenant_id, user_id.clone(), digest).await?
        && repeats_calls(&api.app, tenant_id, found, input).await?
    {
        return Ok(Target::Resumed(found));
    }
    if call_ids.is_empty() {
        return Ok(Target::New);
    }
    if let Some(found) = api.app.clients().conversation_awaiting(tenant_id, user_id.clone(), call_ids).await?
        && belongs_to(&api.app, tenant_id, found, input).await?
    {
        return Ok(Target::Resumed(found));
    }
    match continues {
        Some(continues) => sent_before(api, caller, input, continues, has_key).await,
        None => Ok(Target::New),
    }
}

/// The target of a request whose results nothing waits for: they may have been processed before.
async fn sent_before(api: &ApiState, caller: &Caller, input: &Input, continues: &Continuation, has_key: bool) -> Result<Target, ApiError> {
    let (store, tenant_id, user_id) = (&api.app.client_store, caller.principal.tenant_id, &caller.principal.user_id);
    let digest = input.digest(TranscriptDigest::default());
    let turns = store.turns_by_request_digest(tenant_id, user_id.clone(), digest).await?;
    let unanswered = match Earlier::among(turns, continues, api.app.clock.now()) {
        // With an idempotency key, the key alone says whether it is the same request.
        Earlier::Same(turn) if !has_key => return Ok(Target::AlreadyRun(turn.turn_id)),
        // Continued where it is, so that the model sees what the server's tools have done and does not ask for it again.
        Earlier::Unanswered(turn) if turn.is_newest && turn.results.as_ref() == Some(&continues.results) => {
            return Ok(Target::Unanswered(ResumePoint { conversation_id: turn.conversation_id, turn_id: turn.turn_id }));
        }
        Earlier::Unanswered(turn) => Some(ResumePoint { conversation_id: turn.conversation_id, turn_id: turn.turn_id }),
        Earlier::Same(_) | Earlier::None => None,
    };
    let Some(answered) = input.digest_up_to_last_answer() else { return Ok(Target::New) };
    let Some(asked) = store.turn_by_digest(tenant_id, user_id.clone(), answered).await? else { return Ok(Target::New) };
    if !repeats_calls(&api.app, tenant_id, asked, input).await? {
        return Ok(Target::New);
    }
    let calls = client_calls_of_turn(&api.app, tenant_id, asked).await?.into_iter().map(|call| call.id).collect();
    let copy = CopiedConversation::make(&api.app, tenant_id, unanswered.unwrap_or(asked), calls).await?;
    Ok(copy.map_or(Target::New, |copy| Target::Copied { copy, has_message: unanswered.is_some() }))
}
