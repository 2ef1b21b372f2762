//! The same call twice: one that is in flight is joined, one that succeeded is reused inside its window.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use werkruf_contract::{CallStatus, Cancel, Effect, Permission, ToolSpec, Uuid, hex};
use werkruf_store::{CallRow, Reusable};

use crate::outcome::Ended;

/// An unknown outcome outside any conversation has no "next message"; it blocks its key for as long as the inbox remembers.
const UNKNOWN_BLOCKS: SignedDuration = SignedDuration::from_hours(24);

/// Everything that makes two calls the same call.
#[derive(Serialize)]
pub(crate) struct Sameness<'a> {
    pub(crate) tenant: Uuid,
    pub(crate) principal: &'a str,
    pub(crate) permissions: &'a str,
    pub(crate) conversation: Option<Uuid>,
    pub(crate) tool: &'a str,
    pub(crate) version: &'a str,
    pub(crate) arguments: &'a Value,
}

impl Sameness<'_> {
    /// SHA-256 over RFC 8785 canonical JSON. `None` only for numbers JSON cannot hold, which never parsed.
    pub(crate) fn key(&self) -> Option<String> {
        serde_json_canonicalizer::to_vec(self).ok().map(|bytes| hex(&Sha256::digest(bytes)))
    }
}

/// What changes whenever a person's rights change.
pub(crate) fn permission_version(permissions: &[Permission]) -> String {
    let bytes = serde_json::to_vec(permissions).unwrap_or_default();
    hex(&Sha256::digest(bytes))
}

/// What an earlier call with the same key means for this one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Earlier {
    /// Its result may be given again.
    Reuse(Box<CallRow>),
    /// Nobody knows whether it happened; it must not happen twice.
    Unknown(Uuid),
    /// It waits for a person's word.
    Awaited(Uuid),
    /// Nothing to say.
    Nothing,
}

/// Judges the newest earlier call with the same key.
pub(crate) fn judge(earlier: Option<Reusable>, spec: &ToolSpec, turn_id: Uuid, now: Timestamp) -> Earlier {
    let Some(earlier) = earlier else { return Earlier::Nothing };
    let call = earlier.call;
    if call.status == CallStatus::Queued {
        return Earlier::Awaited(call.id);
    }
    let age = now.duration_since(call.finished_at.unwrap_or(call.created_at));
    if call.error_code.as_deref() == Some("outcome_unknown") {
        // A message that came while this very turn runs is no answer to what the turn has not said yet.
        let spoken = earlier.message_since && call.turn_id != turn_id;
        let blocked = if call.conversation_id.is_some() { !spoken } else { age < UNKNOWN_BLOCKS };
        return if blocked { Earlier::Unknown(call.id) } else { Earlier::Nothing };
    }
    if call.status != CallStatus::Succeeded || (earlier.stale && spec.effect == Effect::Read) {
        return Earlier::Nothing;
    }
    let window = SignedDuration::try_from(spec.reuse).unwrap_or(SignedDuration::ZERO);
    if call.turn_id == turn_id || age < window { Earlier::Reuse(Box::new(call)) } else { Earlier::Nothing }
}

type Flights = Arc<Mutex<HashMap<String, (Uuid, Arc<Arrival>)>>>;

/// Where those who joined wait. They are woken in the order they came.
#[derive(Default)]
struct Arrival {
    ended: OnceLock<Arc<Ended>>,
    /// Raised when the leader is gone, with an outcome or without.
    over: Cancel,
}

/// The calls that are running now, by key.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    flights: Flights,
}

/// Held by the one call that really runs.
pub(crate) struct Lead {
    flights: Flights,
    key: String,
    job_id: Uuid,
    arrival: Arc<Arrival>,
}

/// Held by a call that waits for another's outcome.
pub(crate) struct Joined {
    pub(crate) leader: Uuid,
    arrival: Arc<Arrival>,
    /// The call runs in another process; whoever joins here waits for this one.
    pub(crate) elsewhere: Option<Lead>,
}

/// Which of the two a call became.
pub(crate) enum Flight {
    Lead(Lead),
    Joined(Joined),
}

impl InFlight {
    pub(crate) fn board(&self, key: &str, job_id: Uuid) -> Flight {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((leader, arrival)) = flights.get(key) {
            return Flight::Joined(Joined { leader: *leader, arrival: Arc::clone(arrival), elsewhere: None });
        }
        let arrival = Arc::new(Arrival::default());
        flights.insert(key.to_owned(), (job_id, Arc::clone(&arrival)));
        Flight::Lead(Lead { flights: self.flights.clone(), key: key.to_owned(), job_id, arrival })
    }

    /// For a call that had been sent before a crash: it leads, whoever has the key by now. A repeated request holds it
    /// until it is known for a copy, and then leaves without an outcome.
    pub(crate) fn lead(&self, key: &str, job_id: Uuid) -> Lead {
        let arrival = Arc::new(Arrival::default());
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), (job_id, Arc::clone(&arrival)));
        Lead { flights: self.flights.clone(), key: key.to_owned(), job_id, arrival }
    }
}

