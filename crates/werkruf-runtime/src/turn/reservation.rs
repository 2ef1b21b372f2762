//! Makes room for a model request of a turn in the budgets that count it, before the request leaves.
//!
//! Without such a budget nothing is computed and nothing is written. With one, the commit of what is staged and the reservation are one write, and
//! the request leaves after it. The steps of a turn ask the model one after another, so their reservation has the id of the turn: where the next step
//! claims the same, the row stays as it is. A request beside them (a summary) has a reservation of its own.

use jiff::SignedDuration;
use werkruf_contract::{Deadline, Uuid};
use werkruf_llm::ModelRequest;
use werkruf_store::{NewReservation, NewUsage};

use super::state::Stop;
use crate::budgets::{Applicable, BudgetRefusal, WorstCase};
use crate::call::TurnScope;
use crate::journal::{Change, CommitPoint};
use crate::model::worst_case;
use crate::timer;

/// A reservation outlives its request by this much: the row that settles it comes with a later commit.
const SETTLING: SignedDuration = SignedDuration::from_secs(120);

/// What is held for one request until its usage row is staged.
#[derive(Default)]
pub(super) struct Held {
    reservation: Option<NewReservation>,
    /// Of the tokens that the turn may use.
    tokens: i64,
    /// The longest answer that they leave room for.
    max_output: Option<u32>,
    /// The tokens of the prompt, where they were counted.
    prompt: Option<i64>,
}

impl Held {
    /// What commit A, or a request that was not sent, has reserved already.
    pub(super) fn of(scope: &TurnScope) -> Self {
        Self { reservation: scope.take_reservation(), ..Self::default() }
    }

    /// The request with the longest answer that there is room for.
    pub(super) fn limited(&self, request: &ModelRequest) -> ModelRequest {
        let mut request = request.clone();
        if let Some(most) = self.max_output {
            request.client_max_tokens = Some(request.client_max_tokens.map_or(most, |own| own.min(most)));
        }
        request
    }

    /// The tokens of the prompt, where they were counted.
    pub(super) const fn prompt(&self) -> Option<i64> {
        self.prompt
    }

    /// The request was sent: its row counts, and what was held for it ends.
    pub(super) fn settle(&mut self, scope: &TurnScope, row: &mut NewUsage) {
        scope.charge(row, self.reservation.take().as_ref());
        scope.tokens.settle(std::mem::take(&mut self.tokens), row.tokens_total);
    }

    /// Nothing more is sent. A reservation that is left ends with the turn.
    pub(super) fn end(self, scope: &TurnScope) {
        scope.tokens.settle(self.tokens, 0);
    }

    /// Nothing more is sent. A reservation that is left is for the next request.
    pub(super) fn give_back(self, scope: &TurnScope) {
        scope.tokens.settle(self.tokens, 0);
        if let Some(reservation) = self.reservation {
            scope.keep_reservation(reservation);
        }
    }
}

/// A model request that is about to leave.
#[derive(Clone, Copy)]
pub(super) struct Departing<'a> {
    pub(super) scope: &'a TurnScope,
    pub(super) request: &'a ModelRequest,
    pub(super) deadline: Deadline,
    pub(super) reservation_id: Uuid,
}

impl Departing<'_> {
    /// Makes room for the request in the budgets that count it. What is reserved is durable when this returns.
    pub(super) async fn reserve(self, held: &mut Held) -> Result<(), Stop> {
        let scope = self.scope;
        let applicable = scope.models.budgets.applicable(&scope.spender);
        let counts_tokens = scope.tokens.is_limited() || applicable.as_ref().is_some_and(Applicable::counts_tokens);
        scope.tokens.settle(std::mem::take(&mut held.tokens), 0);
        let worst = if counts_tokens { self.worst_case().await } else { WorstCase::default() };
        scope.tokens.reserve(worst.tokens).map_err(|refusal| self.refused(refusal))?;
        (held.tokens, held.max_output, held.prompt) = (worst.tokens, worst.max_output, counts_tokens.then_some(worst.prompt));
        match applicable {
            Some(applicable) => self.reserve_in(&applicable, worst, held).await,
            None => Ok(()),
        }
    }

    async fn reserve_in(self, applicable: &Applicable, worst: WorstCase, held: &mut Held) -> Result<(), Stop> {
        let journal = &self.scope.journal;
        let now = self.scope.clock.now();
        let expires_at = now + SignedDuration::try_from(timer::left(self.deadline)).unwrap_or_default() + SETTLING;
        let wanted = applicable.reservation(self.reservation_id, worst, now, expires_at).map_err(|refusal| self.refused(refusal))?;
        if held.reservation.as_ref().is_some_and(|own| covers(own, &wanted)) {
            return Ok(());
        }
        if held.reservation.take().is_some() {
            journal.stage(Change::ReleaseReservations);
        }
        journal.stage(Change::Reserve(wanted.clone()));
        match journal.commit(CommitPoint::Reservation).await?.over_budget {
            Some(over) => {
                self.scope.models.gate.conditions().budget_refused(self.scope.caller.principal.tenant_id, &over);
                Err(self.refused(applicable.refusal(&over, now)))
            }
            None => {
                held.reservation = Some(wanted);
                Ok(())
            }
        }
    }

    async fn worst_case(self) -> WorstCase {
        let provider = self.scope.models.gate.chat_provider();
        let model = self.request.model.as_deref().unwrap_or_else(|| provider.default_model());
        worst_case(provider.size(self.request), 0, model, &self.scope.setup.prices, self.scope.tokens.room()).await
    }

    fn refused(self, refusal: BudgetRefusal) -> Stop {
        tracing::info!(turn_id = %self.scope.turn_id, code = %refusal.code(), "a budget has no room for a model request of a turn");
        Stop::OverBudget(Box::new(refusal))
    }
}

/// Whether what is reserved is enough.
fn covers(own: &NewReservation, wanted: &NewReservation) -> bool {
    wanted.claims.iter().all(|wanted| own.claims.iter().any(|own| own.counter == wanted.counter && own.amount >= wanted.amount))
}
