//! The store of one process, where it is about people's words and about texts under way.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Uuid};
use werkruf_store::{
    ApprovalFilter, ApprovalRow, Approvals, DecisionOutcome, DeletedEvents, EventRow, NewPartial, Page, PartialText, ReadLimit, StoreError,
    StoreFuture, StreamKey, Streams,
};

use crate::mutant::Mutant;
use crate::store::{Store, nobody_asks};
use crate::trace::short;

impl Approvals for Store {
    fn approval(&self, _: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>> {
        Box::pin(self.read("approval", move |tables| tables.approvals.get(&id).map(|row| (**row).clone())))
    }

    fn approvals(&self, _: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>> {
        let deaf = self.world.mutant == Mutant::WordIgnored && filter.turn_id.is_some();
        Box::pin(self.read("approvals", move |tables| {
            let mut found = tables.list_approvals(&filter, page);
            for row in found.iter_mut().filter(|row| deaf && row.status != ApprovalStatus::Pending) {
                row.status = ApprovalStatus::Approved;
            }
            found
        }))
    }

    fn decide(&self, _: Uuid, id: Uuid, status: ApprovalStatus, by: String, now: Timestamp) -> StoreFuture<'_, Option<DecisionOutcome>> {
        self.submit(format!("decide {} {status}", short(id)), move |tables, mutant| Ok(tables.decide(id, status, &by, now, mutant)))
    }

    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            if !self.read("overdue approvals", move |tables| tables.overdue(now)).await? {
                return Ok(0);
            }
            self.submit("expire".to_owned(), move |tables, _| Ok(tables.expire(now))).await
        })
    }

    fn approval_ids_with_prefix(&self, _: Uuid, _: String) -> StoreFuture<'_, Vec<Uuid>> {
        nobody_asks()
    }
}

impl Store {
    /// Without the way there and the look at what was shown.
    pub fn keep(&self, partials: &[NewPartial], now: Timestamp) -> Result<usize, StoreError> {
        self.world.transaction(|tables| Ok(partials.iter().filter(|partial| tables.keep_partial(partial, now, Mutant::None)).count()))
    }
}

impl Streams for Store {
    fn read_events(&self, _: Uuid, stream_id: Uuid, after: i64, bite: ReadLimit) -> StoreFuture<'_, Vec<EventRow>> {
        Box::pin(self.read("bite", move |tables| tables.read_events(stream_id, after, bite)))
    }

    fn first_event(&self, _: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64> {
        Box::pin(self.read("first event", move |tables| tables.first_event(stream_id)))
    }

    fn partial(&self, _: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>> {
        Box::pin(self.read("partial", move |tables| tables.partial(stream_id)))
    }

    /// What is kept is what was shown and is in no row: somebody who comes back sees no text that was taken back.
    fn save_partials(&self, partials: Vec<NewPartial>, now: Timestamp) -> StoreFuture<'_, usize> {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        self.submit(format!("keep {} texts", partials.len()), move |tables, mutant| {
            let mut kept = 0;
            for partial in &partials {
                if !tables.keep_partial(partial, now, mutant) {
                    continue;
                }
                kept += 1;
                world.count("texts kept");
                let message = tables.message_of(partial.turn_id).unwrap_or_default();
                let ledger = world.ledger.lock().unwrap();
                let shown = ledger.texts.get(&(process.name.clone(), message)).map(String::as_str).unwrap_or_default();
                // A tool that answers for itself says its text at once.
                if !shown.starts_with(&partial.content) && !partial.content.starts_with("said ") {
                    let fault = format!("{:?} was kept of turn {}, where {shown:?} was shown", partial.content, short(partial.turn_id));
                    tables.faults.push(fault);
                }
            }
            Ok(kept)
        })
    }

    fn delete_events(&self, _: Timestamp, _: Option<StreamKey>) -> StoreFuture<'_, DeletedEvents> {
        nobody_asks()
    }
}
