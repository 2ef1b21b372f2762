//! Delivers events that other processes wrote to the subscribers of this one.
//!
//! Invariants: one query per tenant and round covers every watched stream. Rows are read only of streams that moved, or of which a turn began
//! to wait. Partial text is read before the rows, and is sent only where no row read after it makes it void.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use werkruf_contract::Uuid;
use werkruf_store::{Cluster, ReadLimit, Records, StoreError, StreamPosition, Streams};

use super::broadcast::Broadcast;
use super::catch_up::{RemoteRead, WatchedStream};
use super::event::LiveEvent;
use crate::lease::{POLL, RunningTurns, Wakeup};
use crate::stored::complete_event;
use crate::timer;

const READ_LIMIT: ReadLimit = ReadLimit { rows: 256, bytes: 64 * 1024 };
/// Marks of readers are written this often. With the longest time between two looks this is shorter than a mark is valid.
const MARK_EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two looks, however many notifications arrive.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct RemoteStreams<'a> {
    pub(crate) cluster: &'a dyn Cluster,
    pub(crate) records: &'a dyn Records,
    pub(crate) streams: &'a dyn Streams,
    pub(crate) broadcast: &'a Broadcast,
    pub(crate) running: &'a RunningTurns,
    pub(crate) wakeup: &'a Wakeup,
    pub(crate) tasks: &'a TaskTracker,
}

impl RemoteStreams<'_> {
    /// Delivers until the last turn of a draining process has ended.
    pub(crate) async fn run(&self) {
        let mut wakeups = self.wakeup.listen();
        let mut next_mark = timer::now();
        loop {
            tokio::select! {
                biased;
                () = self.tasks.wait() => return,
                () = self.broadcast.behind() => {}
                () = wakeups.within(POLL) => {}
            }
            let marks = timer::now() >= next_mark;
            if marks {
                next_mark = timer::now() + MARK_EVERY;
            }
            if let Err(error) = self.round(marks).await {
                tracing::warn!(%error, "streams of other processes could not be read; trying again");
                tokio::time::sleep(POLL).await;
                continue;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// `marks`: the other processes are told which streams have readers here.
    async fn round(&self, marks: bool) -> Result<(), StoreError> {
        let mut by_tenant: BTreeMap<Uuid, Vec<WatchedStream>> = BTreeMap::new();
        for watched in self.broadcast.watched_streams(&self.leased_turns()) {
            by_tenant.entry(watched.stream.tenant_id).or_default().push(watched);
        }
        for (tenant_id, watched) in by_tenant {
            let read: Vec<Uuid> = watched.iter().filter(|watched| watched.has_readers).map(|watched| watched.stream.stream_id).collect();
            if marks && !read.is_empty() {
                self.cluster.mark_read(tenant_id, read).await?;
            }
            let ids = watched.iter().map(|watched| watched.stream.stream_id).collect();
            let turns = watched.iter().flat_map(|watched| watched.remote_turns.iter().copied()).collect();
            // Read before the rows: what a turn wrote before it started to wait is then among them.
            let positions = self.cluster.stream_positions(tenant_id, ids, turns).await?;
            let mut positions: BTreeMap<Uuid, StreamPosition> =
                positions.into_iter().map(|position| (position.stream_id, position)).collect();
            for watched in watched {
                let stream_id = watched.stream.stream_id;
                let Some(position) = positions.remove(&stream_id) else {
                    self.disconnect_deleted(&watched).await?;
                    continue;
                };
                let StreamPosition { next_event_seq, partial, waiting, .. } = position;
                let mark = partial.filter(|_| !watched.written_here);
                let moved = next_event_seq > watched.delivered.saturating_add(1);
                let waits = self.broadcast.ends_at_wait(stream_id, &watched.remote_turns, &waiting);
                if moved || waits || watched.behind || (mark.is_some() && mark != watched.partial_mark) {
                    self.read(&watched, mark, waiting).await?;
                }
            }
        }
        Ok(())
    }

    /// The turns that run here under a lease.
    fn leased_turns(&self) -> BTreeSet<Uuid> {
        self.running.all().into_iter().filter(|(_, turn)| turn.lease().is_held()).map(|(turn_id, _)| turn_id).collect()
    }

    /// Ends the subscriptions of turns that do not exist any more.
    async fn disconnect_deleted(&self, watched: &WatchedStream) -> Result<(), StoreError> {
        for turn_id in &watched.remote_turns {
            if self.records.turn(watched.stream.tenant_id, *turn_id).await?.is_none() {
                self.broadcast.disconnect_turn(watched.stream.stream_id, *turn_id);
            }
        }
        Ok(())
    }

    async fn read(&self, watched: &WatchedStream, mark: Option<String>, waiting: Vec<Uuid>) -> Result<(), StoreError> {
        let (tenant_id, stream_id) = (watched.stream.tenant_id, watched.stream.stream_id);
        let partial = match mark.filter(|mark| watched.partial_mark.as_ref() != Some(mark)) {
            Some(mark) => Some((mark, self.streams.partial(tenant_id, stream_id).await?)),
            None => None,
        };
        let (mut up_to, mut settled) = (watched.delivered, false);
        loop {
            let rows = self.streams.events(tenant_id, stream_id, None, up_to, READ_LIMIT).await?;
            for row in &rows {
                if row.seq != up_to + 1 {
                    self.broadcast.skip_deleted(stream_id, row.seq - 1);
                }
                up_to = row.seq;
                settled |= row.kind.settles_text();
                let data = Arc::from(complete_event(self.records, tenant_id, stream_id, row).await?);
                let turn_id = row.turn_id.unwrap_or_default();
                let event = LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id, data, at: Some(row.created_at) };
                self.broadcast.deliver_row(stream_id, &event);
            }
            if !READ_LIMIT.is_reached_by(&rows) {
                break;
            }
        }
        let read = RemoteRead { up_to, moved: up_to > watched.delivered, partial: partial.filter(|_| !settled), waiting };
        self.broadcast.caught_up(stream_id, read);
        Ok(())
    }
}
