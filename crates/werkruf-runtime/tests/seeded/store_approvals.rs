//! The `Approvals` and `Streams` parts of the store of one process.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{ApprovalStatus, Uuid};
use werkruf_store::{
    ApprovalFilter, ApprovalRow, Approvals, Decision, DecisionOutcome, EventRow, NewPartial, Page, PartialText, ReadLimit, StoreError,
    StoreFuture, Streams,
};

use crate::mutant::Mutant;
use crate::store::Store;
use crate::trace::short;

impl Approvals for Store {
    fn approval(&self, _: Uuid, id: Uuid) -> StoreFuture<'_, Option<ApprovalRow>> {
        Box::pin(self.read("approval", move |tables| tables.approvals.get(&id).map(|row| (**row).clone())))
    }

    fn approvals(&self, _: Uuid, filter: ApprovalFilter, page: Page) -> StoreFuture<'_, Vec<ApprovalRow>> {
        let ignored = self.world.mutant == Mutant::DecisionIgnored && filter.turn_id.is_some();
        Box::pin(self.read("approvals", move |tables| {
            let mut found = tables.list_approvals(&filter, page);
            for row in found.iter_mut().filter(|row| ignored && row.status != ApprovalStatus::Pending) {
                row.status = ApprovalStatus::Approved;
            }
            found
        }))
    }

    fn decide(&self, _: Uuid, id: Uuid, decision: Decision) -> StoreFuture<'_, Option<DecisionOutcome>> {
        self.submit(format!("decide {} {}", short(id), decision.status), move |tables, mutant| Ok(tables.decide(id, &decision, mutant)))
    }

    fn expire_approvals(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            if !self.read("overdue approvals", move |tables| tables.overdue(now)).await? {
                return Ok(0);
            }
            self.submit("expire".to_owned(), move |tables, _| Ok(tables.expire(now))).await
        })
    }
}

impl Store {
    /// Saves partial texts without delay and without comparing them with the sent text.
    pub fn save_partials_now(&self, partials: &[NewPartial], now: Timestamp) -> Result<usize, StoreError> {
        self.world.transaction(|tables| Ok(partials.iter().filter(|partial| tables.save_partial(partial, now, Mutant::None)).count()))
    }
}

impl Streams for Store {
    fn events(&self, _: Uuid, stream_id: Uuid, turn_id: Option<Uuid>, after: i64, limit: ReadLimit) -> StoreFuture<'_, Vec<EventRow>> {
        Box::pin(self.read("events", move |tables| tables.events_after(stream_id, turn_id, after, limit)))
    }

    fn first_event(&self, _: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64> {
        Box::pin(self.read("first event", move |tables| tables.first_event(stream_id)))
    }

    fn partial(&self, _: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>> {
        Box::pin(self.read("partial", move |tables| tables.partial(stream_id)))
    }

    /// Checks that a checkpoint is text that was sent and is in no row: a client that reconnects must not receive text that was reset.
    fn save_partials(&self, partials: Vec<NewPartial>, now: Timestamp) -> StoreFuture<'_, usize> {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        self.submit(format!("checkpoint {} texts", partials.len()), move |tables, mutant| {
            let mut saved = 0;
            for partial in &partials {
                if !tables.save_partial(partial, now, mutant) {
                    continue;
                }
                saved += 1;
                world.count("texts checkpointed");
                let message = tables.message_of(partial.turn_id).unwrap_or_default();
                let observed = world.observed.lock().unwrap();
                let shown = observed.texts.get(&(process.name.clone(), message)).map(String::as_str).unwrap_or_default();
                // The text of a tool that answers directly is sent at once, as that of any tool where the turn needs no model.
                let needs_no_model = tables.turns.get(&partial.turn_id).is_some_and(|turn| turn.inbound.is_some());
                if !shown.starts_with(&partial.content) && !partial.content.starts_with("echo ") && !needs_no_model {
                    let violation =
                        format!("{:?} was checkpointed for turn {}, where {shown:?} was sent", partial.content, short(partial.turn_id));
                    tables.violations.push(violation);
                }
            }
            Ok(saved)
        })
    }
}
