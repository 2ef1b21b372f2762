//! The stage that recognises identical calls: one in flight is followed, a finished one is reused inside its window, and one whose outcome is
//! unknown is refused.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{CallStatus, Effect, ErrorCode, Failure, Principal, ToolSpec, Uuid, hex};
use werkruf_store::{CallRow, Reusable, StoreError};

use super::batch::{CallBatch, Halt};
use super::in_flight::{Follower, Leader, Role};
use super::outcome::{CallOutcome, Success};
use crate::registry::Entry;
use crate::stored::object;

/// Outside a conversation there is no next message of the user. There an unknown outcome blocks its key this long, as long as the inbox
/// remembers a request.
const UNKNOWN_BLOCKS: SignedDuration = SignedDuration::from_hours(24);

/// What the stage decided.
pub(super) enum Deduped {
    Finished(Box<CallOutcome>),
    Follow(Follower),
    Lead(Leader),
}

/// Everything that makes two calls identical.
#[derive(Serialize)]
struct CallIdentity<'a> {
    tenant: Uuid,
    principal: &'a str,
    permissions: &'a str,
    conversation: Option<Uuid>,
    tool: &'a str,
    version: &'a str,
    arguments: &'a Value,
    /// The business case, workflow, collection and document that the request names: a tool may answer by them.
    about: [Option<&'a str>; 5],
    collections: &'a [String],
    defaults: Option<&'a Value>,
}

impl CallIdentity<'_> {
    /// SHA-256 over RFC 8785 canonical JSON. `None` only for numbers that JSON cannot hold, which never parsed.
    fn key(&self) -> Option<String> {
        serde_json_canonicalizer::to_vec(self).ok().map(|bytes| hex(&Sha256::digest(bytes)))
    }
}

/// Changes whenever the user's rights, roles or branch change: a tool may answer by any of them.
fn permission_version(principal: &Principal) -> String {
    let bytes = serde_json::to_vec(&(&principal.permissions, &principal.roles, principal.branch_id)).unwrap_or_default();
    hex(&Sha256::digest(bytes))
}

