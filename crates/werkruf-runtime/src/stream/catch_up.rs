//! Rows of the store on their way to subscribers that are behind or that follow a turn of another process.

use std::collections::BTreeSet;

use werkruf_contract::Uuid;
use werkruf_store::{PartialText, StreamKey};

use super::broadcast::{Audience, Broadcast, Subscriber};
use super::cursor::{settles, snapshot, whole_text};
use super::event::{LiveEvent, PartialAnswer};

/// A stream with subscribers here that another process may write to.
pub(super) struct WatchedStream {
    pub(super) stream: StreamKey,
    pub(super) delivered: i64,
    pub(super) behind: bool,
    pub(super) partial_mark: Option<String>,
    /// Its text is being written by this process.
    pub(super) written_here: bool,
    /// Turns that have subscribers here and do not run here.
    pub(super) remote_turns: BTreeSet<Uuid>,
    /// Whether somebody here reads what another process may write.
    pub(super) has_readers: bool,
}

/// What was read of a stream.
pub(super) struct RemoteRead {
    /// The last row that was read.
    pub(super) up_to: i64,
    /// Whether any row was read. Subscribers may have taken their partial text for settled by it.
    pub(super) moved: bool,
    /// The partial text and its mark, only where no row that was read makes it void.
    pub(super) partial: Option<(String, Option<PartialText>)>,
    /// Turns that wait for an approval: subscribers who saw them at work have everything for now.
    pub(super) waiting: Vec<Uuid>,
}

impl Broadcast {
    /// The streams to read. The events of a turn that runs here arrive without reading, except for subscribers of the whole conversation.
    pub(super) fn watched_streams(&self, here: &BTreeSet<Uuid>) -> Vec<WatchedStream> {
        let mut streams = self.lock();
        let mut found = Vec::new();
        for (stream_id, audience) in &mut streams.audiences {
            audience.remove_closed();
            let Some(cursor) = &audience.cursor else { continue };
            let turns = audience.subscribers.iter().filter_map(|subscriber| subscriber.options.turn_id);
            let remote_turns: BTreeSet<Uuid> = turns.filter(|turn| !here.contains(turn)).collect();
            let lacks_saved = |subscriber: &Subscriber| !subscriber.has_saved && subscriber.options.after <= cursor.delivered;
            let whole = audience.subscribers.iter().any(|subscriber| subscriber.options.turn_id.is_none());
            if cursor.behind || whole || !remote_turns.is_empty() {
                found.push(WatchedStream {
                    stream: StreamKey { tenant_id: cursor.tenant_id, stream_id: *stream_id },
                    delivered: cursor.delivered,
                    behind: cursor.behind,
                    partial_mark: cursor.partial_mark.clone().filter(|_| !audience.subscribers.iter().any(lacks_saved)),
                    written_here: false,
                    has_readers: whole || !remote_turns.is_empty(),
                    remote_turns,
                });
            }
        }
        for watched in &mut found {
            watched.written_here = streams.texts.contains_key(&watched.stream.stream_id);
        }
        streams.audiences.retain(|_, audience| !audience.subscribers.is_empty());
        found
    }

    /// Notes which of these turns are at work. True if a subscriber saw a turn at work that waits now: its subscription ends when it has all rows.
    /// A turn begins to wait without an event.
    pub(super) fn ends_at_wait(&self, stream_id: Uuid, turns: &BTreeSet<Uuid>, waiting: &[Uuid]) -> bool {
        let mut streams = self.lock();
        let Some(audience) = streams.audiences.get_mut(&stream_id) else { return false };
        let mut ends = false;
        for subscriber in &mut audience.subscribers {
            let Some(turn_id) = subscriber.options.turn_id.filter(|turn_id| turns.contains(turn_id)) else { continue };
            let waits = waiting.contains(&turn_id);
            ends |= waits && subscriber.saw_work;
            subscriber.saw_work |= !waits;
        }
        ends
    }

