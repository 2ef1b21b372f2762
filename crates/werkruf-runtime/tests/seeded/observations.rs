//! What was observed outside the processes: requests to the model, requests to tools and their effects, and responses to clients.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Effect, Uuid};

#[derive(Default)]
pub struct Observations {
    pub model_requests: Vec<SentRequest>,
    /// Requests that did not reach the model.
    pub unsent_requests: Vec<UnsentRequest>,
    pub sends: Vec<Send>,
    /// Arguments of model responses that were cut off.
    pub cut: BTreeSet<u64>,
    /// Acknowledged messages.
    pub acks: Vec<Ack>,
    /// Acknowledged direct calls.
    pub answers: Vec<(Uuid, bool)>,
    /// Idempotency keys that an idempotent tool received, with the number of requests for each.
    pub keys: BTreeMap<String, u64>,
    /// Approvals that the provider received, by the id of its request, and how often it carried the call out.
    pub granted: BTreeMap<String, Granted>,
    pub counts: Counts,
    /// Decisions that were sent: the approval, and whether it was approved.
    pub decisions_sent: Vec<(Uuid, bool)>,
    /// Decisions that were acknowledged to a client.
    pub decisions_acknowledged: Vec<(Uuid, ApprovalStatus)>,
    /// The text that each process has sent of the answer to a message, while it is in no row.
    pub texts: BTreeMap<(String, String), String>,
    /// Subscriptions that still wait for the end of a turn, by process.
    pub subscribed: BTreeSet<(String, Uuid)>,
}

/// A request that reached the model.
pub struct SentRequest {
    /// The user message of the request, which identifies the turn.
    pub message: String,
    pub process: String,
    /// The tokens that the model reported, if its response was received completely.
    pub reported: Option<i64>,
}

/// A request that did not reach the model: there was no connection, or its process was stopped until nobody waited for it any more.
pub struct UnsentRequest {
    pub message: String,
    pub process: String,
    /// Its process knows that it was not sent.
    pub refused: bool,
}

/// A request that was sent to a tool.
pub struct Send {
    pub job_id: Uuid,
    pub turn_id: Uuid,
    pub effect: Effect,
    pub key: String,
    pub attempt: u32,
    pub n: u64,
    /// How often the tool executed it.
    pub effects: u32,
}

/// What the provider knows of a call that it asked for.
#[derive(Default)]
pub struct Granted {
    pub received: u32,
    pub effects: u32,
}

/// A message whose storage was acknowledged to the client.
pub struct Ack {
    pub message: String,
    pub key: Option<String>,
    pub turn_id: Uuid,
    /// When the message was first sent, and when it was acknowledged.
    pub sent: Timestamp,
    pub acknowledged: Timestamp,
}

/// How often each kind of fault or event happened, to show that a run of many seeds covers all of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub fn one(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
}

impl Observations {
    /// Records a request that is about to leave.
    pub fn prepare_request(&mut self, message: &str, process: &str) {
        self.unsent_requests.push(UnsentRequest { message: message.to_owned(), process: process.to_owned(), refused: false });
    }

    fn prepared_request(&mut self, message: &str, process: &str) -> usize {
        let is_it = |request: &UnsentRequest| !request.refused && request.message == message && request.process == process;
        self.unsent_requests.iter().rposition(is_it).unwrap()
    }

    /// Records that there was no connection for a request.
    pub fn refuse_request(&mut self, message: &str, process: &str) {
        let at = self.prepared_request(message, process);
        self.unsent_requests[at].refused = true;
    }

    /// Records a request that reached the model; returns its index.
    pub fn record_request(&mut self, message: &str, process: &str) -> usize {
        let at = self.prepared_request(message, process);
        self.unsent_requests.remove(at);
        self.texts.remove(&(process.to_owned(), message.to_owned()));
        self.model_requests.push(SentRequest { message: message.to_owned(), process: process.to_owned(), reported: None });
        self.model_requests.len() - 1
    }

    /// Records a text delta that reached the process of this request.
    pub fn record_text(&mut self, process: &str, at: usize, delta: &str) {
        let key = (process.to_owned(), self.model_requests[at].message.clone());
        self.texts.entry(key).or_default().push_str(delta);
    }

    /// Records that the provider received the approval of its call.
    pub fn record_approval(&mut self, request: &str, times: u32, runs: bool) {
        let granted = self.granted.entry(request.to_owned()).or_default();
        granted.received += times;
        granted.effects += u32::from(runs);
    }

    /// Executes these requests at the tool; an idempotent tool executes each key once.
    pub fn execute(&mut self, sends: &[usize]) {
        for at in sends {
            let send = &mut self.sends[*at];
            if send.effect == Effect::Idempotent {
                let count = self.keys.entry(send.key.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    continue;
                }
            }
            send.effects += 1;
        }
    }
}
