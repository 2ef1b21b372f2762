//! The outbox: what is sent again. Attempts and their age, parts that come back to life, and the order of what is retried or released.

use werkruf_contract::Uuid;

use super::Store;
use super::outbox_world::{dead, died, failed, is, sent};
use super::world::World;
use crate::{Account, Author, Claim, Claimed, EARLIER_PART_DEAD, OUTCOME_UNKNOWN, OutboxStatus, ReportedStatus, SendEnd, Settlement};

const DAY_MS: i64 = 86_400_000;

pub(crate) async fn the_age_of_a_row_counts_from_its_first_attempt(mut world: World<impl Store>) {
    let mut row = world.outbox_row(None, "1");
    row.repeatable = true;
    let id = world.send(vec![row]).await[0];
    assert_eq!(world.stored(id).await.first_at, None);
    // It waits for two days behind another row, or for a process.
    world.later(2 * DAY_MS);
    let first_at = world.now.as_millisecond();
    let first = world.next().await;
    assert_eq!(first.first_at.map(|at| at.as_millisecond()), Some(first_at));
    world.later(60_000);
    let second = world.next().await;
    assert_eq!((second.attempts, second.first_at), (2, first.first_at), "found half sent, and young");
    world.later(DAY_MS);
    let claimed = world.claimed().await;
    let [Claimed::GiveUp { row, .. }] = &claimed[..] else { panic!("{claimed:?}") };
    assert!(world.settle(row, dead("attempts_exhausted")).await);
    assert!(world.store.retry_outbox(world.tenant, id, Author::server(), world.now).await.unwrap());
    let row = world.stored(id).await;
    assert_eq!((row.first_at, row.attempts), (None, 0), "a retry begins anew");
    let again = world.next().await;
    assert_eq!(again.first_at.map(|at| at.as_millisecond()), Some(world.now.as_millisecond()));
}

pub(crate) async fn only_the_process_that_sends_a_row_settles_it(mut world: World<impl Store>) {
    let id = world.send(vec![world.outbox_row(None, "1")]).await[0];
    let row = world.next().await;
    let other = Settlement { owner: "process-2".to_owned(), ..world.settlement(&row, sent("w")) };
    assert!(!world.store.settle(other).await.unwrap());
    assert_eq!(world.stored(id).await.status, OutboxStatus::Sending);
    world.later(59_000);
    assert!(world.settle(&row, sent("w")).await);
}

pub(crate) async fn a_row_that_arrived_after_all_brings_its_later_parts_back(mut world: World<impl Store>) {
    let ids = three_parts(&world).await;
    let first = world.next().await;
    assert!(world.settle(&first, dead(OUTCOME_UNKNOWN)).await);
    let later = died(EARLIER_PART_DEAD);
    assert_eq!(world.statuses(&ids).await, [died(OUTCOME_UNKNOWN), later.clone(), later]);
    assert_eq!(world.next_due().await, None);
    world.later(1);
    assert_eq!(world.reported(ids[0], "w1", ReportedStatus::Delivered).await, Some(OutboxStatus::Delivered));
    let pending = is(OutboxStatus::Pending);
    assert_eq!(world.statuses(&ids).await, [is(OutboxStatus::Delivered), pending.clone(), pending]);
    for id in &ids[1..] {
        let row = world.next().await;
        assert_eq!((row.id, row.attempts), (*id, 1));
        assert!(world.settle(&row, sent(&id.to_string())).await);
    }
}

pub(crate) async fn a_failed_sending_does_not_hide_another_that_arrived(mut world: World<impl Store>) {
    let turn = Some(world.id());
    let ids = world.send(["1", "2"].map(|text| world.outbox_row(turn, text)).to_vec()).await;
    let first = world.next().await;
    let (code, message) = ("timeout".to_owned(), String::new());
    assert!(world.settle(&first, SendEnd::Unknown { until: world.in_s(30), code, message }).await);
    world.later(30_000);
    let second = world.next().await;
    assert!(second.ambiguous);
    // The report is about the first sending, whose id nobody knows.
    assert_eq!(world.reported(ids[0], "w1", failed("131026", None)).await, Some(OutboxStatus::Dead));
    assert!(!world.settle(&second, sent("w2")).await);
    assert_eq!(world.statuses(&ids).await, [died("131026"), died(EARLIER_PART_DEAD)]);
    assert_eq!(world.reported(ids[0], "w1", ReportedStatus::Sent).await, Some(OutboxStatus::Dead), "of the sending that failed");
    assert_eq!(world.reported(ids[0], "w2", ReportedStatus::Sent).await, Some(OutboxStatus::Sent));
    assert_eq!(world.statuses(&ids).await, [is(OutboxStatus::Sent), is(OutboxStatus::Pending)]);
    assert_eq!(world.stored(ids[0]).await.external_id.as_deref(), Some("w2"));
    assert_eq!(world.next().await.id, ids[1]);
}