    /// Delivers the next row of a stream; rows that were delivered before are left out.
    pub(super) fn deliver_row(&self, stream_id: Uuid, event: &LiveEvent) {
        let mut streams = self.lock();
        let own = streams.texts.get(&stream_id).filter(|live| live.text.turn_id == event.turn_id).map(|live| live.text.without_text());
        let Some(cursor) = streams.cursor(stream_id) else { return };
        if event.seq != Some(cursor.delivered + 1) {
            return;
        }
        cursor.delivered += 1;
        let unsettled = cursor.partial.take_if(|partial| settles(partial, event));
        // The row may be read before the turn that wrote it publishes it here. Text that came while subscribers were behind was not sent.
        let partial = own.filter(|_| cursor.behind && event.kind.settles_text()).or(unsettled);
        if let Some(whole) = partial.and_then(|partial| whole_text(&partial, event)) {
            streams.send(stream_id, &whole);
        }
        streams.send(stream_id, event);
    }

    /// Every row up to `read.up_to` was delivered.
    pub(super) fn caught_up(&self, stream_id: Uuid, read: RemoteRead) {
        let mut streams = self.lock();
        let own = streams.texts.get(&stream_id).map(|live| live.text.answer());
        let Some(audience) = streams.audiences.get_mut(&stream_id) else { return };
        let Some(cursor) = audience.cursor.as_mut().filter(|cursor| cursor.delivered >= read.up_to.max(cursor.known)) else { return };
        let was_behind = std::mem::replace(&mut cursor.behind, false);
        // A row that this process delivered meanwhile may have discarded the text. Its mark is not noted, so it is read again.
        let saved = read.partial.filter(|_| cursor.delivered == read.up_to);
        if let Some(own) = own.as_ref().filter(|_| was_behind || read.moved) {
            cursor.partial = Some(own.clone());
        }
        audience.subscribers.retain(|subscriber| {
            let waits = subscriber.options.turn_id.is_some_and(|turn_id| read.waiting.contains(&turn_id));
            !(waits && subscriber.saw_work)
        });
        match (own, saved) {
            (Some(own), _) if was_behind || read.moved => streams.send(stream_id, &snapshot(own)),
            (None, Some((mark, text))) => {
                audience.send_saved(mark, text.map(PartialAnswer::from), read.up_to);
                streams.remove_empty(stream_id);
            }
            (Some(_), _) | (None, None) => {}
        }
    }

    /// Rows up to this one were deleted. Subscribers of the conversation are disconnected; they return and learn where the log starts. The
    /// rows of a running turn are never deleted, so subscribers of one turn miss nothing.
    pub(super) fn skip_deleted(&self, stream_id: Uuid, up_to: i64) {
        let mut streams = self.lock();
        let Some(audience) = streams.audiences.get_mut(&stream_id) else { return };
        audience.subscribers.retain(|subscriber| subscriber.options.turn_id.is_some() || subscriber.options.after >= up_to);
        if let Some(cursor) = audience.cursor.as_mut() {
            cursor.delivered = cursor.delivered.max(up_to);
        }
    }
}

impl Audience {
    /// Sends a saved text to the subscribers who lack it. Who has a row that was not read yet waits, because that row may have discarded the text.
    fn send_saved(&mut self, mark: String, partial: Option<PartialAnswer>, up_to: i64) {
        let Some(cursor) = &mut self.cursor else { return };
        let is_new = cursor.partial_mark.as_ref() != Some(&mark);
        cursor.partial_mark = Some(mark);
        if partial.is_some() {
            cursor.partial.clone_from(&partial);
        }
        let event = partial.map(snapshot);
        self.subscribers.retain_mut(|subscriber| {
            subscriber.has_saved &= !is_new;
            if subscriber.has_saved || subscriber.options.after > up_to {
                return true;
            }
            subscriber.has_saved = true;
            event.as_ref().is_none_or(|event| subscriber.take(event, true))
        });
    }
}

#[cfg(test)]
#[path = "catch_up_tests.rs"]
mod tests;
