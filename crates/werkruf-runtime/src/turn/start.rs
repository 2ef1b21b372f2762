//! A stored message becomes a running turn: its place in the conversation, its history, its prompt.

use std::sync::Arc;

use werkruf_contract::{Init, Principal, State, Texts, Uuid};
use werkruf_llm::Message;
use werkruf_store::{Fence, MessageRow, NewReservation, Order, Page, StoreError, crash};

use super::history::{self, History};
use super::prompt::Prompt;
use super::state::{Progress, Turn};
use super::waiting::{UnstartedTurn, start_when_free};
use crate::budgets::TurnTokens;
use crate::call::ResultLimit;
use crate::channel::Inbound;
use crate::client_request::ClientRequest;
use crate::engine::{Engine, Registration};
use crate::journal::{Audience, TurnOwner};
use crate::lease::QueuePlace;
use crate::request::InboundMessage;
use crate::setup::Setup;
use crate::taint::Taint;
use crate::trace::{TracedTurn, TurnTrace};

/// The messages that show the language of a conversation.
const RECENT: Page = Page::of(50, Order::NewestFirst);

/// A stored message whose turn has not started yet.
pub(crate) struct StoredTurn {
    pub(crate) engine: Arc<Engine>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) message: InboundMessage,
    pub(crate) init: Init,
    pub(crate) registration: Registration,
    pub(crate) place: QueuePlace,
    /// As the turn's row names it.
    pub(crate) assistant: String,
    /// As the turn's row has it.
    pub(crate) inbound: Option<Arc<Inbound>>,
    /// What commit A reserved for the first model request.
    pub(crate) reservation: Option<NewReservation>,
    /// Another process has worked on the turn before.
    pub(crate) taken_over: bool,
}

impl StoredTurn {
    /// Waits for the turns ahead, then runs to the end. The place in the queue is dropped last, with `self`: only then may the next turn start.
    pub(super) async fn run(mut self, fence: Option<Fence>, state: State) {
        if !self.reached().await {
            return;
        }
        crash::point("called");
        let turn_id = self.init.turn_id;
        let started = match fence {
            Some(fence) => self.start_now(fence, state).await.map(|turn| (turn, true)),
            None => self.start_after_waiting().await,
        };
        match started {
            Ok((turn, true)) => turn.run_until_released(Turn::run).await,
            Ok((turn, false)) => turn.run_until_released(Turn::refuse_unknown_user).await,
            // Another process starts it, or ended it. Subscribers here are served from the rows.
            Err(StoreError::Moved { .. } | StoreError::Fenced | StoreError::Busy) if self.engine.is_shared() => {}
            Err(error) => tracing::error!(%turn_id, %error, "the turn could not start; the recovery scan will try again"),
        }
    }

    /// Waits for the turn's place; false when the turn was canceled before and has ended.
    async fn reached(&mut self) -> bool {
        let Init { turn_id, conversation_id: stream_id, .. } = self.init;
        let principal = &self.message.caller.principal;
        let owner = TurnOwner {
            tenant_id: principal.tenant_id,
            tenant_slug: principal.tenant_slug.clone(),
            conversation_id: Some(stream_id),
            turn_id,
            user_id: principal.user_id.clone(),
        };
        let audience = Audience::new(owner, Arc::clone(&self.setup), self.engine.store.clock.clone(), self.inbound.as_deref());
        let trace = self.trace(&self.assistant);
        let unstarted = UnstartedTurn { engine: &self.engine, audience, running: Some(self.registration.running()), trace };
        unstarted
            .reached(&mut self.place, || {
                let message = &self.message;
                error_texts(message, message.context.locale.as_deref().unwrap_or(&message.caller.principal.locale))
            })
            .await
    }

    async fn start_now(&self, fence: Fence, state: State) -> Result<Box<Turn>, StoreError> {
        let history = match &self.message.client {
            None if self.init.created => History::only(Message::user(self.message.message.clone())),
            Some(_) | None => self.history().await?,
        };
        Ok(self.turn(fence, state, history))
    }

    /// The turn, and whether its user is still there: time has passed since the message was accepted.
    async fn start_after_waiting(&mut self) -> Result<(Box<Turn>, bool), StoreError> {
        let Principal { tenant_id, ref user_id, .. } = *self.message.caller.principal;
        let fence = start_when_free(&self.engine, tenant_id, self.init.turn_id, self.registration.running()).await?;
        crash::point("after_start");
        let principal = self.engine.store.people.principal(tenant_id, user_id.clone()).await?;
        let is_known = principal.is_some();
        if let Some(principal) = principal {
            self.message.caller.principal = principal;
        }
        let conversation = self.engine.store.records.conversation(tenant_id, self.init.conversation_id).await?;
        let history = self.history().await?;
        Ok((self.turn(fence, conversation.map(|row| row.state).unwrap_or_default(), history), is_known))
    }