impl Lead {
    /// Another process runs this very call.
    pub(crate) fn follow(self, leader: Uuid) -> Joined {
        Joined { leader, arrival: Arc::clone(&self.arrival), elsewhere: Some(self) }
    }

    /// What it leads, and which call it is.
    pub(crate) fn flight(&self) -> (&str, Uuid) {
        (&self.key, self.job_id)
    }

    /// Tells everybody who joined.
    pub(crate) fn land(self, ended: &Arc<Ended>) {
        // The only one who writes here, and only once: `self` is used up.
        let _ = self.arrival.ended.set(Arc::clone(ended));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Success, failure and cancel all free the key at once: whoever comes next asks the registry.
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(&self.key).is_some_and(|(leader, _)| *leader == self.job_id) {
            flights.remove(&self.key);
        }
        drop(flights);
        self.arrival.over.raise();
    }
}

impl Joined {
    /// The leader's outcome; `None` when it went away without one.
    pub(crate) async fn landed(self) -> Option<Arc<Ended>> {
        self.arrival.over.raised().await;
        self.arrival.ended.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use werkruf_contract::{CallKind, CallStatus, Effect, ToolSpec, Uuid};
    use werkruf_store::{CallRow, Reusable};

    use super::{Earlier, Flight, InFlight, Sameness, judge};

    fn key(arguments: &Value, user: &str) -> Option<String> {
        Sameness { tenant: Uuid::nil(), principal: user, permissions: "p", conversation: None, tool: "t", version: "1", arguments }.key()
    }

    #[test]
    fn the_order_of_fields_and_the_form_of_numbers_do_not_change_the_key() {
        let a: Value = serde_json::from_str(r#"{"a": 1, "b": [1.0, "ä"]}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"b": [1, "\u00e4"], "a": 1}"#).unwrap();
        assert_eq!(key(&a, "1"), key(&b, "1"));
        assert_ne!(key(&a, "1"), key(&a, "2"));
        assert_ne!(key(&json!({"a": 1}), "1"), key(&json!({"a": 2}), "1"));
    }

    fn unknown(turn_id: Uuid) -> CallRow {
        let at = jiff::Timestamp::UNIX_EPOCH;
        CallRow {
            id: Uuid::from_u128(9),
            tenant_id: Uuid::nil(),
            conversation_id: Some(Uuid::from_u128(1)),
            turn_id,
            step: 1,
            output_index: 0,
            response_id: None,
            kind: CallKind::Function,
            tool_name: "pay".to_owned(),
            call_id: None,
            item_id: None,
            status: CallStatus::Failed,
            request: None,
            raw_arguments: None,
            repairs: None,
            response: None,
            error: None,
            error_type: None,
            error_code: Some("outcome_unknown".to_owned()),
            error_detail: None,
            effect: Effect::Once,
            attempt: 1,
            cache_hit: false,
            dedupe_key: None,
            dedupe_of: None,
            retry_of: None,
            idempotency_key: None,
            permission: None,
            context: String::new(),
            trace_id: None,
            run_id: None,
            ingestion_run_id: None,
            workflow_id: None,
            case_id: None,
            meta: None,
            created_at: at,
            updated_at: at,
            started_at: Some(at),
            finished_at: Some(at),
        }
    }

    #[test]
    fn an_unknown_outcome_blocks_its_turn_whatever_the_person_says_meanwhile() {
        let spec = ToolSpec::new("pay", "", Effect::Once);
        let (this, next) = (Uuid::from_u128(5), Uuid::from_u128(6));
        let judged = |turn_id, message_since| {
            let earlier = Reusable { call: unknown(this), stale: false, message_since };
            judge(Some(earlier), &spec, turn_id, jiff::Timestamp::UNIX_EPOCH)
        };
        let blocked = Earlier::Unknown(Uuid::from_u128(9));
        assert_eq!([judged(this, true), judged(this, false), judged(next, false)], [blocked.clone(), blocked.clone(), blocked]);
        assert_eq!(judged(next, true), Earlier::Nothing);
    }

    #[test]
    fn a_call_gone_on_with_keeps_its_key_when_a_copy_lets_go() {
        let flights = InFlight::default();
        let Flight::Lead(copy) = flights.board("key", Uuid::from_u128(2)) else { panic!("nobody has the key yet") };
        let elder = flights.lead("key", Uuid::from_u128(1));
        drop(copy);
        let Flight::Joined(joined) = flights.board("key", Uuid::from_u128(3)) else { panic!("the elder call has the key") };
        assert_eq!(joined.leader, Uuid::from_u128(1));
        drop(elder);
        assert!(matches!(flights.board("key", Uuid::from_u128(4)), Flight::Lead(_)));
    }
}
