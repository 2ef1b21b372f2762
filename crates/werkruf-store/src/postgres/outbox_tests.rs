//! Two processes share the outbox of one database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use tokio::task::JoinSet;
use werkruf_contract::{Clock, Uuid};

use super::cluster_tests::{Process, two};
use super::flush::DbRole;
use super::param::p;
use super::row::all;
use super::{PostgresOptions, PostgresStore};
use crate::testbed::fresh_database;
use crate::{Claimed, NewOutboxRow, Outbox, OutboxFilter, OutboxStatus, SendEnd, Settlement};

const LANES: usize = 5;
const ROWS: usize = 40;

#[derive(Default)]
struct Log {
    /// The rows in the order of their claims.
    claimed: Mutex<Vec<(String, Uuid)>>,
    complete: AtomicBool,
}

/// Claims and settles until nothing is written or due any more.
async fn send_all(process: Process, owner: String, log: Arc<Log>) {
    loop {
        let complete = log.complete.load(Ordering::SeqCst);
        let claimed = process.store.claim(process.claim(&owner, 3)).await.unwrap();
        if claimed.is_empty() && complete && process.next_due().await.is_none() {
            return;
        }
        for claimed in claimed {
            let Claimed::Send(row) = claimed else { panic!("{claimed:?}") };
            log.claimed.lock().unwrap().push((row.recipient.lane.clone(), row.id));
            let end = SendEnd::Sent { external_id: Some(row.id.to_string()) };
            let (tenant_id, id, owner, now) = (row.tenant_id, row.id, owner.clone(), process.now);
            let settlement = Settlement { tenant_id, id, owner, attempt: 1, end, announce: Vec::new(), now };
            assert!(process.store.settle(settlement).await.unwrap());
        }
    }
}

/// A lane is emptied and filled again and again, while rows are written to it: no row is left behind, and the order holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_send_every_row_once_and_in_order() {
    let (here, there) = two().await;
    let log = Arc::new(Log::default());
    let mut senders = JoinSet::new();
    for (number, process) in [&here, &there, &here, &there].into_iter().enumerate() {
        senders.spawn(send_all(process.clone(), format!("sender-{number}"), Arc::clone(&log)));
    }
    let mut writers = JoinSet::new();
    for lane in 0..LANES {
        let process = if lane % 2 == 0 { here.clone() } else { there.clone() };
        writers.spawn(async move {
            let mut written = Vec::new();
            for _ in 0..ROWS {
                let mut row = process.outbox_row(None, "text");
                row.recipient.lane = format!("lane-{lane}");
                written.extend(process.send(vec![row]).await);
            }
            (format!("lane-{lane}"), written)
        });
    }
    let written: BTreeMap<String, Vec<Uuid>> = writers.join_all().await.into_iter().collect();
    log.complete.store(true, Ordering::SeqCst);
    senders.join_all().await;
    let mut claimed: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
    for (lane, id) in log.claimed.lock().unwrap().iter() {
        claimed.entry(lane.clone()).or_default().push(*id);
    }
    assert_eq!(claimed, written);
    let rest = here.store.outbox(here.tenant, OutboxFilter::of_status(OutboxStatus::Pending), crate::Page::default()).await.unwrap();
    assert_eq!(rest, []);
}

/// A process whose clock is two minutes ahead takes no row that another one is sending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_of_the_database_decides_what_is_due() {
    let (url, clock) = (fresh_database(), Clock::system(0));
    let ahead = {
        let clock = clock.clone();
        Clock::driven(move || clock.now() + SignedDuration::from_secs(120), 1)
    };
    let open = async |clock: &Clock| {
        let options = PostgresOptions { pool_size: 4, ..PostgresOptions::new(url.clone()) };
        PostgresStore::open(options, clock, crate::story::MODULES).await.unwrap()
    };
    let here = Process::new(open(&clock).await, clock.clone());
    let fast = Process { store: open(&ahead).await, clock: ahead.clone(), now: ahead.now(), tenant: here.tenant };
    let id = here.send(vec![here.outbox_row(None, "1")]).await[0];
    let claimed = here.store.claim(here.claim("here", 10)).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.row().id).collect::<Vec<_>>(), [id]);
    assert_eq!(fast.store.claim(fast.claim("fast", 10)).await.unwrap(), []);
    let due = fast.next_due().await.unwrap();
    assert!(due > fast.now + SignedDuration::from_secs(30), "by its own clock: {due}");
    // What it claims itself is claimed for a minute, not for three.
    let mut second = here.outbox_row(None, "2");
    second.recipient.lane = "another".to_owned();
    let id = here.send(vec![second]).await[0];
    assert_eq!(fast.store.claim(fast.claim("fast", 10)).await.unwrap().len(), 1);
    let row = here.find(here.tenant, id).await.unwrap();
    assert!(row.next_at < here.clock.now() + SignedDuration::from_secs(61), "{row:?}");
}

/// Old rows cost nothing: the statements that run often read the small indexes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_rows_are_not_read_by_the_loop() {
    let (here, _) = two().await;
    let sql = "INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, part, status, repeatable, external_id, next_at, created_at, updated_at, body)
               SELECT $1, gen_random_uuid(), 'whatsapp', '100', 'r', 'lane-' || n % 50, 1, 'read', false, 'w' || n, now(), now(), now(), '{}'
               FROM generate_series(1, 20000) AS n";
    here.store.query(DbRole::System, sql, &[p(&here.tenant)]).await.unwrap();
    let rows = (0..50).map(|lane| {
        let mut row = here.outbox_row(None, "text");
        row.recipient.lane = format!("lane-{lane}");
        row
    });
    here.send(rows.collect::<Vec<NewOutboxRow>>()).await;
    for sql in [
        "SELECT * FROM outbox WHERE tenant_id = $1 AND lane = 'lane-1' AND status = 'pending' ORDER BY id LIMIT 1",
        "SELECT * FROM outbox WHERE tenant_id = $1 AND lane = 'lane-1' AND status = 'sending' ORDER BY id LIMIT 1",
        "SELECT * FROM outbox WHERE tenant_id = $1 AND external_id = 'w7' AND channel = 'whatsapp' AND account = '100' LIMIT 1",
        "SELECT * FROM outbox WHERE tenant_id = $1 AND status = 'dead' ORDER BY id LIMIT 10",
    ] {
        // Without statistics, as in a new table.
        let plan = here.store.query(DbRole::System, &format!("EXPLAIN {sql}"), &[p(&here.tenant)]).await.unwrap();
        let plan = all(&plan, |columns| columns.text()).unwrap().join("\n");
        let expected = ["outbox_open", "outbox_by_external_id", "outbox_by_status"];
        assert!(expected.iter().any(|index| plan.contains(index)), "{sql}\n{plan}");
    }
}
