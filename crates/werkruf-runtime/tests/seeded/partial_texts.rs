//! Partial texts, event reads and message numbers in the tables.

use werkruf_contract::Uuid;
use werkruf_store::{EventRow, Fence, NewPartial, PartialText, ReadLimit};

use crate::mutant::Mutant;
use crate::tables::Tables;

/// The number of turns that the SQLite store searches for a partial text.
const NEWEST: usize = 64;

impl Tables {
    fn owns(&self, fence: &Fence) -> bool {
        let lease = self.leases.get(&fence.stream_id);
        lease.is_some_and(|lease| lease.owner.as_deref() == Some(&fence.owner) && lease.epoch == fence.epoch)
    }

    /// False if the lease or the step has changed.
    pub fn save_partial(&mut self, partial: &NewPartial, now: jiff::Timestamp, mutant: Mutant) -> bool {
        if mutant == Mutant::StaleTextStored {
            self.partials.insert(partial.turn_id, partial.content.clone());
            return true;
        }
        if !self.owns(&partial.fence) || self.renew(&partial.fence, now, true).is_err() {
            return false;
        }
        let open = self.turns.get(&partial.turn_id).is_some_and(|turn| turn.step + 1 == partial.step && turn.finished_at.is_none());
        if open {
            self.partials.insert(partial.turn_id, partial.content.clone());
        }
        open
    }

    pub fn partial(&self, stream_id: Uuid) -> Option<PartialText> {
        let newest = self.turns.values().rev().filter(|turn| turn.conversation_id == Some(stream_id)).take(NEWEST);
        let mut open = newest.filter(|turn| turn.finished_at.is_none());
        open.find_map(|turn| {
            let content = self.partials.get(&turn.id)?.clone();
            Some(PartialText { turn_id: turn.id, step: turn.step + 1, content })
        })
    }

    pub fn events_after(&self, stream_id: Uuid, turn_id: Option<Uuid>, after: i64, limit: ReadLimit) -> Vec<EventRow> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let later = self.events.range((stream_id, after + 1)..=(stream_id, i64::MAX)).map(|(_, row)| row);
        let wanted = later.filter(|row| turn_id.is_none() || row.turn_id == turn_id);
        for row in wanted.take(usize::try_from(limit.rows).unwrap()) {
            bytes += row.data.len();
            found.push((**row).clone());
            if bytes >= limit.bytes {
                break;
            }
        }
        found
    }

    pub fn first_event(&self, stream_id: Uuid) -> i64 {
        let first = self.events.range((stream_id, 0)..=(stream_id, i64::MAX)).next().map(|((_, seq), _)| *seq);
        first.or_else(|| self.leases.get(&stream_id).map(|lease| lease.next_event)).unwrap_or(1)
    }

    /// Messages without a number whose turn has ended, oldest first; only those before `own`.
    pub fn unnumbered(&self, stream_id: Uuid, own: Option<Uuid>) -> Vec<Uuid> {
        let over = |turn_id: Option<Uuid>| turn_id.and_then(|id| self.turns.get(&id)).is_some_and(|turn| turn.finished_at.is_some());
        let rows = self.messages.values().filter(|row| row.conversation_id == stream_id && row.seq.is_none() && over(row.turn_id));
        rows.map(|row| row.id).filter(|id| own.is_none_or(|own| *id < own)).collect()
    }

    /// Gives these messages the next numbers of the conversation.
    pub fn number(&mut self, stream_id: Uuid, messages: &[Uuid]) {
        for id in messages {
            let lease = self.lease(stream_id);
            let seq = lease.next_message;
            lease.next_message += 1;
            if let Some(message) = self.messages.get_mut(id) {
                std::sync::Arc::make_mut(message).seq = Some(seq);
            }
        }
    }

    /// Whether a user message was written after this time.
    pub fn message_since(&self, conversation_id: Uuid, since: jiff::Timestamp) -> bool {
        let mut messages = self.messages.values().filter(|row| row.conversation_id == conversation_id && row.role == "user");
        messages.any(|row| row.created_at > since)
    }

    /// The turn of a user message.
    pub fn turn_of(&self, message: &str) -> Option<Uuid> {
        self.messages.values().find(|row| row.role == "user" && row.content == message).and_then(|row| row.turn_id)
    }

    /// The user message of a turn.
    pub fn message_of(&self, turn_id: Uuid) -> Option<String> {
        let message = self.messages.values().find(|row| row.turn_id == Some(turn_id) && row.role == "user");
        message.map(|row| row.content.clone())
    }
}
