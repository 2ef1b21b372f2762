//! What the outside saw: requests to the model, requests to tools and what came of them, and what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Effect, Uuid};

#[derive(Default)]
pub struct ProviderAccounts {
    pub asked: Vec<Asked>,
    pub sends: Vec<Send>,
    /// Arguments of answers that were never whole.
    pub cut: BTreeSet<u64>,
    /// Acknowledged messages.
    pub acks: Vec<Ack>,
    /// Acknowledged direct calls.
    pub answers: Vec<(Uuid, bool)>,
    /// Keys a keeping tool has seen, with the effect it made of each.
    pub kept: BTreeMap<String, u64>,
    pub counts: Counts,
    /// Decisions that were sent, by approval: whether it was a yes.
    pub words: Vec<(Uuid, bool)>,
    /// Decisions a client was told to stand.
    pub decided: Vec<(Uuid, ApprovalStatus)>,
    /// The text each process has shown of a message's answer so far, while no row says it.
    pub texts: BTreeMap<(String, String), String>,
    /// ClientRequests that still wait for the end of a turn, and at which process.
    pub listening: BTreeSet<(String, Uuid)>,
}

/// A request that reached the model.
pub struct Asked {
    /// The person's message it was about, which names the turn.
    pub message: String,
    pub process: String,
    /// What the model reported once the answer was heard to its end.
    pub reported: Option<i64>,
}

/// A request that left for a tool.
pub struct Send {
    pub job_id: Uuid,
    pub turn_id: Uuid,
    pub effect: Effect,
    pub key: String,
    pub attempt: u32,
    pub n: u64,
    /// How often the other side carried it out.
    pub effects: u32,
}

/// A message the client was told is stored.
pub struct Ack {
    pub message: String,
    pub key: Option<String>,
    pub turn_id: Uuid,
    /// When it was sent first, and when the client was told.
    pub sent: Timestamp,
    pub told: Timestamp,
}

/// How often things happened, so that a run of many seeds can show that it was no walk in the sun.
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

impl ProviderAccounts {
    /// Notes a request to the model; where it stands.
    pub fn record_request(&mut self, message: &str, process: &str) -> usize {
        self.texts.remove(&(process.to_owned(), message.to_owned()));
        self.asked.push(Asked { message: message.to_owned(), process: process.to_owned(), reported: None });
        self.asked.len() - 1
    }

    /// A word of the answer to this request reaches its process.
    pub fn show(&mut self, process: &str, at: usize, word: &str) {
        let key = (process.to_owned(), self.asked[at].message.clone());
        self.texts.entry(key).or_default().push_str(word);
    }

    /// The other side does what these requests ask; a keeping tool knows its keys.
    pub fn carry_out(&mut self, sends: &[usize]) {
        for at in sends {
            let send = &mut self.sends[*at];
            if send.effect == Effect::Idempotent {
                let seen = self.kept.entry(send.key.clone()).or_default();
                *seen += 1;
                if *seen > 1 {
                    continue;
                }
            }
            send.effects += 1;
        }
    }
}
