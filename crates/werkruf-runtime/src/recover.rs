//! Turns nobody works on are found and gone on with: at the start, and by a scan while running.
//!
//! The scan only queues; each turn then waits for its place in its conversation like any other.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use werkruf_contract::{CallStatus, EventType, Init, State, Texts, ToolContext, ToolErrorType, TurnError, TurnStatus, Uuid};
use werkruf_store::{ApprovalFilter, ApprovalRow, CallFilter, CallRow, Fence, Order, Page, StoreError, TurnRow, crash};

use crate::begun::Begun;
use crate::brought::ClientRequest;
use crate::corridor::Walk;
use crate::history::{self, Past};
use crate::inbound::{Caller, InboundMessage};
use crate::invoke::Entered;
use crate::lane::Ticket;
use crate::resume::{Left, poison};
use crate::runtime::{Alive, House, Runtime};
use crate::stir::Stirred;
use crate::timer;
use crate::turn::{Turn, fail};
use crate::waiting::Waiting;

const SCAN_EVERY: Duration = Duration::from_secs(5);
/// Beside other processes, about: a lease that lapsed is found soon.
const SHARED_SCAN: Duration = Duration::from_secs(2);
const ALL_CALLS: u32 = 100_000;

impl Runtime {
    /// Goes on with every turn that has no end and nobody working on it; how many there were.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let house = &self.house;
        let mut found = 0;
        let unfinished = house.parts.turns.unfinished_turns(house.owner.clone()).await?;
        let seen = house.note_waiting(&unfinished);
        for turn in unfinished.into_iter().filter(|turn| turn.status != TurnStatus::Accepted || seen.contains(&turn.id)) {
            found += usize::from(self.go_on_with(turn));
        }
        Ok(found)
    }

    /// Queues a turn, unless somebody here works on it already or the house drains.
    pub(crate) fn go_on_with(&self, turn: TurnRow) -> bool {
        let house = &self.house;
        let Some(alive) = house.revive(turn.tenant_id, turn.id).filter(|_| !self.is_draining()) else { return false };
        let fresh = turn.status == TurnStatus::Accepted;
        // Beside other processes whoever waits in the lane may be waiting for this very turn; there the store keeps the order.
        let lane = turn.conversation_id.filter(|_| !house.is_shared()).unwrap_or(turn.id);
        let ticket = house.lanes.enter(lane);
        tracing::info!(turn_id = %turn.id, status = %turn.status, step = turn.step, takeovers = turn.takeovers, "going on with a turn");
        house.tasks.spawn(Orphan { house: Arc::clone(house), runtime: self.clone(), turn, fresh }.run(alive, ticket));
        true
    }

    /// Looks again and again until the house drains. Beside other processes it also keeps its leases and follows their streams,
    /// until its last turn has ended.
    pub async fn run_background(&self) {
        match self.house.parts.cluster.lease_ttl() {
            None => self.scan().await,
            Some(ttl) => {
                tokio::join!(self.scan(), self.keep_leases(ttl), self.follow_others(), self.hear_knocks());
            }
        }
    }

    async fn scan(&self) {
        let mut stirred = self.house.stir.listen();
        loop {
            tokio::select! {
                biased;
                () = self.house.stopping.raised() => return,
                () = self.house.until_next_scan(&mut stirred) => {}
            }
            self.house.hub.sweep();
            if let Err(error) = self.look_around().await {
                tracing::warn!(%error, "the recovery scan found the database out of reach");
            }
        }
    }
}

impl House {
    async fn until_next_scan(&self, stirred: &mut Stirred) {
        if !self.is_shared() {
            return tokio::time::sleep(SCAN_EVERY).await;
        }
        // Spread, so that processes that began together do not look together.
        let longest = SHARED_SCAN.mul_f64(0.75 + self.parts.clock.chance() / 2.0);
        tokio::time::sleep(longest / 4).await;
        stirred.within(longest * 3 / 4).await;
    }

    /// Which of the turns that have not begun are taken on: all, or beside other processes those that were found before. One that
    /// waited there begins there as soon as its place is free, and only then does the scan see it.
    fn note_waiting(&self, unfinished: &[TurnRow]) -> BTreeSet<Uuid> {
        let found: BTreeSet<Uuid> = unfinished.iter().filter(|turn| turn.status == TurnStatus::Accepted).map(|turn| turn.id).collect();
        if !self.is_shared() {
            return found;
        }
        let before = std::mem::replace(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner), found.clone());
        &found & &before
    }
}

impl Runtime {
    /// What nobody decided in time, then what nobody works on.
    async fn look_around(&self) -> Result<(), StoreError> {
        self.expire_approvals().await?;
        self.recover().await.map(|_| ())
    }
}

/// A turn nobody works on.
struct Orphan {
    house: Arc<House>,
    runtime: Runtime,
    turn: TurnRow,
    /// It never began.
    fresh: bool,
}