impl CallBatch<'_> {
    pub(super) async fn dedupe(
        &self,
        entry: &Entry,
        args: &Value,
        row: &mut CallRow,
        principal: Option<&Arc<Principal>>,
    ) -> Result<Deduped, Halt> {
        let scope = self.scope;
        let principal = principal.unwrap_or(&scope.caller.principal);
        let (spec, context) = (entry.spec(), self.context);
        let identity = CallIdentity {
            tenant: scope.tenant_id(),
            principal: &principal.user_id,
            permissions: &permission_version(principal),
            conversation: scope.conversation_id,
            tool: &spec.name,
            version: &spec.version,
            arguments: args,
            about: [&context.case_id, &context.workflow_id, &context.collection_id, &context.document_id, &context.document_version_id]
                .map(Option::as_deref),
            collections: &context.collections,
            defaults: context.defaults.get(spec.name.as_ref()),
        };
        let key = identity
            .key()
            .ok_or_else(|| Failure::validation(ErrorCode::InvalidArguments, "The arguments hold a number that JSON cannot carry."))?;
        row.dedupe_key = Some(key.clone());
        let leader = match scope.in_flight.enter(&key, row.id) {
            Role::Follower(follower) => return Ok(Deduped::Follow(follower)),
            Role::Leader(leader) => leader,
        };
        if let Some(leader_id) = self.remote_leader(&key, row.id).await? {
            return Ok(Deduped::Follow(leader.follow(leader_id)));
        }
        // A retry runs on purpose; the API has checked the operator's `force`.
        let deliberate = row.retry_of.is_some();
        let in_turn = || self.earlier.iter().any(|call| call.row.dedupe_key == row.dedupe_key);
        let is_read = spec.effect == Effect::Read;
        let polled = is_read && spec.reuse.is_some_and(|window| window.is_zero());
        if deliberate || polled || (is_read && spec.reuse.is_none() && !in_turn()) {
            return Ok(Deduped::Lead(leader));
        }
        if !is_read && let Some(outcome) = self.earlier_in_turn(row)? {
            return Ok(Deduped::Finished(outcome));
        }
        let earlier = scope.turns.reusable_call(scope.tenant_id(), scope.conversation_id, key).await?;
        match judge(earlier, spec, scope.turn_id, scope.clock.now()) {
            EarlierCall::None => Ok(Deduped::Lead(leader)),
            EarlierCall::Reuse(source) => {
                row.dedupe_of = Some(source.id);
                let success = Success::stored(&source);
                let (status, finished_at, untrusted) = (CallStatus::Succeeded, scope.clock.now(), success.untrusted);
                let outcome = CallOutcome { status, result: Ok(success), attempt: 0, cache_hit: true, finished_at, untrusted };
                Ok(Deduped::Finished(Box::new(outcome)))
            }
            EarlierCall::OutcomeUnknown(earlier) => Err(outcome_unknown(earlier).into()),
            EarlierCall::AwaitingApproval(earlier) => Err(approval_pending(earlier).into()),
        }
    }

    /// The identical call of another process. A conversation has none: its turns run one after another.
    pub(super) async fn remote_leader(&self, key: &str, job_id: Uuid) -> Result<Option<Uuid>, StoreError> {
        let scope = self.scope;
        if scope.conversation_id.is_some() || scope.cluster.lease_ttl().is_none() {
            return Ok(None);
        }
        let leader_id = scope.cluster.claim_key(scope.tenant_id(), key.to_owned(), job_id).await?;
        Ok(Some(leader_id).filter(|leader_id| *leader_id != job_id))
    }

    /// What this turn did itself comes first. While it waited for an approval, another turn may have made the same call, and the store only
    /// knows the newest.
    fn earlier_in_turn(&self, row: &mut CallRow) -> Result<Option<Box<CallOutcome>>, Failure> {
        for call in self.earlier.iter().rev().filter(|call| call.row.dedupe_key == row.dedupe_key) {
            match &call.outcome.result {
                Ok(_) => {
                    row.dedupe_of = Some(call.row.dedupe_of.unwrap_or(call.row.id));
                    let outcome = CallOutcome { cache_hit: true, ..call.outcome.shared(self.scope.clock.now()) };
                    return Ok(Some(Box::new(outcome)));
                }
                Err(failure) if failure.is(ErrorCode::OutcomeUnknown) => return Err(outcome_unknown(call.row.id)),
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// What an earlier identical call means for this one.
#[derive(Debug, Clone, PartialEq)]
enum EarlierCall {
    /// Its result may be used again.
    Reuse(Box<CallRow>),
    /// It may have been carried out; it must not be carried out twice.
    OutcomeUnknown(Uuid),
    AwaitingApproval(Uuid),
    None,
}

/// Judges the newest earlier call with the same key.
fn judge(earlier: Option<Reusable>, spec: &ToolSpec, turn_id: Uuid, now: Timestamp) -> EarlierCall {
    let Some(earlier) = earlier else { return EarlierCall::None };
    let call = earlier.call;
    if call.status == CallStatus::Queued {
        return EarlierCall::AwaitingApproval(call.id);
    }
    let age = now.duration_since(call.finished_at.unwrap_or(call.created_at));
    if call.has_code(ErrorCode::OutcomeUnknown) {
        // A message that came while this very turn runs does not answer what the turn has not said yet.
        let answered = earlier.message_since && call.turn_id != turn_id;
        let blocked = if call.conversation_id.is_some() { !answered } else { age < UNKNOWN_BLOCKS };
        return if blocked { EarlierCall::OutcomeUnknown(call.id) } else { EarlierCall::None };
    }
    if call.status != CallStatus::Succeeded || (earlier.stale && spec.effect == Effect::Read) {
        return EarlierCall::None;
    }
    let window = SignedDuration::try_from(spec.reuse.unwrap_or_default()).unwrap_or(SignedDuration::ZERO);
    if call.turn_id == turn_id || age < window { EarlierCall::Reuse(Box::new(call)) } else { EarlierCall::None }
}

/// It is unknown whether the identical call was carried out.
fn outcome_unknown(earlier: Uuid) -> Failure {
    Failure::fatal(ErrorCode::OutcomeUnknown, "").nothing_happened().with_details(object(json!({"earlier_job_id": earlier})))
}

/// The identical call waits for an approval already.
pub(super) fn approval_pending(earlier: Uuid) -> Failure {
    Failure::fatal(ErrorCode::ApprovalPending, "").nothing_happened().with_details(object(json!({"earlier_job_id": earlier})))
}

#[cfg(test)]
#[path = "dedupe_tests.rs"]
mod tests;
