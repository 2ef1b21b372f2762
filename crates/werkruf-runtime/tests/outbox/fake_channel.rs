//! A channel that does what the test says: it sends, refuses, hangs or breaks.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use werkruf_contract::{BoxFuture, Cancel, Uuid};
use werkruf_runtime::{Channel, SendResult};
use werkruf_store::{OutboxRow, PersonAddress};

/// An account that only another process knows.
pub const ELSEWHERE: &str = "elsewhere";

/// What one sending does.
pub enum Step {
    Retry,
    Unknown,
    Panic,
    /// Waits until the gate is raised, then has sent.
    Hold(Cancel),
}

/// A sending, as the recipient would see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub address: String,
    pub text: String,
    pub attempt: u32,
}

#[derive(Default)]
pub struct FakeChannel {
    steps: Mutex<HashMap<String, VecDeque<Step>>>,
    sent: Mutex<Vec<Sent>>,
}

impl std::fmt::Debug for FakeChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeChannel").finish_non_exhaustive()
    }
}

impl FakeChannel {
    /// The next sendings to this address do this; later ones succeed.
    pub fn script(&self, address: &str, steps: impl IntoIterator<Item = Step>) {
        self.steps.lock().unwrap().entry(address.to_owned()).or_default().extend(steps);
    }

    /// What was sent so far, with attempts that failed.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// The texts to an address, in order.
    pub fn texts(&self, address: &str) -> Vec<String> {
        self.sent().into_iter().filter(|sent| sent.address == address).map(|sent| sent.text).collect()
    }
}

impl Channel for FakeChannel {
    fn name(&self) -> &'static str {
        "fake"
    }

    /// Sentences.
    fn parts(&self, text: &str) -> Vec<String> {
        text.split_inclusive('.').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    }

    fn send<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, SendResult> {
        Box::pin(async move {
            let body: Value = serde_json::from_str(&row.body).unwrap();
            let (address, text) = (row.recipient.address.clone(), body["text"].as_str().unwrap_or_default().to_owned());
            self.sent.lock().unwrap().push(Sent { address: address.clone(), text, attempt: row.attempts });
            let step = self.steps.lock().unwrap().get_mut(&address).and_then(VecDeque::pop_front);
            let (code, message) = ("fake".to_owned(), "as the test says".to_owned());
            match step {
                None => {}
                Some(Step::Retry) => return SendResult::Retry { after: None, code, message },
                Some(Step::Unknown) => return SendResult::Unknown { code, message },
                Some(Step::Panic) => panic!("as the test says"),
                Some(Step::Hold(gate)) => gate.raised().await,
            }
            SendResult::Sent { external_id: Some(format!("x-{}", row.id)) }
        })
    }

    fn reconcile_after(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn has_account(&self, account: &str) -> bool {
        account != ELSEWHERE
    }

    fn sends_for(&self, _: Uuid, account: &str) -> bool {
        ["desk", "front"].contains(&account)
    }

    fn address_of(&self, _: Uuid, person: &PersonAddress) -> Option<(String, String)> {
        person.phone.clone().map(|phone| ("desk".to_owned(), phone))
    }
}
