//! A stored message on its way to becoming a turn: its place in the conversation, its history, its prompt.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use werkruf_contract::{Clock, Init, Language, State, Texts, ToolContext, Uuid};
use werkruf_llm::Message;
use werkruf_store::{Fence, MessageRow, StoreError, crash};

use crate::assistant::Assistant;
use crate::brought::ClientRequest;
use crate::history::{self, Past};
use crate::inbound::InboundMessage;
use crate::lane::Ticket;
use crate::runtime::{Alive, House, Setup};
use crate::turn::{Progress, Turn};
use crate::waiting::Waiting;

/// A stored message whose turn has not started yet.
pub(crate) struct Begun {
    pub(crate) house: Arc<House>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) inbound: InboundMessage,
    pub(crate) init: Init,
    pub(crate) alive: Alive,
    pub(crate) ticket: Ticket,
    /// The conversation's own.
    pub(crate) assistant: String,
}

impl Begun {
    /// Waits for the turns ahead, then runs to the end. The ticket goes last, with `self`: only then may the next turn begin.
    pub(crate) async fn run(mut self, fence: Option<Fence>, state: State) {
        if !self.called().await {
            return;
        }
        crash::point("called");
        let turn_id = self.init.turn_id;
        let started = match fence {
            Some(fence) => self.at_once(fence, state).await,
            None => self.after_waiting().await,
        };
        match started {
            Ok(turn) => turn.unless_released(Turn::run).await,
            // Another process begins it, or ended it; whoever listens here is told from the rows.
            Err(StoreError::Moved { .. } | StoreError::Fenced | StoreError::Busy) if self.house.is_shared() => {}
            Err(error) => tracing::error!(%turn_id, %error, "the turn could not start; the recovery scan will try again"),
        }
    }

    async fn called(&mut self) -> bool {
        let Init { turn_id, conversation_id: stream_id, .. } = self.init;
        let waiting = Waiting {
            house: &self.house,
            tenant_id: self.inbound.caller.principal.tenant_id,
            turn_id,
            stream_id,
            live: Some(&self.alive.live),
        };
        waiting.called(&mut self.ticket, || Texts::of(&spoken(&self.inbound))).await
    }

    async fn at_once(&self, fence: Fence, state: State) -> Result<Box<Turn>, StoreError> {
        let past = match &self.inbound.brought {
            None if self.init.created => Past::just(Message::user(self.inbound.message.clone())),
            Some(_) | None => self.house.past(self.inbound.caller.principal.tenant_id, self.init.conversation_id).await?,
        };
        Ok(self.turn(fence, state, past))
    }

    async fn after_waiting(&self) -> Result<Box<Turn>, StoreError> {
        let (parts, tenant_id) = (&self.house.parts, self.inbound.caller.principal.tenant_id);
        let fence = self.house.start_when_free(tenant_id, self.init.turn_id, &self.alive.live).await?;
        crash::point("after_start");
        let conversation = parts.records.conversation(tenant_id, self.init.conversation_id).await?;
        let past = self.house.past(tenant_id, self.init.conversation_id).await?;
        Ok(self.turn(fence, conversation.map(|row| row.state).unwrap_or_default(), past))
    }

    /// Everything a turn needs; boxed, since a future keeps room for each place it is moved to.
    pub(crate) fn turn(&self, fence: Fence, state: State, past: Past) -> Box<Turn> {
        let (house, inbound) = (&self.house, &self.inbound);
        let principal = &inbound.caller.principal;
        let name = inbound.assistant.as_deref().unwrap_or(&self.assistant);
        let assistant = house
            .assistant_named(&self.setup, name, &inbound.caller)
            .cloned()
            // The conversation's assistant may be gone from the file since; the default one goes on.
            .unwrap_or_else(|_| self.setup.assistants.find("default", &[]).cloned().unwrap_or_else(Assistant::fallback));
        let brought = inbound.brought.clone();
        let offer = match &brought {
            Some(brought) => self.setup.registry.offer_with(&assistant, brought),
            None => self.setup.registry.offer(&assistant),
        };
        let locale = spoken(inbound);
        let today = today(&house.parts.clock, &principal.time_zone);
        let mut system = assistant.system(principal, &locale, today, &offer.functions, &state);
        if let Some(own) = brought.as_ref().and_then(|brought| brought.instructions.as_deref()) {
            system.push_str("\n\n");
            system.push_str(own);
        }
        let options = brought.as_ref().map(|brought| Arc::new(brought.options.clone())).unwrap_or_default();
        let context = self.context(&locale);
        let conversation_id = Some(self.init.conversation_id);
        let mut ground =
            house.ground(Arc::clone(&self.setup), inbound.caller.clone(), self.init.turn_id, conversation_id, Arc::clone(&self.alive.live));
        ground.fence = fence;
        ground.debug = inbound.debug;
        ground.words = Texts::of(&locale);
        Box::new(Turn {
            house: Arc::clone(house),
            ground: Arc::new(ground),
            provider: Arc::clone(&house.parts.provider),
            model_slots: house.model_slots.clone(),
            assistant,
            system: system.into(),
            locale,
            today,
            offer,
            context,
            state: Arc::new(state),
            messages: Arc::new(past.messages),
            origins: Some(past.origins),
            trimmed: false,
            created: self.init.created,
            brought,
            options,
            progress: Progress::default(),
        })
    }

    fn context(&self, locale: &str) -> ToolContext {
        let turn_id = self.init.turn_id;
        let trace_id = self.inbound.trace_id.clone().unwrap_or_else(|| turn_id.to_string());
        let tenant_id = self.inbound.caller.principal.tenant_id;
        let mut context = ToolContext::new(tenant_id, trace_id, turn_id, self.house.parts.clock.now(), format!("run_{turn_id}"));
        context.locale = Some(locale.to_owned());
        context
    }
}

impl House {
    /// What was said in a conversation, with what a client said before it came here.
    pub(crate) async fn past(&self, tenant_id: Uuid, conversation_id: Uuid) -> Result<Past, StoreError> {
        Ok(Past::of(&self.whole_history(tenant_id, conversation_id).await?))
    }

    /// The same as rows.
    pub(crate) async fn whole_history(&self, tenant_id: Uuid, conversation_id: Uuid) -> Result<Vec<MessageRow>, StoreError> {
        let rows = self.parts.turns.history(tenant_id, conversation_id).await?;
        if !history::begins_elsewhere(&rows) {
            return Ok(rows);
        }
        let brought = self.parts.clients.first_client_request(tenant_id, conversation_id).await?;
        let turn_id = rows.first().and_then(|row| row.turn_id).unwrap_or_default();
        let brought = ClientRequest::stored(brought.as_deref(), turn_id).unwrap_or_default();
        let mut whole = history::brought_rows(&brought);
        whole.extend(rows);
        Ok(whole)
    }
}

/// The language to answer in: the one asked for, else the one the message is written in, else the person's own.
fn spoken(inbound: &InboundMessage) -> String {
    let own = &inbound.caller.principal.locale;
    let written = || Language::guess(&inbound.message).filter(|language| *language != Language::of(own));
    inbound.locale.clone().or_else(|| written().map(|language| language.locale().to_owned())).unwrap_or_else(|| own.clone())
}

/// The date where the person is.
fn today(clock: &Clock, time_zone: &str) -> Date {
    let zone = TimeZone::get(time_zone).unwrap_or(TimeZone::UTC);
    clock.now().to_zoned(zone).date()
}
