//! The changes a turn makes to the tables: commit A, its later start, and commits B, C, D.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{CallStatus, EventType, State, TurnStatus, Uuid, merge_state};
use werkruf_store::{
    AttemptRow, CallEnd, CallRetry, CallRow, CallStart, ConversationRef, ConversationRow, EventRow, Fence, MessageRow, NewEvent,
    NewMessage, OpenTurn, Opened, ProviderCallUpdate, StoreError, TurnCancellation, TurnChange, TurnKind, TurnRow, TurnWrite, Written,
};

use crate::mutant::Mutant;
use crate::tables::{AcceptedWrite, InboxRow, Tables, broken, moved, stream_of};
use crate::trace::short;

impl Tables {
    pub fn open(&mut self, open: &OpenTurn, mutant: Mutant) -> Result<Opened, StoreError> {
        let (conversation_id, stored) = match &open.conversation {
            ConversationRef::New { id, .. } => (Some(*id), None),
            ConversationRef::None => (None, None),
            ConversationRef::Existing { id, any_user } => {
                match self.conversations.get(id).filter(|row| *any_user || row.user_id == open.user_id) {
                    Some(row) => (Some(*id), Some((row.state.clone(), row.assistant.clone()))),
                    None => return Ok(self.known(open).unwrap_or(Opened::UnknownConversation)),
                }
            }
        };
        if let Some(known) = self.known(open)
            && mutant != Mutant::InboxIgnored
        {
            return Ok(known);
        }
        if let Some(original) = open.calls.iter().find_map(|call| call.retry_of)
            && self.calls.get(&original).is_some_and(|call| call.error_code.as_deref() == Some("outcome_unknown"))
            && let Some(retry) =
                self.calls.values().find(|call| call.retry_of == Some(original) && !(call.attempt == 0 && call.finished_at.is_some()))
        {
            return Ok(Opened::Retried { call_id: retry.id });
        }
        if let Some(entry) = &open.inbox {
            let key = (entry.channel.clone(), entry.account.clone(), entry.external_id.clone());
            let received = InboxRow { fingerprint: entry.fingerprint.clone(), turn_id: open.turn_id, expires_at: entry.expires_at };
            self.inbox.insert(key, received);
        }
        if let ConversationRef::New { id, channel, title } = &open.conversation {
            let row = ConversationRow {
                id: *id,
                tenant_id: open.tenant_id,
                user_id: open.user_id.clone(),
                channel: channel.clone(),
                assistant: open.assistant.clone(),
                title: title.clone(),
                state: State::new(),
                created_at: open.now,
                updated_at: open.now,
            };
            unique(self.conversations.insert(*id, Arc::new(row)), "conversation", *id)?;
        }
        let stream_id = conversation_id.unwrap_or(open.turn_id);
        let starts = open.start && (self.may_start(stream_id) || mutant == Mutant::OpenTurnIgnored);
        if !starts && !open.calls.is_empty() {
            return Err(StoreError::Busy);
        }
        let fence = starts.then(|| self.claim(open.tenant_id, stream_id, &open.owner, open.now));
        *self.claims.entry(open.turn_id).or_default() += u32::from(starts);
        if starts && matches!(open.conversation, ConversationRef::Existing { .. }) && mutant != Mutant::CanceledUnnumbered {
            self.number(stream_id, &self.unnumbered(stream_id, None));
        }
        let (state, of_conversation) = stored.unwrap_or_default();
        let assistant = if open.assistant.is_empty() { of_conversation } else { open.assistant.clone() };
        self.add_turn(open, conversation_id, &assistant, starts)?;
        if let Some(message) = &open.message {
            let conversation_id = conversation_id.ok_or_else(|| broken("a message without a conversation"))?;
            self.add_message(conversation_id, open.turn_id, message, open.now, starts)?;
            self.touch(conversation_id, open.now);
        }
        for row in &open.calls {
            self.add_call(row, open.turn_id)?;
        }
        for approval in &open.approvals {
            self.add_approval(open.tenant_id, (conversation_id, open.turn_id), approval, open.now, mutant)?;
        }
        let event_seqs = self.add_events(stream_id, open.turn_id, &open.events, open.now);
        Ok(Opened::Stored { fence, event_seqs, state, assistant })
    }

