//! What is wrong as only this process sees it: how providers answer, and which budgets refused a request. The loop in `alerts` compares it with the
//! open alerts.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::civil::Date;
use tokio::sync::Notify;
use werkruf_contract::Uuid;
use werkruf_llm::{ModelError, ModelFault};
use werkruf_store::OverBudget;

use crate::channels::Notification;

/// So many requests in a row without an answer mean that a model is down.
const DOWN_AFTER: u32 = 3;
/// What providers write where an account has no money or quota left.
const QUOTA_WORDS: [&str; 3] = ["insufficient_quota", "exceeded your current quota", "billing_hard_limit_reached"];

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Conditions {
    board: Mutex<Board>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Board {
    /// The message of each condition, by kind and subject.
    held: BTreeMap<(Notification, String), String>,
    /// Requests in a row without an answer, by provider.
    unanswered: HashMap<String, u32>,
    /// The last refusal of each counter.
    refused: BTreeMap<(Uuid, Uuid, String, Date), OverBudget>,
}

impl Conditions {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A condition holds from now on.
    pub fn raise(&self, kind: Notification, subject: &str, message: String) {
        if self.board().held.insert((kind, subject.to_owned()), message).is_none() {
            self.changed.notify_one();
        }
    }

    /// A condition no longer holds.
    pub fn clear(&self, kind: Notification, subject: &str) {
        if self.board().held.remove(&(kind, subject.to_owned())).is_some() {
            self.changed.notify_one();
        }
    }

    /// A model request got an answer, or this error. Vectors may come from another server than answers.
    pub(crate) fn request_ended(&self, provider: &str, operation: &str, error: Option<&ModelError>) {
        let subject = if operation == "embedding" { format!("{provider}/embedding") } else { provider.to_owned() };
        let Some(error) = error else {
            if self.board().knows(&subject) {
                [Notification::Credentials, Notification::Quota].iter().for_each(|kind| self.clear(*kind, &subject));
                self.reached(&subject);
            }
            return;
        };
        let message = || format!("The model provider {subject} {}.", error.to_string().trim_end_matches('.'));
        match error.fault {
            ModelFault::Refused { status: 401 | 403 } => {
                self.reached(&subject);
                self.raise(Notification::Credentials, &subject, message());
            }
            ModelFault::Refused { status } if is_quota(status, &error.message) => {
                self.reached(&subject);
                self.raise(Notification::Quota, &subject, message());
            }
            ModelFault::Refused { status } if status < 500 && status != 408 => self.reached(&subject),
            ModelFault::Refused { .. }
            | ModelFault::Connect
            | ModelFault::FirstByte
            | ModelFault::Idle
            | ModelFault::Incomplete
            | ModelFault::Protocol => {
                let unanswered = self.board().count_unanswered(&subject);
                if unanswered >= DOWN_AFTER {
                    self.raise(Notification::ModelDown, &subject, message());
                }
            }
        }
    }

    /// The provider answered, if only with a refusal.
    fn reached(&self, subject: &str) {
        self.board().unanswered.remove(subject);
        self.clear(Notification::ModelDown, subject);
    }

    /// A budget refused a request.
    pub fn budget_refused(&self, tenant_id: Uuid, over: &OverBudget) {
        let counter = &over.counter;
        self.board().refused.insert((tenant_id, counter.budget_id, counter.subject.clone(), counter.period_start), over.clone());
    }

    /// The conditions that hold: kind, subject, message.
    pub(crate) fn held(&self) -> Vec<(Notification, String, String)> {
        self.board().held.iter().map(|((kind, subject), message)| (*kind, subject.clone(), message.clone())).collect()
    }

    /// The refusals that were not forgotten, by tenant.
    pub(crate) fn refused(&self) -> Vec<(Uuid, OverBudget)> {
        self.board().refused.iter().map(|((tenant_id, ..), over)| (*tenant_id, over.clone())).collect()
    }

    /// These refusals were told.
    pub(crate) fn forget_refused(&self, told: &[(Uuid, OverBudget)]) {
        self.board().refused.retain(|(tenant_id, ..), over| !told.iter().any(|(of, known)| of == tenant_id && known == over));
    }

    /// Waits until a condition began or ended.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Board {
    fn knows(&self, subject: &str) -> bool {
        self.unanswered.contains_key(subject) || self.held.keys().any(|(_, of)| of == subject)
    }

    fn count_unanswered(&mut self, subject: &str) -> u32 {
        let count = self.unanswered.entry(subject.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }
}

fn is_quota(status: u16, message: &str) -> bool {
    status == 402 || (status == 429 && QUOTA_WORDS.iter().any(|words| message.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(conditions: &Conditions) -> Vec<(Notification, String)> {
        conditions.held().into_iter().map(|(kind, subject, _)| (kind, subject)).collect()
    }

    fn fails(conditions: &Conditions, fault: ModelFault, message: &str) {
        conditions.request_ended("p", "chat", Some(&ModelError::new(fault, message)));
    }

    #[test]
    fn an_answer_ends_what_a_refusal_began() {
        let conditions = Conditions::default();
        fails(&conditions, ModelFault::Refused { status: 401 }, "wrong key");
        fails(&conditions, ModelFault::Refused { status: 429 }, "slow down");
        let held = conditions.held();
        assert_eq!(
            held,
            [(Notification::Credentials, "p".to_owned(), "The model provider p answered 401 (check the API key): wrong key.".to_owned())]
        );
        fails(&conditions, ModelFault::Refused { status: 429 }, r#"{"error":{"code":"insufficient_quota"}}"#);
        conditions.request_ended("p", "embedding", None);
        assert_eq!(kinds(&conditions), [Notification::Credentials, Notification::Quota].map(|kind| (kind, "p".to_owned())));
        conditions.request_ended("p", "chat", None);
        assert_eq!(kinds(&conditions), []);
    }

    #[test]
    fn three_requests_in_a_row_without_an_answer_mean_that_a_model_is_down() {
        let conditions = Conditions::default();
        let unanswered = [ModelFault::Connect, ModelFault::Refused { status: 503 }, ModelFault::Idle];
        unanswered[..2].iter().for_each(|fault| fails(&conditions, *fault, "m"));
        fails(&conditions, ModelFault::Refused { status: 400 }, "a refusal is an answer");
        unanswered[..2].iter().for_each(|fault| fails(&conditions, *fault, "m"));
        assert_eq!(kinds(&conditions), []);
        fails(&conditions, unanswered[2], "m");
        assert_eq!(kinds(&conditions), [(Notification::ModelDown, "p".to_owned())]);
        fails(&conditions, ModelFault::Refused { status: 429 }, "slow down");
        assert_eq!(kinds(&conditions), []);
    }
}
