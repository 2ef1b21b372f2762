//! What the tests of the outbox share: rows, claims and reports of one recipient, and rows in every status for tests of a restore.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;

use super::Store;
use super::world::World;
use crate::{
    Account, Author, Claim, Claimed, DeliveryReport, InboxEntry, NewContact, NewOutboxRow, Notice, OutboxFilter, OutboxRow, OutboxStatus,
    Page, Recipient, RecordedInbound, ReportedStatus, Resend, SendEnd, Settlement,
};

const LANE: &str = "whatsapp:100:49170";
const SENDER: &str = "process-1";

impl<S: Store> World<S> {
    pub(crate) fn in_s(&self, seconds: i64) -> Timestamp {
        self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap()
    }

    pub(crate) fn outbox_row(&self, turn_id: Option<Uuid>, text: &str) -> NewOutboxRow {
        NewOutboxRow {
            id: self.id(),
            recipient: Recipient {
                channel: "whatsapp".to_owned(),
                account: "100".to_owned(),
                address: "49170".to_owned(),
                user_id: Some("1".to_owned()),
                lane: LANE.to_owned(),
            },
            conversation_id: None,
            turn_id,
            approval_id: None,
            body: format!(r#"{{"type":"text","text":"{text}"}}"#),
            repeatable: false,
            dead: None,
            next_at: self.now,
        }
    }

    pub(super) fn in_lane(&self, lane: &str, turn_id: Option<Uuid>, text: &str) -> NewOutboxRow {
        let mut row = self.outbox_row(turn_id, text);
        lane.clone_into(&mut row.recipient.lane);
        row
    }

    pub(super) fn inbound(&self, key: &str, rows: Vec<NewOutboxRow>, notice: Option<Notice>) -> RecordedInbound {
        RecordedInbound { tenant_id: self.tenant, inbox: self.entry(key), rows, notice, now: self.now }
    }

    pub(super) fn entry(&self, key: &str) -> InboxEntry {
        InboxEntry { channel: "whatsapp".to_owned(), account: "100".to_owned(), ..self.inbox(key, key) }
    }

    /// Writes rows without a turn of their own.
    pub(crate) async fn send(&self, rows: Vec<NewOutboxRow>) -> Vec<Uuid> {
        let ids = rows.iter().map(|row| row.id).collect();
        let key = self.id().to_string();
        assert!(self.store.record_inbound(self.inbound(&key, rows, None)).await.unwrap());
        ids
    }

    /// Claims everything that is due, for a minute.
    pub(crate) async fn claimed(&self) -> Vec<Claimed> {
        self.store.claim(self.claim(SENDER, 100)).await.unwrap()
    }

    /// Up to so many lanes of the one account, for a minute.
    pub(crate) fn claim(&self, owner: &str, limit: u32) -> Claim {
        let account = Account { channel: "whatsapp".to_owned(), account: "100".to_owned() };
        Claim { owner: owner.to_owned(), account, now: self.now, until: self.in_s(60), limit, being_sent: Vec::new() }
    }

    /// When the first lane is due.
    pub(crate) async fn next_due(&self) -> Option<Timestamp> {
        self.store.due().await.unwrap().first().map(|due| due.at)
    }

    /// The one row that is due and to be sent.
    pub(super) async fn next(&self) -> OutboxRow {
        let mut claimed = self.claimed().await;
        match (claimed.len(), claimed.pop()) {
            (1, Some(Claimed::Send(row))) => row,
            other => panic!("not one row to send: {other:?}"),
        }
    }

    pub(super) async fn settle(&self, row: &OutboxRow, end: SendEnd) -> bool {
        self.store.settle(self.settlement(row, end)).await.unwrap()
    }

    pub(super) fn settlement(&self, row: &OutboxRow, end: SendEnd) -> Settlement {
        let (tenant_id, id, owner, attempt) = (self.tenant, row.id, SENDER.to_owned(), row.attempts);
        Settlement { tenant_id, id, owner, attempt, end, announce: Vec::new(), now: self.now }
    }

    pub(crate) async fn stored(&self, id: Uuid) -> OutboxRow {
        self.find(self.tenant, id).await.unwrap()
    }

    pub(crate) async fn find(&self, tenant_id: Uuid, id: Uuid) -> Option<OutboxRow> {
        self.store.outbox(tenant_id, OutboxFilter::of_id(id), Page::default()).await.unwrap().pop()
    }

    pub(super) async fn statuses(&self, ids: &[Uuid]) -> Vec<(OutboxStatus, Option<String>)> {
        let mut found = Vec::new();
        for id in ids {
            let row = self.stored(*id).await;
            found.push((row.status, row.error_code));
        }
        found
    }

    pub(super) fn report(&self, row: Uuid, wamid: &str, status: ReportedStatus) -> DeliveryReport {
        let name = match &status {
            ReportedStatus::Sent => "sent",
            ReportedStatus::Delivered => "delivered",
            ReportedStatus::Read => "read",
            ReportedStatus::Failed { .. } => "failed",
        };
        DeliveryReport {
            tenant_id: self.tenant,
            channel: "whatsapp".to_owned(),
            account: "100".to_owned(),
            outbox_id: Some(row),
            external_id: wamid.to_owned(),
            status,
            inbox: self.entry(&format!("{wamid}:{name}")),
            announce: Vec::new(),
            now: self.now,
        }
    }

    pub(super) async fn reported(&self, row: Uuid, wamid: &str, status: ReportedStatus) -> Option<OutboxStatus> {
        self.store.report(self.report(row, wamid, status)).await.unwrap().map(|row| row.status)
    }

    pub(super) fn contact(&self, user_id: &str, address: &str) -> NewContact {
        NewContact {
            tenant_id: self.tenant,
            channel: "whatsapp".to_owned(),
            account: "100".to_owned(),
            user_id: user_id.to_owned(),
            address: address.to_owned(),
            inbound_at: self.now,
            conversation_id: self.id(),
            title: "Hello".to_owned(),
            assistant: "default".to_owned(),
            now: self.now,
        }
    }
}

pub(super) fn sent(wamid: &str) -> SendEnd {
    SendEnd::Sent { external_id: Some(wamid.to_owned()) }
}

pub(super) fn failed(code: &str, resend: Option<Resend>) -> ReportedStatus {
    ReportedStatus::Failed { code: code.to_owned(), message: "no".to_owned(), resend }
}

pub(super) fn dead(code: &str) -> SendEnd {
    SendEnd::Dead { code: code.to_owned(), message: "never".to_owned() }
}

pub(super) fn died(code: &str) -> (OutboxStatus, Option<String>) {
    (OutboxStatus::Dead, Some(code.to_owned()))
}

pub(super) const fn is(status: OutboxStatus) -> (OutboxStatus, Option<String>) {
    (status, None)
}

/// Rows of three lanes: one sent, one that is being sent, one pending.
pub(crate) async fn fill_outbox(world: &World<impl Store>) -> [Uuid; 3] {
    let lanes = ["sent", "sending"];
    let ids = world.send(lanes.iter().map(|lane| world.in_lane(lane, None, "secret")).collect()).await;
    for claimed in world.claimed().await {
        let Claimed::Send(row) = claimed else { panic!("{claimed:?}") };
        if row.id == ids[0] {
            assert!(world.settle(&row, sent("wamid-secret")).await);
        }
    }
    assert_eq!(world.reported(ids[0], "wamid-secret", ReportedStatus::Read).await, Some(OutboxStatus::Read));
    let pending = world.send(vec![world.outbox_row(None, "secret")]).await[0];
    world.store.contact(world.contact("1", "49170-secret")).await.unwrap();
    [ids[0], ids[1], pending]
}

/// After a restore nothing is sent before its release.
pub(crate) async fn held_rows_are_released(world: World<impl Store>, [done, doubtful, pending]: [Uuid; 3]) {
    let held = is(OutboxStatus::Held);
    assert_eq!(world.statuses(&[done, doubtful, pending]).await, [is(OutboxStatus::Read), held.clone(), held.clone()]);
    assert_eq!((world.claimed().await, world.next_due().await), (Vec::new(), None));
    assert_eq!(world.store.release_outbox(world.tenant, Some(done), Author::server(), world.now).await.unwrap(), 0);
    assert_eq!(world.store.release_outbox(world.id(), None, Author::server(), world.now).await.unwrap(), 0, "another tenant");
    assert_eq!(world.store.release_outbox(world.tenant, Some(doubtful), Author::server(), world.now).await.unwrap(), 1);
    let row = world.next().await;
    assert_eq!((row.id, row.ambiguous), (doubtful, true), "it may have been sent before");
    assert_eq!(world.store.release_outbox(world.tenant, None, Author::server(), world.now).await.unwrap(), 1);
    let row = world.next().await;
    assert_eq!((row.id, row.ambiguous), (pending, false));
    assert_eq!(world.store.release_outbox(world.tenant, None, Author::server(), world.now).await.unwrap(), 0);
}
