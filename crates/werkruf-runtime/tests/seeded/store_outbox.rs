//! The `Outbox` part of the store: the seeded runs have no channels.

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_store::{
    Author, Claim, Claimed, ContactRow, DeliveryReport, DueAccount, NewContact, Outbox, OutboxRow, OutboxStatus, Page, RecordedInbound,
    Settlement, StoreFuture,
};

use crate::store::{Store, not_simulated};

impl Outbox for Store {
    fn record_inbound(&self, _: RecordedInbound) -> StoreFuture<'_, bool> {
        not_simulated()
    }
    fn contact(&self, _: NewContact) -> StoreFuture<'_, Uuid> {
        not_simulated()
    }
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
    fn report(&self, _: DeliveryReport) -> StoreFuture<'_, Option<OutboxRow>> {
        not_simulated()
    }
    fn outbox(&self, _: Uuid, _: Option<OutboxStatus>, _: Page) -> StoreFuture<'_, Vec<OutboxRow>> {
        not_simulated()
    }
    fn outbox_row(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Option<OutboxRow>> {
        not_simulated()
    }
    fn outbox_row_sent_as(&self, _: Uuid, _: String, _: String, _: String) -> StoreFuture<'_, Option<OutboxRow>> {
        not_simulated()
    }
    fn approval_row(&self, _: Uuid, _: Uuid, _: String) -> StoreFuture<'_, Option<OutboxRow>> {
        not_simulated()
    }
    fn approval_rows(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Vec<OutboxRow>> {
        not_simulated()
    }
    fn retry_outbox(&self, _: Uuid, _: Uuid, _: Author, _: Timestamp) -> StoreFuture<'_, bool> {
        not_simulated()
    }
    fn release_outbox(&self, _: Uuid, _: Option<Uuid>, _: Author, _: Timestamp) -> StoreFuture<'_, u64> {
        not_simulated()
    }
}
