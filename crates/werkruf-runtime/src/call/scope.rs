//! What a turn shares with its calls: whose turn it is, its journal, and the services its calls use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, Deadline, DebugEntry, EventType, Progress, Texts, Usage, Uuid};
use werkruf_store::{Cluster, NewReservation, NewUsage, Outbox, People, Records, RequestsOf, StoreError, Turns};

use super::in_flight::InFlight;
use super::results::ResultLimit;
use crate::budgets::{Spender, TurnTokens};
use crate::channel::Inbound;
use crate::journal::{Change, Journal};
use crate::lease::{RunningTurn, Wakeup};
use crate::limits::Limits;
use crate::model::ModelAccounts;
use crate::request::Caller;
use crate::setup::Setup;
use crate::trace::{TurnEnd, TurnTrace};

/// The services that every turn of the process uses.
#[derive(Clone)]
pub(crate) struct TurnServices {
    pub(crate) turns: Arc<dyn Turns>,
    pub(crate) people: Arc<dyn People>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) outbox: Arc<dyn Outbox>,
    pub(crate) models: ModelAccounts,
    pub(crate) wakeup: Wakeup,
    pub(crate) tasks: TaskTracker,
    pub(crate) in_flight: InFlight,
    pub(crate) clock: Clock,
    pub(crate) limits: Arc<Limits>,
}

/// One turn, as the turn itself and its calls see it.
pub(crate) struct TurnScope {
    pub(crate) services: TurnServices,
    pub(crate) journal: Journal,
    /// Fixed when the turn started: a reload changes no running turn.
    pub(crate) setup: Arc<Setup>,
    pub(crate) caller: Caller,
    pub(crate) turn_id: Uuid,
    pub(crate) conversation_id: Option<Uuid>,
    pub(crate) running: Arc<RunningTurn>,
    pub(crate) deadline: Deadline,
    pub(crate) debug: bool,
    /// Texts in the language that the user is answered in.
    pub(crate) texts: Texts,
    /// Texts of the turn's own error: English for programs that use the OpenAI API, else as above.
    pub(crate) error_texts: Texts,
    pub(crate) result_limit: ResultLimit,
    /// What the channel said about the message; `None` where the turn did not come from a channel with addresses.
    pub(crate) inbound: Option<Arc<Inbound>>,
    /// What the turn's own model requests used.
    pub(crate) used: Mutex<Usage>,
    /// Whose requests the turn's are, for budgets.
    pub(crate) spender: Spender,
    /// The tokens that the request allows its turn.
    pub(crate) tokens: Arc<TurnTokens>,
    /// What is reserved for the next model request.
    pub(crate) reservation: Mutex<Option<NewReservation>>,
    pub(crate) trace: TurnTrace,
    /// Who called the tool directly and wants to know how far the call is.
    pub(crate) observer: Option<Arc<dyn Progress>>,
}

impl std::ops::Deref for TurnScope {
    type Target = TurnServices;

    fn deref(&self) -> &TurnServices {
        &self.services
    }
}

impl TurnScope {
    pub(crate) const fn tenant_id(&self) -> Uuid {
        self.journal.tenant_id()
    }

    /// What the turn's own model requests have used so far.
    pub(crate) fn used(&self) -> Usage {
        self.lock_used().clone()
    }

    /// Adds a request to the turn's total.
    pub(crate) fn count_usage(&self, row: &NewUsage) {
        let mut used = self.lock_used();
        used.input_tokens += row.tokens_prompt;
        used.cached_tokens += row.tokens_cached;
        used.output_tokens += row.tokens_completion;
        used.reasoning_tokens += row.tokens_reasoning;
        used.total_tokens += row.tokens_total;
        used.add_cost(row.cost_nano_usd);
        used.model_calls += 1;
    }

    /// Ends the turn's span. Only the process that has written the end calls it. `content` makes question and answer.
    pub(crate) fn end_span(&self, error: Option<&str>, content: (Option<String>, Option<String>)) {
        let provider = self.models.gate.chat_provider().name();
        self.trace.end(TurnEnd { provider, error, input: content.0, output: content.1 });
    }

    /// Continues the total of an earlier process.
    pub(crate) fn continue_usage(&self, used: Usage) {
        *self.lock_used() = used;
    }

    /// Whether requests of the turn count towards a budget of the tenant, or towards the tokens that the turn may use.
    pub(crate) fn is_counted(&self) -> bool {
        self.tokens.is_limited() || self.models.budgets.has_any(self.tenant_id())
    }

    /// Takes what is reserved for the next model request.
    pub(crate) fn take_reservation(&self) -> Option<NewReservation> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// This is reserved, and its request was not sent yet.
    pub(crate) fn keep_reservation(&self, reservation: NewReservation) {
        self.journal.note_reserved();
        *self.reservation.lock().unwrap_or_else(PoisonError::into_inner) = Some(reservation);
    }

    /// Releases what an earlier process reserved for the turn, with the next commit.
    pub(crate) fn release_reservations(&self) {
        if self.models.budgets.has_any(self.tenant_id()) {
            self.journal.stage(Change::ReleaseReservations);
        }
    }

    /// What the turn has used so far, as stored.
    pub(crate) async fn turn_usage(&self, of: RequestsOf) -> Result<Usage, StoreError> {
        self.models.usage.turn_usage(self.tenant_id(), self.turn_id, of).await
    }

    /// Continues the count of the turn's tokens where an earlier process stopped.
    pub(crate) async fn continue_tokens(&self) -> Result<(), StoreError> {
        if self.tokens.is_limited() {
            self.tokens.continue_from(self.turn_usage(RequestsOf::TurnAndTools).await?.total_tokens);
        }
        Ok(())
    }

    /// Counts a request of the turn towards its budgets. The row ends the reservation.
    pub(crate) fn charge(&self, row: &mut NewUsage, reservation: Option<&NewReservation>) {
        row.assistant = self.spender.assistant.clone();
        row.counted_in = self.models.counters(&self.spender, reservation);
        row.reservation = reservation.map(|reservation| reservation.id);
    }

    fn lock_used(&self) -> MutexGuard<'_, Usage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the turn's work until it is done, another process owns the turn, or this process must stop. In the last case the lease is given
    /// back, and the turn continues elsewhere or after the next start.
    pub(crate) async fn run_until_released(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = work => {}
            () = self.running.lost() => {
                self.journal.abandon();
                tracing::warn!(turn_id = %self.turn_id, "another process owns the turn and continues it");
            }
            () = self.running.released() => {
                let released = self.journal.release().await;
                tracing::info!(turn_id = %self.turn_id, ok = released.is_ok(), "the turn was released");
            }
        }
    }

    /// Returns while the lease is certain. After that nothing may start under it, because another process may own the turn: the turn is
    /// released, and this never returns.
    pub(crate) async fn require_lease(&self) {
        if self.cluster.lease_ttl().is_none_or(|ttl| self.running.lease().is_certain(ttl)) {
            return;
        }
        tracing::warn!(turn_id = %self.turn_id, "the lease was not renewed in time; nothing more starts under it");
        self.running.release();
        std::future::pending::<()>().await;
    }

    /// Publishes a debug entry, where debug events were requested and are allowed.
    pub(crate) fn debug(&self, kind: &str, payload: impl FnOnce() -> Map<String, Value>) {
        if self.debug {
            self.journal.publish_unstored(EventType::Debug, &DebugEntry { kind: kind.to_owned(), payload: payload() });
        }
    }
}
