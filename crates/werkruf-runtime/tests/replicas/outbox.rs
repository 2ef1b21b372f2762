//! The outbox across replicas: lanes are shared, and each keeps its order.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use werkruf_contract::{Cancel, Uuid};
use werkruf_runtime::{ChannelMessage, Inbound, ReplyTo};
use werkruf_store::{InboxEntry, Order, Outbox, OutboxFilter, OutboxRow, OutboxStatus, Page};

use crate::cluster::{Cluster, Replica, TENANT};
use crate::fake_channel::{Sent, Step};

/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A message from this address, whose answer has three parts.
async fn write(replica: &Replica, address: &str, number: usize, conversation_id: Option<Uuid>) -> Uuid {
    let mut message = replica.inbound(&format!("{number}a. {number}b. {number}c."), conversation_id, None);
    let reply_to = ReplyTo { channel: "fake".to_owned(), account: "desk".to_owned(), address: address.to_owned() };
    let inbox = InboxEntry {
        channel: "fake".to_owned(),
        account: "desk".to_owned(),
        external_id: format!("{address}-{number}"),
        fingerprint: String::new(),
        expires_at: jiff::Timestamp::MAX - jiff::SignedDuration::from_hours(1000),
    };
    message.inbound = Some(Box::new(ChannelMessage { inbound: Inbound { reply_to, direct: None, over_limit: None }, inbox }));
    let runtime = replica.runtime.clone();
    replica.run(async move { runtime.chat(message).await.unwrap().conversation_id }).await
}

/// All rows, once this holds for them.
async fn rows_once(replica: &Replica, holds: impl Fn(&[OutboxRow]) -> bool) -> Vec<OutboxRow> {
    let mut seen = Vec::new();
    let work = async {
        loop {
            let store = replica.store.clone();
            let page = Page::of(1000, Order::OldestFirst);
            seen = replica.run(async move { store.outbox(TENANT, OutboxFilter::default(), page).await.unwrap() }).await;
            if holds(&seen) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| panic!("the rows never got there: {seen:#?}"));
    seen
}

#[tokio::test]
async fn replicas_share_lanes_and_each_lane_keeps_its_order() {
    let cluster = Cluster::new(false);
    let replicas = [cluster.quick_replica(), cluster.quick_replica(), cluster.quick_replica()];
    let addresses: Vec<String> = (0..8).map(|n| format!("address-{n}")).collect();
    for (n, address) in addresses.iter().enumerate() {
        cluster.channel.script(address, [[Step::Panic, Step::Unknown].into_iter().nth(n).unwrap_or(Step::Retry)]);
    }
    let written = addresses.iter().enumerate().map(async |(n, address)| {
        let conversation = write(&replicas[n % 3], address, 1, None).await;
        for number in 2..4 {
            write(&replicas[(n + number) % 3], address, number, Some(conversation)).await;
        }
    });
    join_all(written).await;
    let rows = rows_once(&replicas[0], |rows| rows.len() == 8 * 9 && rows.iter().all(|row| row.status == OutboxStatus::Sent)).await;
    let doubtful: BTreeSet<&str> = rows.iter().filter(|row| row.ambiguous).map(|row| row.recipient.address.as_str()).collect();
    assert_eq!(doubtful, BTreeSet::from(["address-0", "address-1"]));
    let answer = |number: usize| [format!("You said {number}a."), format!("{number}b."), format!("{number}c.")];
    let mut expected: Vec<String> = (1..4).flat_map(answer).collect();
    // The first sending of each address fails.
    expected.insert(0, "You said 1a.".to_owned());
    for address in &addresses {
        assert_eq!(cluster.channel.texts(address), expected, "{address}");
    }
}

#[tokio::test]
async fn a_row_that_a_killed_replica_was_sending_is_sent_once_more_and_marked() {
    let cluster = Cluster::new(false);
    let mut first = cluster.quick_replica();
    cluster.channel.script("ada", [Step::Hold(Cancel::default())]);
    write(&first, "ada", 1, None).await;
    rows_once(&first, |rows| rows.first().is_some_and(|row| row.status == OutboxStatus::Sending)).await;
    let second = cluster.quick_replica();
    // Another lane does not wait for the one that hangs.
    write(&second, "ben", 1, None).await;
    rows_once(&second, |rows| rows.iter().filter(|row| row.status == OutboxStatus::Sent).count() == 3).await;
    while cluster.channel.texts("ada").is_empty() {
        tokio::task::yield_now().await;
    }
    first.kill();
    let rows = rows_once(&second, |rows| rows.iter().all(|row| row.status == OutboxStatus::Sent)).await;
    let marks: Vec<(String, u32, bool)> = rows
        .iter()
        .filter(|row| row.recipient.address == "ada")
        .map(|row| (row.recipient.address.clone(), row.attempts, row.ambiguous))
        .collect();
    assert_eq!(marks, [("ada".to_owned(), 2, true), ("ada".to_owned(), 1, false), ("ada".to_owned(), 1, false)]);
    let to_ada: Vec<Sent> = cluster.channel.sent().into_iter().filter(|sent| sent.address == "ada").collect();
    let sent = |text: &str, attempt| Sent { address: "ada".to_owned(), text: text.to_owned(), attempt };
    assert_eq!(to_ada, [sent("You said 1a.", 1), sent("You said 1a.", 2), sent("1b.", 1), sent("1c.", 1)]);
}