    fn known(&self, open: &OpenTurn) -> Option<Opened> {
        let entry = open.inbox.as_ref()?;
        let received = self.inbox.get(&(entry.channel.clone(), entry.account.clone(), entry.external_id.clone()))?;
        (received.expires_at > open.now)
            .then(|| Opened::Duplicate { turn_id: received.turn_id, same_body: received.fingerprint == entry.fingerprint })
    }

    fn add_turn(&mut self, open: &OpenTurn, conversation_id: Option<Uuid>, assistant: &str, starts: bool) -> Result<(), StoreError> {
        let status = match (starts, open.kind) {
            (false, _) => TurnStatus::Accepted,
            (true, TurnKind::Invoke | TurnKind::Retry) if !open.calls.is_empty() => TurnStatus::Acting,
            (true, _) => TurnStatus::Planning,
        };
        let row = TurnRow {
            id: open.turn_id,
            tenant_id: open.tenant_id,
            conversation_id,
            user_id: open.user_id.clone(),
            kind: open.kind.as_str().to_owned(),
            assistant: assistant.to_owned(),
            status,
            step: 0,
            takeovers: 0,
            stalled: 0,
            key_id: open.key_id,
            cancel_requested: false,
            error: None,
            error_code: None,
            message: None,
            created_at: open.now,
            updated_at: open.now,
            finished_at: None,
            credential: open.credential.clone(),
            context: open.context.clone(),
            inbound: open.inbound.clone(),
        };
        unique(self.turns.insert(open.turn_id, Arc::new(row)), "turn", open.turn_id)
    }

    pub fn start(&mut self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp, mutant: Mutant) -> Result<Fence, StoreError> {
        let queued = self.turns.get(&turn_id).filter(|turn| turn.status == TurnStatus::Accepted);
        let stream_id = stream_of(queued.ok_or_else(|| moved("turn", turn_id))?);
        if !self.may_start(stream_id) {
            return Err(StoreError::Busy);
        }
        let fence = self.claim(tenant_id, stream_id, owner, now);
        *self.claims.entry(turn_id).or_default() += 1;
        let own = self.messages.values().find(|row| row.turn_id == Some(turn_id) && row.seq.is_none()).map(|row| row.id);
        if mutant != Mutant::CanceledUnnumbered {
            self.number(stream_id, &self.unnumbered(stream_id, own));
        }
        self.number(stream_id, &Vec::from_iter(own));
        self.change_turn(turn_id, |turn| {
            turn.status = TurnStatus::Planning;
            turn.updated_at = now;
        });
        Ok(fence)
    }

