//! The `Outbox` part of the store: the seeded runs have no channels.

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_store::{Claim, Claimed, ContactRow, DueAccount, Outbox, OutboxFilter, OutboxRow, Page, Settlement, StoreFuture};

use crate::store::{Store, not_simulated};

impl Outbox for Store {
    fn contacts_of(&self, _: Uuid, _: String, _: Vec<String>) -> StoreFuture<'_, Vec<ContactRow>> {
        not_simulated()
    }
    fn claim(&self, _: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        not_simulated()
    }
    fn due(&self) -> StoreFuture<'_, Vec<DueAccount>> {
        not_simulated()
    }
    fn adopt(&self, _: String, _: Timestamp, _: Timestamp) -> StoreFuture<'_, u64> {
        not_simulated()
    }
    fn settle(&self, _: Settlement) -> StoreFuture<'_, bool> {
        not_simulated()
    }
    fn outbox(&self, _: Uuid, _: OutboxFilter, _: Page) -> StoreFuture<'_, Vec<OutboxRow>> {
        not_simulated()
    }
}
