//! The corridor's stage of a person's word: asked for in commit B, parked in C, and what a decision means for the call.
//!
//! A call that waits has no outcome: its row stays `queued`, a placeholder stands for its result, and the turn gives its
//! lease back. Nothing of it is in memory; the decision finds the turn in the store.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{ApprovalRequired, ApprovalStatus, EventType, Failure, TurnStatus, Usage, Uuid, hex};
use werkruf_store::{ApprovalRow, CallRow, NewApproval, NewMessage, StoreError, TurnChange, crash};

use crate::corridor::Walk;
use crate::dedupe::Lead;
use crate::ground::{Draft, Ground};
use crate::record::{Seat, object};
use crate::registry::Entry;

/// Who decides where a safety profile asks for a word and the tool names no role.
const FALLBACK_ROLE: &str = "admin";

/// Why a call stands still.
pub(crate) struct Await {
    /// `None` for a copy that waits for the same call beside it.
    pub(crate) approval_id: Option<Uuid>,
    /// Not yet written.
    pub(crate) wish: Option<NewApproval>,
    /// ClientRequests have heard of it.
    pub(crate) announced: bool,
    /// Held while its step is prepared, so that a copy in the same step finds it.
    pub(crate) lead: Option<Lead>,
}

impl Await {
    /// A copy of a call that waits.
    pub(crate) const fn beside() -> Self {
        Self { approval_id: None, wish: None, announced: true, lead: None }
    }
}

/// A call that a turn leaves behind until somebody has decided.
pub(crate) struct Parked {
    pub(crate) row: CallRow,
    pub(crate) seat: Option<Seat>,
    pub(crate) approval_id: Option<Uuid>,
    pub(crate) announced: bool,
}

/// What a decision means for its call.
pub(crate) enum Word {
    Given,
    Awaited,
    Withdrawn,
    Refused(Failure),
}

/// The word on this call, as the row has it.
pub(crate) fn word(approval: &ApprovalRow, row: &CallRow) -> Word {
    let failure = |code| Failure::fatal(code, "").nothing_happened().with_details(object(json!({"approval_id": approval.id})));
    match approval.status {
        ApprovalStatus::Pending => Word::Awaited,
        ApprovalStatus::Canceled => Word::Withdrawn,
        ApprovalStatus::Denied => Word::Refused(failure("approval_denied")),
        ApprovalStatus::Expired => Word::Refused(failure("approval_expired")),
        ApprovalStatus::Approved if row.request.as_deref().map(digest).as_ref() == Some(&approval.arguments_digest) => Word::Given,
        ApprovalStatus::Approved => Word::Refused(failure("approval_denied").because("the arguments are not those that were approved")),
    }
}

/// Names arguments: whatever their spelling, the same value has the same digest.
fn digest(arguments: &str) -> String {
    let canonical = serde_json::from_str::<Value>(arguments).ok().and_then(|value| serde_json_canonicalizer::to_vec(&value).ok());
    hex(&Sha256::digest(canonical.unwrap_or_else(|| arguments.as_bytes().to_vec())))
}

impl Walk<'_> {
    /// Who must be asked before this tool may run: nobody, or one of these roles.
    pub(crate) fn approvers(&self, entry: &Entry) -> Option<Vec<String>> {
        let spec = entry.spec();
        let profile = self.context.safety_mode.as_deref().and_then(|mode| self.ground.setup.safety.get(mode));
        let by_profile = profile.is_some_and(|profile| profile.approval_required_for.iter().any(|name| *name == spec.name));
        match (spec.approval.is_empty(), by_profile) {
            (false, _) => Some(spec.approval.iter().map(ToString::to_string).collect()),
            (true, true) => Some(vec![FALLBACK_ROLE.to_owned()]),
            (true, false) => None,
        }
    }

    /// The wish for a word on this call.
    pub(crate) fn wish(&self, row: &CallRow, approver_roles: Vec<String>) -> NewApproval {
        let ground = self.ground;
        let arguments = row.request.clone().unwrap_or_else(|| "null".to_owned());
        NewApproval {
            id: ground.clock.new_id(),
            call_id: row.id,
            tool_name: row.tool_name.clone(),
            arguments_digest: digest(&arguments),
            arguments,
            approver_roles,
            asked_by: ground.caller.principal.user_id.clone(),
            expires_at: ground.clock.now() + ground.limits.approval_ttl(),
        }
    }
}

/// Lets the turn wait: placeholders, the events that ask, the lease given back. Its own stream ends here; the conversation's goes on.
pub(crate) async fn park(
    ground: &Ground,
    mut draft: Draft,
    step: u32,
    parked: Vec<Parked>,
    spent: Option<&Usage>,
) -> Result<(), StoreError> {
    for call in &parked {
        if let Some(seat) = call.seat.as_ref().filter(|seat| !seat.taken) {
            draft.write.messages.push(placeholder(ground, call, seat));
        }
        if let Some(approval_id) = call.approval_id.filter(|_| !call.announced) {
            draft.event(EventType::ApprovalRequired, &required(&call.row, approval_id, spent));
        }
    }
    draft.write.now = ground.clock.now();
    draft.write.turn = Some(TurnChange { status: TurnStatus::AwaitingApproval, step, error: None, message: None, transcript_digest: None });
    crash::point("before_park");
    ground.commit(draft).await?;
    crash::point("after_park");
    ground.hub.part(ground.stream_id(), ground.turn_id);
    tracing::info!(turn_id = %ground.turn_id, calls = parked.len(), "the turn waits for approval");
    Ok(())
}

fn placeholder(ground: &Ground, call: &Parked, seat: &Seat) -> NewMessage {
    let content = json!({"status": "waiting for approval", "approval_id": call.approval_id, "message": ground.words.text("call-approval_pending", &[])});
    NewMessage {
        id: ground.clock.new_id(),
        role: "tool",
        content: content.to_string(),
        tool_calls: None,
        tool_call_id: Some(seat.id.clone()),
        tool_name: Some(call.row.tool_name.clone()),
        status: Some("pending"),
        metadata: None,
        tokens: None,
    }
}

fn required(row: &CallRow, approval_id: Uuid, spent: Option<&Usage>) -> ApprovalRequired {
    ApprovalRequired {
        approval_id,
        tool: row.tool_name.clone(),
        job_id: row.id,
        arguments: row.request.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        usage: spent.cloned(),
    }
}