    pub fn write(&mut self, write: &TurnWrite, mutant: Mutant) -> Result<Written, StoreError> {
        let (stream_id, now) = (write.fence.stream_id, write.now);
        self.renew(&write.fence, now, mutant != Mutant::FenceUnchecked)?;
        let after_end = self.turns.get(&write.turn_id).is_some_and(|turn| turn.finished_at.is_some());
        let (owner, epoch) = (write.fence.owner.clone(), write.fence.epoch);
        self.writes.push(AcceptedWrite { stream_id, turn_id: write.turn_id, owner, epoch, after_end });
        for message in &write.messages {
            if mutant == Mutant::ResultLost && message.role == "tool" {
                continue;
            }
            let conversation_id = write.conversation_id.ok_or_else(|| broken("a message without a conversation"))?;
            self.add_message(conversation_id, write.turn_id, message, now, true)?;
        }
        for result in write.replacements.iter().filter(|_| mutant != Mutant::PlaceholderStays) {
            self.replace(write.turn_id, result)?;
        }
        if let Some(id) = write.conversation_id.filter(|_| ends_or_waits(write)) {
            self.touch(id, now);
        }
        for row in &write.calls {
            let mut row = row.clone();
            if mutant == Mutant::StartUnrecorded && row.status == CallStatus::Running {
                (row.status, row.attempt) = (CallStatus::Queued, 0);
            }
            self.add_call(&row, write.turn_id)?;
        }
        for approval in &write.approvals {
            self.add_approval(write.fence.tenant_id, (write.conversation_id, write.turn_id), approval, now, mutant)?;
        }
        for call_id in write.withdrawn.iter().filter(|_| mutant != Mutant::ApprovalNotWithdrawn) {
            self.withdraw(*call_id, now);
        }
        for change in &write.starts {
            self.start_call(change, write)?;
        }
        for change in &write.retries {
            self.retry_call(change, write)?;
        }
        for change in &write.provider_updates {
            self.update_provider_call(change, write)?;
        }
        for change in &write.ends {
            self.end_call(change, write)?;
        }
        for usage in write.usage.iter().filter(|_| mutant != Mutant::UsageLost) {
            unique(self.usage.insert(usage.id, (write.turn_id, Arc::new(usage.clone()))), "usage", usage.id)?;
        }
        for (id, tokens) in &write.counted {
            if let Some(row) = self.messages.get_mut(id).filter(|row| Some(row.conversation_id) == write.conversation_id) {
                Arc::make_mut(row).tokens = Some(*tokens);
            }
        }
        if let (Some(summary), Some(id)) = (&write.summary, write.conversation_id) {
            self.summaries.insert(id, summary.clone());
        }
        let events: Vec<NewEvent> = write
            .events
            .iter()
            .enumerate()
            .filter(|(at, event)| !loses(mutant, write, *at, event))
            .map(|(_, event)| event.clone())
            .collect();
        let mut event_seqs = self.add_events(stream_id, write.turn_id, &events, now);
        event_seqs.resize(write.events.len(), 0);
        let state =
            write.conversation_id.filter(|_| !write.state_patches.is_empty()).and_then(|id| self.patch(id, &write.state_patches, now));
        if let Some(change) = &write.turn {
            self.move_turn(write, change, mutant)?;
        } else if write.events.iter().any(|event| event.kind.settles_text()) {
            self.partials.remove(&write.turn_id);
        }
        if let Some(step) = write.abandoned_step {
            if self.turns.get(&write.turn_id).is_none_or(|turn| turn.step >= step || turn.finished_at.is_some()) {
                return Err(moved("turn", write.turn_id));
            }
            self.change_turn(write.turn_id, |turn| (turn.step, turn.updated_at) = (step, now));
        }
        self.check_waiting(write);
        let cancel_requested = self.turns.get(&write.turn_id).is_some_and(|turn| turn.cancel_requested);
        Ok(Written { event_seqs, state, cancel_requested, over_budget: None })
    }

    fn move_turn(&mut self, write: &TurnWrite, change: &TurnChange, mutant: Mutant) -> Result<(), StoreError> {
        let ends = change.status.is_terminal();
        let awaits_approval = change.status == TurnStatus::AwaitingApproval && mutant != Mutant::WaitingKeepsLease;
        if self.turns.get(&write.turn_id).is_none_or(|turn| turn.status.is_terminal()) {
            return Err(moved("turn", write.turn_id));
        }
        let before = self.turns.get(&write.turn_id).map_or(0, |turn| turn.step);
        if change.step < before {
            self.violations.push(format!("turn {} went back from step {before} to {}", short(write.turn_id), change.step));
        }
        self.change_turn(write.turn_id, |turn| {
            turn.status = change.status;
            turn.step = change.step;
            turn.stalled = 0;
            if let Some((error, code)) = change.error.clone() {
                (turn.error, turn.error_code) = (Some(error), Some(code));
            }
            turn.message = change.message.clone().or(turn.message.take());
            turn.updated_at = write.now;
            turn.finished_at = ends.then_some(write.now);
        });
        self.partials.remove(&write.turn_id);
        if ends || awaits_approval {
            self.lease(write.fence.stream_id).owner = None;
        }
        Ok(())
    }