impl Orphan {
    async fn run(self, alive: Alive, mut ticket: Ticket) {
        if !self.called(&alive, &mut ticket).await {
            return;
        }
        let turn_id = self.turn.id;
        match self.go_on(alive, ticket).await {
            // Somebody else ended or claimed it in the meantime.
            Ok(()) | Err(StoreError::Moved { .. } | StoreError::Fenced | StoreError::Busy) => {}
            Err(error) => tracing::error!(%turn_id, %error, "the turn could not be gone on with"),
        }
    }

    /// Waits for its place; false when it never began and was canceled first.
    async fn called(&self, alive: &Alive, ticket: &mut Ticket) -> bool {
        if !self.fresh {
            ticket.called().await;
            return true;
        }
        let TurnRow { id: turn_id, tenant_id, conversation_id, .. } = self.turn;
        if self.turn.cancel_requested {
            alive.live.cancel_all();
        }
        let waiting =
            Waiting { house: &self.house, tenant_id, turn_id, stream_id: conversation_id.unwrap_or(turn_id), live: Some(&alive.live) };
        // Whose language it was is not known before the turn begins.
        waiting.called(ticket, || Texts::of("")).await
    }

    async fn go_on(mut self, alive: Alive, ticket: Ticket) -> Result<(), StoreError> {
        let principal = self.house.parts.people.principal(self.turn.tenant_id, self.turn.user_id.clone()).await?;
        let asked = timer::now();
        let fence = self.claim().await?;
        alive.live.hold.take(&fence, asked);
        crash::point("after_claim");
        // Read again under the lease: since the scan saw it, somebody may have taken it a step further. Where one process holds
        // the database a crash was counted at the start, and that it is taken over now counts only if nothing comes of it; where
        // many do, the claim itself has counted the loss.
        let seen = self.turn.stalled;
        let row = self.house.parts.records.turn(self.turn.tenant_id, self.turn.id).await?.ok_or(StoreError::Fenced)?;
        self.turn = if self.house.is_shared() { row } else { TurnRow { stalled: seen, ..row } };
        let (parts, turn) = (&self.house.parts, &self.turn);
        let filter = CallFilter { turn_id: Some(turn.id), ..CallFilter::default() };
        let page = Page { after: None, limit: ALL_CALLS, order: Order::OldestFirst };
        let mut calls = parts.records.calls(turn.tenant_id, filter, page).await?;
        calls.sort_by_key(|call| (call.step, call.output_index));
        let Some(principal) = principal else { return self.abandon(fence, calls, alive).await };
        let caller = Caller { principal, key_id: turn.key_id, admin: false };
        match turn.conversation_id {
            Some(conversation_id) if turn.kind == "chat" => self.chat(caller, fence, conversation_id, calls, alive, ticket).await,
            Some(_) | None => self.direct(caller, fence, calls, alive, ticket).await,
        }
    }

    /// One that never began is started; one that had begun is taken over.
    async fn claim(&self) -> Result<Fence, StoreError> {
        let (parts, turn, now) = (&self.house.parts, &self.turn, self.house.parts.clock.now());
        if self.fresh {
            parts.turns.start_turn(turn.tenant_id, turn.id, &self.house.owner, now).await
        } else {
            parts.turns.take_over(turn.tenant_id, turn.id, self.house.owner.clone(), now).await
        }
    }

    async fn chat(
        self,
        caller: Caller,
        fence: Fence,
        conversation_id: Uuid,
        calls: Vec<CallRow>,
        alive: Alive,
        ticket: Ticket,
    ) -> Result<(), StoreError> {
        let (parts, tenant_id, turn_id) = (&self.house.parts, self.turn.tenant_id, self.turn.id);
        let mut history = self.house.whole_history(tenant_id, conversation_id).await?;
        history::own_last(&mut history, turn_id);
        let approvals = self.approvals().await?;
        let brought = parts.clients.client_request(tenant_id, turn_id).await?;
        let state = parts.records.conversation(tenant_id, conversation_id).await?.map(|row| row.state).unwrap_or_default();
        let events = parts.records.events(tenant_id, conversation_id, Some(turn_id), 0, 1).await?;
        let created = events.first().filter(|event| event.kind == EventType::Init);
        let created = created.and_then(|event| serde_json::from_str::<Init>(&event.data).ok()).is_some_and(|init| init.created);
        let message = history.iter().find(|row| row.turn_id == Some(turn_id) && row.role == "user").map(|row| row.content.clone());
        let inbound = InboundMessage {
            caller,
            conversation_id: Some(conversation_id),
            message: message.unwrap_or_default(),
            assistant: Some(self.turn.assistant.clone()).filter(|name| !name.is_empty()),
            channel: String::new(),
            locale: None,
            debug: false,
            idempotency: None,
            trace_id: None,
            parts: Vec::new(),
            brought: ClientRequest::stored(brought.as_deref(), turn_id).map(Arc::new),
            results: Vec::new(),
            after: None,
        };
        let init = Init { chat_id: conversation_id, conversation_id, turn_id, created };
        let setup = self.runtime.setup();
        let begun = Begun { house: Arc::clone(&self.house), setup, inbound, init, alive, ticket, assistant: self.turn.assistant.clone() };
        let turn = begun.turn(fence, state, Past::of(&history));
        if self.fresh && !self.turn.cancel_requested {
            turn.unless_released(Turn::run).await;
        } else {
            let left = Left { turn: self.turn, calls, history, approvals };
            turn.unless_released(|turn| turn.resume(left)).await;
        }
        Ok(())
    }

