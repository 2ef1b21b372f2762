//! Streams that turns of other processes write, told to those who listen here.
//!
//! Invariants: one look per tenant and round over everything that is watched, and only what has moved is read; a text under way is
//! read before the rows, and shown only where no row that was read since makes it void.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::{TurnStatus, Uuid};
use werkruf_store::{EventRow, ReadLimit, StoreError, StreamPosition};

use crate::course::{Found, Pace};
use crate::hub::LiveEvent;
use crate::replay::complete_event;
use crate::runtime::{House, Runtime};
use crate::stir::LOOK;

const BITE: ReadLimit = ReadLimit { rows: 256, bytes: 64 * 1024 };
/// Between two looks, however often somebody knocks.
const PAUSE: Duration = Duration::from_millis(50);

impl Runtime {
    /// Tells what others write, until the house closes.
    pub(crate) async fn follow_others(&self) {
        let house = &self.house;
        let mut stirred = house.stir.listen();
        loop {
            tokio::select! {
                biased;
                () = house.tasks.wait() => return,
                () = house.hub.behind.notified() => {}
                () = stirred.within(LOOK) => {}
            }
            if let Err(error) = house.follow_once().await {
                tracing::warn!(%error, "streams of other processes could not be read; trying again");
                tokio::time::sleep(LOOK).await;
                continue;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl House {
    async fn follow_once(&self) -> Result<(), StoreError> {
        let paces = self.hub.to_follow(&self.at_work());
        let mut by_tenant: BTreeMap<Uuid, Vec<Pace>> = BTreeMap::new();
        for pace in paces {
            by_tenant.entry(pace.stream.tenant_id).or_default().push(pace);
        }
        for (tenant_id, paces) in by_tenant {
            let streams = paces.iter().map(|pace| pace.stream.stream_id).collect();
            let found = self.parts.cluster.stream_positions(tenant_id, streams).await?;
            let found: BTreeMap<Uuid, StreamPosition> = found.into_iter().map(|position| (position.stream_id, position)).collect();
            for pace in paces {
                let position = found.get(&pace.stream.stream_id);
                let mark = position.and_then(|position| position.partial.clone()).filter(|_| !pace.writing);
                let moved = position.is_some_and(|position| position.next_event_seq > pace.told + 1);
                if moved || pace.behind || (mark.is_some() && mark != pace.partial) {
                    self.catch_up(&pace, mark).await?;
                }
            }
        }
        Ok(())
    }

    /// The turns that work here under a lease.
    fn at_work(&self) -> BTreeSet<Uuid> {
        self.lives().into_iter().filter(|(_, live)| live.hold.is_held()).map(|(turn_id, _)| turn_id).collect()
    }

    async fn catch_up(&self, pace: &Pace, mark: Option<String>) -> Result<(), StoreError> {
        let (tenant_id, stream_id) = (pace.stream.tenant_id, pace.stream.stream_id);
        let mut parted = Vec::new();
        for turn_id in &pace.turns {
            // Looked at before the rows: what a turn says on its way to wait is then among them.
            let turn = self.parts.records.turn(tenant_id, *turn_id).await?;
            if turn.is_none_or(|turn| turn.status == TurnStatus::AwaitingApproval) {
                parted.push(*turn_id);
            }
        }
        let partial = match mark.filter(|mark| pace.partial.as_ref() != Some(mark)) {
            Some(mark) => Some((mark, self.parts.streams.partial(tenant_id, stream_id).await?)),
            None => None,
        };
        let (mut up_to, mut settled) = (pace.told, false);
        loop {
            let rows = self.parts.streams.read_events(tenant_id, stream_id, up_to, BITE).await?;
            for row in &rows {
                if row.seq != up_to + 1 {
                    self.hub.skip(stream_id, row.seq - 1);
                }
                up_to = row.seq;
                settled |= row.kind.settles_text();
                let data = Arc::from(complete_event(&*self.parts.records, tenant_id, stream_id, row).await?);
                let turn_id = row.turn_id.unwrap_or_default();
                self.hub.tell_row(stream_id, &LiveEvent { seq: Some(row.seq), kind: row.kind, turn_id, data });
            }
            if !is_full(&rows) {
                break;
            }
        }
        self.hub.caught_up(stream_id, Found { up_to, moved: up_to > pace.told, partial: partial.filter(|_| !settled), parted });
        Ok(())
    }
}

fn is_full(rows: &[EventRow]) -> bool {
    rows.len() >= BITE.rows as usize || rows.iter().map(|row| row.data.len()).sum::<usize>() >= BITE.bytes
}