    /// Ends a turn that has not started; returns the number of its last event.
    pub fn cancel_waiting(&mut self, turn_id: Uuid, by: TurnCancellation) -> Option<i64> {
        let stream_id = stream_of(self.turns.get(&turn_id).filter(|turn| turn.status == TurnStatus::Accepted)?);
        self.change_turn(turn_id, |turn| {
            (turn.status, turn.cancel_requested) = (TurnStatus::Canceled, true);
            (turn.error, turn.error_code) = (Some(by.error), Some(by.error_code));
            (turn.updated_at, turn.finished_at) = (by.at, Some(by.at));
        });
        self.add_events(stream_id, turn_id, &[by.event], by.at).first().copied()
    }

    pub fn patch(&mut self, id: Uuid, patches: &[State], now: Timestamp) -> Option<State> {
        let row = Arc::make_mut(self.conversations.get_mut(&id)?);
        for patch in patches {
            merge_state(&mut row.state, patch.clone());
        }
        row.updated_at = now;
        Some(row.state.clone())
    }

    fn touch(&mut self, conversation_id: Uuid, now: Timestamp) {
        if let Some(row) = self.conversations.get_mut(&conversation_id) {
            let row = Arc::make_mut(row);
            row.updated_at = row.updated_at.max(now);
        }
    }

    fn add_message(
        &mut self,
        conversation_id: Uuid,
        turn_id: Uuid,
        new: &NewMessage,
        now: Timestamp,
        numbered: bool,
    ) -> Result<(), StoreError> {
        let answered = |row: &Arc<MessageRow>| row.conversation_id == conversation_id && row.tool_call_id == new.tool_call_id;
        if new.tool_call_id.is_some() && self.messages.values().any(answered) {
            return Err(broken("UNIQUE constraint failed: messages.tool_call_id"));
        }
        let seq = numbered.then(|| {
            let lease = self.lease(conversation_id);
            lease.next_message += 1;
            lease.next_message - 1
        });
        let row = MessageRow {
            id: new.id,
            conversation_id,
            created_at: now,
            content: new.content.clone(),
            role: new.role.to_owned(),
            tool_calls: new.tool_calls.clone(),
            tool_call_id: new.tool_call_id.clone(),
            tool_name: new.tool_name.clone(),
            status: new.status.map(str::to_owned),
            metadata: new.metadata.clone().unwrap_or_else(|| "{}".to_owned()),
            seq,
            turn_id: Some(turn_id),
            tokens: new.tokens,
        };
        unique(self.messages.insert(new.id, Arc::new(row)), "message", new.id)
    }

    fn add_call(&mut self, row: &CallRow, turn_id: Uuid) -> Result<(), StoreError> {
        let position = |call: &CallRow| (call.turn_id, call.step, call.output_index);
        if row.turn_id != turn_id || self.calls.values().any(|call| position(call) == position(row)) {
            return Err(broken("a call at the position of another one"));
        }
        unique(self.calls.insert(row.id, Arc::new(row.clone())), "call", row.id)
    }

    /// The call, if it belongs to the turn and is in the expected state.
    fn call_at(&mut self, id: Uuid, turn_id: Uuid, expected: impl Fn(&CallRow) -> bool) -> Result<&mut CallRow, StoreError> {
        let call = self.calls.get_mut(&id).filter(|call| call.turn_id == turn_id && expected(call));
        call.map(Arc::make_mut).ok_or_else(|| moved("call", id))
    }