    fn trace(&self, assistant: &str) -> TurnTrace {
        let Init { turn_id, conversation_id, .. } = self.init;
        let (tenant_id, taken_over) = (self.message.caller.principal.tenant_id, self.taken_over);
        let turn = TracedTurn { tenant_id, conversation_id: Some(conversation_id), turn_id, assistant, taken_over };
        self.engine.trace(&turn, Some(&self.message.context), &self.setup)
    }

    async fn history(&self) -> Result<History, StoreError> {
        let (tenant_id, conversation_id) = (self.message.caller.principal.tenant_id, self.init.conversation_id);
        if !self.inbound.as_ref().is_some_and(|inbound| inbound.needs_no_model()) {
            return Ok(History::of(&history_rows(&self.engine, tenant_id, conversation_id).await?));
        }
        // Only the language of the conversation counts, and only if the message shows none.
        if self.message.context.locale.is_some() {
            return Ok(History::only(Message::user(self.message.message.clone())));
        }
        let mut recent = self.engine.store.records.messages(tenant_id, conversation_id, RECENT).await?;
        recent.reverse();
        Ok(History::of(&recent))
    }

    /// Everything a turn needs. Boxed, because a future keeps room for each place that a value is moved to.
    pub(crate) fn turn(&self, fence: Fence, state: State, mut history: History) -> Box<Turn> {
        let (engine, message) = (&self.engine, &self.message);
        let principal = &message.caller.principal;
        let mut context = message.context.clone();
        // A short message such as "FRA" does not show its language; then the conversation goes on in its own.
        let locale = context.locale.take().or_else(|| history.locale(principal)).unwrap_or_else(|| principal.language_tag().to_owned());
        context.locale = Some(locale.clone());
        let Prompt { assistant, offer, system, today } = Prompt::of(engine, &self.setup, message, &self.assistant, &locale);
        assistant.pin(&mut context);
        let client = message.client.clone();
        let assistant_taint = assistant.taint;
        let options = client.as_ref().map(|client| Arc::new(client.options.clone())).unwrap_or_default();
        let leading = history.remember(&state);
        let (conversation_id, running) = (Some(self.init.conversation_id), Arc::clone(self.registration.running()));
        let (caller, inbound) = (message.caller.clone(), self.inbound.clone());
        let mut scope = engine.scope(Arc::clone(&self.setup), caller, self.init.turn_id, conversation_id, running, inbound);
        scope.journal.bind(fence);
        scope.debug = message.debug;
        scope.texts = Texts::of(&locale);
        scope.error_texts = error_texts(message, &locale);
        scope.result_limit = ResultLimit::of(assistant.context_tokens, assistant.pictures);
        scope.spender.assistant = Some(self.assistant.clone());
        scope.tokens = Arc::new(TurnTokens::new(context.budget_tokens));
        if let Some(reservation) = self.reservation.clone() {
            scope.keep_reservation(reservation);
        }
        scope.trace = self.trace(&assistant.name);
        Box::new(Turn {
            engine: Arc::clone(engine),
            scope: Arc::new(scope),
            assistant,
            system: system.into(),
            locale,
            today,
            offer,
            context,
            state: Arc::new(state),
            messages: Arc::new(history.messages),
            origins: Some(history.origins),
            leading,
            taint: Taint::new(assistant_taint),
            trimmed: false,
            created: self.init.created,
            client,
            options,
            progress: Progress::default(),
        })
    }
}

/// The texts of the turn's own error. Programs read those of the OpenAI API, in English whatever the conversation's language.
fn error_texts(message: &InboundMessage, locale: &str) -> Texts {
    Texts::of(if message.client.is_some() { "en" } else { locale })
}

/// The messages of a conversation as rows, after the history that a client sent with its first request.
pub(crate) async fn history_rows(engine: &Engine, tenant_id: Uuid, conversation_id: Uuid) -> Result<Vec<MessageRow>, StoreError> {
    let rows = engine.store.turns.history(tenant_id, conversation_id).await?;
    if !history::starts_in_client_request(&rows) {
        return Ok(rows);
    }
    let client = engine.store.clients.first_client_request(tenant_id, conversation_id).await?;
    let turn_id = rows.first().and_then(|row| row.turn_id).unwrap_or_default();
    let mut all = history::client_rows(&ClientRequest::stored(client.as_deref(), turn_id).unwrap_or_default());
    all.extend(rows);
    Ok(all)
}