    /// A tool called directly: its one call is brought to an end.
    async fn direct(self, caller: Caller, fence: Fence, calls: Vec<CallRow>, alive: Alive, ticket: Ticket) -> Result<(), StoreError> {
        let (parts, turn) = (&self.house.parts, &self.turn);
        let conversation = match turn.conversation_id {
            Some(id) => parts.records.conversation(turn.tenant_id, id).await?,
            None => None,
        };
        let state: Arc<State> = Arc::new(conversation.map(|row| row.state).unwrap_or_default());
        let stored = calls.first().and_then(|call| serde_json::from_str(&call.context).ok());
        let context = stored.and_then(|context| ToolContext::from_json(context).ok()).unwrap_or_else(|| {
            ToolContext::new(turn.tenant_id, turn.id.to_string(), turn.id, parts.clock.now(), format!("run_{}", turn.id))
        });
        let mut ground = self.house.ground(self.runtime.setup(), caller, turn.id, turn.conversation_id, Arc::clone(&alive.live));
        ground.fence = fence;
        let ground = Arc::new(ground);
        let entered = Entered { context, state, ticket, alive };
        let mut left = Left { turn: turn.clone(), calls, history: Vec::new(), approvals: self.approvals().await? };
        // No placeholder tells whether people know that it waits; the log does.
        let told = parts.records.events(turn.tenant_id, ground.stream_id(), Some(turn.id), 0, ALL_CALLS).await?;
        if told.iter().any(|event| event.kind == EventType::ApprovalRequired) {
            left.turn.status = TurnStatus::AwaitingApproval;
        }
        if left.is_poison() || turn.cancel_requested {
            let (call, status, error) = if left.is_poison() {
                (CallStatus::Failed, TurnStatus::Failed, poison(&ground.words))
            } else {
                let message = ground.words.text("error-canceled", &[]);
                (CallStatus::Canceled, TurnStatus::Canceled, TurnError::new(ToolErrorType::Fatal, "canceled", message))
            };
            let mut draft = left.close(&ground, call);
            fail(&ground, &mut draft, status, turn.step, error);
            return ground.commit(draft).await.map(|_| ());
        }
        let walk = Walk { ground: &ground, step: 1, state: &entered.state, context: &entered.context, earlier: &[] };
        let mut draft = ground.draft();
        let open = left.calls.iter().cloned().map(|call| (call, None)).collect();
        let prepared = walk.resume(&left, open, &mut draft).await?;
        ground.commit(draft).await?;
        ground.unless_released(entered.finish(&ground, prepared, drop)).await;
        Ok(())
    }

    /// What was asked of people for this turn.
    async fn approvals(&self) -> Result<Vec<ApprovalRow>, StoreError> {
        let filter = ApprovalFilter { turn_id: Some(self.turn.id), ..ApprovalFilter::default() };
        let page = Page { after: None, limit: ALL_CALLS, order: Order::OldestFirst };
        self.house.parts.approvals.approvals(self.turn.tenant_id, filter, page).await
    }

    /// The person is gone: nobody may act for them any more.
    async fn abandon(self, fence: Fence, calls: Vec<CallRow>, alive: Alive) -> Result<(), StoreError> {
        let turn = &self.turn;
        let history = match turn.conversation_id {
            Some(id) => self.house.parts.turns.history(turn.tenant_id, id).await?,
            None => Vec::new(),
        };
        let nobody = werkruf_contract::Principal {
            tenant_id: turn.tenant_id,
            tenant_slug: String::new(),
            user_id: turn.user_id.clone(),
            name: String::new(),
            roles: Vec::new(),
            branch_id: None,
            locale: String::new(),
            time_zone: String::new(),
            permissions: Vec::new(),
        };
        let caller = Caller { principal: Arc::new(nobody), key_id: None, admin: false };
        let mut ground = self.house.ground(self.runtime.setup(), caller, turn.id, turn.conversation_id, Arc::clone(&alive.live));
        ground.fence = fence;
        let approvals = self.approvals().await?;
        let mut draft = Left { turn: turn.clone(), calls, history, approvals }.close(&ground, CallStatus::Failed);
        let error = TurnError::new(ToolErrorType::Fatal, "unknown_user", ground.words.text("error-unknown_user", &[]));
        fail(&ground, &mut draft, TurnStatus::Failed, turn.step, error);
        ground.commit(draft).await.map(|_| ())
    }
}