    fn start_call(&mut self, start: &CallStart, write: &TurnWrite) -> Result<(), StoreError> {
        let row = self.call_at(start.id, write.turn_id, |call| call.status == CallStatus::Queued)?;
        (row.status, row.attempt) = (CallStatus::Running, 1);
        (row.started_at, row.updated_at) = (Some(start.started_at), write.now);
        // A call that had joined another one and now runs itself has no key yet.
        row.dedupe_of = None;
        row.idempotency_key.get_or_insert_with(|| start.id.to_string());
        Ok(())
    }

    fn retry_call(&mut self, retry: &CallRetry, write: &TurnWrite) -> Result<(), StoreError> {
        let running = |call: &CallRow| call.status == CallStatus::Running && call.attempt == retry.attempt;
        let row = self.call_at(retry.id, write.turn_id, running)?;
        row.attempt += 1;
        (row.started_at, row.updated_at) = (Some(retry.next_started_at), write.now);
        let attempt = AttemptRow {
            attempt: retry.attempt,
            started_at: retry.started_at,
            finished_at: retry.finished_at,
            status: retry.status,
            error: retry.error.clone(),
        };
        unique(self.attempts.insert((retry.id, retry.attempt), Arc::new(attempt)), "attempt", retry.id)
    }

    fn update_provider_call(&mut self, update: &ProviderCallUpdate, write: &TurnWrite) -> Result<(), StoreError> {
        let row = self.call_at(update.id, write.turn_id, |call| call.status == CallStatus::Running)?;
        row.tool_name.clone_from(&update.tool_name);
        row.response_id = update.response_id.clone().or(row.response_id.take());
        row.item_id = update.item_id.clone().or(row.item_id.take());
        row.call_id = update.call_id.clone().or(row.call_id.take());
        row.request = update.request.clone().or(row.request.take());
        row.raw_arguments = update.raw_arguments.clone().or(row.raw_arguments.take());
        row.updated_at = write.now;
        Ok(())
    }

    fn end_call(&mut self, end: &CallEnd, write: &TurnWrite) -> Result<(), StoreError> {
        if !end.status.is_terminal() {
            return Err(broken(format!("call {} cannot end as {}", end.id, end.status)));
        }
        let row = self.call_at(end.id, write.turn_id, |call| !call.status.is_terminal())?;
        row.status = end.status;
        row.response.clone_from(&end.response);
        row.meta.clone_from(&end.meta);
        row.error.clone_from(&end.error);
        row.error_type.clone_from(&end.error_type);
        row.error_code.clone_from(&end.error_code);
        row.error_detail.clone_from(&end.error_detail);
        row.permission = end.permission.clone().or(row.permission.take());
        row.cache_hit = end.cache_hit;
        (row.finished_at, row.updated_at) = (Some(end.finished_at), write.now);
        Ok(())
    }

    fn add_events(&mut self, stream_id: Uuid, turn_id: Uuid, events: &[NewEvent], now: Timestamp) -> Vec<i64> {
        let mut seqs = Vec::with_capacity(events.len());
        for event in events {
            let lease = self.lease(stream_id);
            let seq = lease.next_event;
            lease.next_event += 1;
            let row = EventRow { seq, kind: event.kind, turn_id: Some(turn_id), data: event.data.clone(), created_at: now };
            self.events.insert((stream_id, seq), Arc::new(row));
            seqs.push(seq);
        }
        seqs
    }
}

fn loses(mutant: Mutant, write: &TurnWrite, at: usize, event: &NewEvent) -> bool {
    match mutant {
        Mutant::EventLost => at == 0 && write.events.len() > 1,
        Mutant::ApprovalNotAnnounced => event.kind == EventType::ApprovalRequired,
        _ => false,
    }
}

fn unique<T>(before: Option<T>, what: &str, id: Uuid) -> Result<(), StoreError> {
    before.map_or(Ok(()), |_| Err(broken(format!("UNIQUE constraint failed: {what} {id}"))))
}

fn ends_or_waits(write: &TurnWrite) -> bool {
    write.turn.as_ref().is_some_and(|change| change.status.is_terminal() || change.status == TurnStatus::AwaitingApproval)
}