pub(crate) async fn a_retry_starts_with_the_first_dead_part(mut world: World<impl Store>) {
    let ids = three_parts(&world).await;
    let first = world.next().await;
    assert!(world.settle(&first, dead("131026")).await);
    world.later(1);
    assert!(world.store.retry_outbox(world.tenant, ids[1], Author::server(), world.now).await.unwrap());
    for id in ids {
        let row = world.next().await;
        assert_eq!((row.id, row.attempts, row.error_code.as_deref()), (id, 1, None));
        assert!(world.settle(&row, sent(&id.to_string())).await);
    }
}

pub(crate) async fn what_a_process_is_sending_it_does_not_take_again(mut world: World<impl Store>) {
    let id = world.send(vec![world.outbox_row(None, "1")]).await[0];
    let row = world.next().await;
    // The process lives, but could not write the end in time.
    world.later(61_000);
    let again = Claim { being_sent: vec![id], ..world.claim("process-1", 10) };
    assert_eq!(world.store.claim(again).await.unwrap(), []);
    assert_eq!(world.next_due().await.map(|due| due.as_millisecond()), Some(world.in_s(60).as_millisecond()), "it stays claimed");
    assert!(world.settle(&row, sent("w")).await);
    assert_eq!(world.stored(id).await.attempts, 1);
}

pub(crate) async fn a_claim_takes_rows_of_one_account(world: World<impl Store>) {
    let mut other = world.in_lane("webhook:w:1", None, "2");
    (other.recipient.channel, other.recipient.account) = ("webhook".to_owned(), "w".to_owned());
    let webhook = Account { channel: "webhook".to_owned(), account: "w".to_owned() };
    let ids = world.send(vec![world.outbox_row(None, "1"), other]).await;
    let accounts: Vec<Account> = world.store.due().await.unwrap().into_iter().map(|due| due.account).collect();
    assert!(accounts.len() == 2 && accounts.contains(&webhook), "{accounts:?}");
    assert_eq!(world.next().await.id, ids[0]);
    let claimed = world.store.claim(Claim { account: webhook, ..world.claim("process-1", 10) }).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.row().id).collect::<Vec<_>>(), [ids[1]]);
}

/// Without any retention time, a notification is deleted seven days after it arrived.
pub(crate) async fn arrived_notifications_expire(mut world: World<impl Store>) {
    let mut row = world.in_lane("webhook:w:1", None, "turn_finished");
    (row.recipient.channel, row.recipient.account) = ("webhook".to_owned(), "w".to_owned());
    let account = Account { channel: "webhook".to_owned(), account: "w".to_owned() };
    let id = world.send(vec![row]).await[0];
    let claimed = world.store.claim(Claim { account, ..world.claim("process-1", 1) }).await.unwrap();
    assert!(world.settle(claimed[0].row(), SendEnd::Sent { external_id: None }).await);
    world.later(7 * 86_400_000 - 1);
    world.store.delete_expired(world.now).await.unwrap();
    assert_eq!(world.stored(id).await.status, OutboxStatus::Sent);
    world.later(1);
    world.store.delete_expired(world.now).await.unwrap();
    assert_eq!(world.find(world.tenant, id).await, None);
}

/// The parts of one turn.
pub(crate) async fn three_parts(world: &World<impl Store>) -> [Uuid; 3] {
    let turn = Some(world.id());
    let rows = ["1", "2", "3"].map(|text| world.outbox_row(turn, text));
    let ids = [rows[0].id, rows[1].id, rows[2].id];
    world.send(rows.to_vec()).await;
    ids
}

/// Parts of one turn that a restore holds: releasing the second releases the first too, but not the third.
pub(crate) async fn a_release_starts_with_the_first_held_part(world: World<impl Store>, ids: [Uuid; 3]) {
    assert_eq!(world.store.release_outbox(world.tenant, Some(ids[1]), Author::server(), world.now).await.unwrap(), 2);
    let pending = is(OutboxStatus::Pending);
    assert_eq!(world.statuses(&ids).await, [pending.clone(), pending, is(OutboxStatus::Held)]);
    assert_eq!(world.next().await.id, ids[0]);
}
