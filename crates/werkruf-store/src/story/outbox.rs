//! The outbox: order in lanes, doubtful sendings, delivery reports, retries, and what a restore or a sweep does with rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;
use werkruf_contract::Uuid;

use super::Store;
use super::outbox_world::{dead, died, failed, is, sent};
use super::world::World;
use crate::{
    ATTEMPTS_EXHAUSTED, Account, Author, Claimed, ConversationFilter, ConversationRef, DeliveryReport, EARLIER_PART_DEAD, NewContact,
    NewOutboxRow, Notice, OUTCOME_UNKNOWN, Opened, OutboxFilter, OutboxRow, OutboxStatus, Page, RecordedInbound, ReportedStatus, Resend,
    SendEnd, Settlement, Sweep, Sweepable,
};

pub(crate) async fn a_turn_writes_its_rows_with_parts(world: World<impl Store>) {
    let turn = world.id();
    let mut open = world.opening(world.new_conversation(), "hello");
    (open.turn_id, open.inbound) = (turn, Some("{}".to_owned()));
    open.outbox = vec![world.outbox_row(Some(turn), "a")];
    let first = open.outbox[0].id;
    let running = world.begin(open).await;
    let mut write = world.to_write(&running);
    // Ids are made in the order of writing.
    let mut rows = ["b", "button", "hook", "c", "late"].map(|text| world.outbox_row(Some(turn), text));
    rows[1].approval_id = Some(world.id());
    (rows[2].recipient.channel, rows[2].recipient.lane, rows[2].repeatable) = ("webhook".to_owned(), "webhook:w:1".to_owned(), true);
    rows[4].dead = Some("stale_inbound".to_owned());
    let button = rows[1].clone();
    write.outbox = rows.to_vec();
    let ids: Vec<Uuid> = std::iter::once(first).chain(write.outbox.iter().map(|row| row.id)).collect();
    world.store.write(write).await.unwrap();
    world.complete(&running).await;
    let rows = world.store.outbox(world.tenant, OutboxFilter::default(), Page::default()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    assert_eq!(rows.iter().map(|row| row.part).collect::<Vec<_>>(), [1, 2, 1, 1, 3, 4]);
    assert_eq!((rows[5].status, rows[5].error_code.as_deref()), (OutboxStatus::Dead, Some("stale_inbound")));
    let expected = OutboxRow {
        id: first,
        tenant_id: world.tenant,
        recipient: world.outbox_row(None, "a").recipient,
        conversation_id: None,
        turn_id: Some(turn),
        approval_id: None,
        part: 1,
        body: r#"{"type":"text","text":"a"}"#.to_owned(),
        status: OutboxStatus::Pending,
        repeatable: false,
        ambiguous: false,
        attempts: 0,
        error_code: None,
        error: None,
        external_id: None,
        next_at: rows[0].next_at,
        first_at: None,
        created_at: rows[0].created_at,
        updated_at: rows[0].created_at,
    };
    assert_eq!(rows[0], expected);
    assert_eq!(rows[0].next_at.as_millisecond(), world.now.as_millisecond());
    let approval = button.approval_id.unwrap();
    let buttons = async |user_id: Option<&str>| {
        let filter = OutboxFilter { user_id: user_id.map(str::to_owned), ..OutboxFilter::of_approval(approval) };
        let rows = world.store.outbox(world.tenant, filter, Page::default()).await.unwrap();
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((buttons(None).await, buttons(Some("1")).await, buttons(Some("2")).await), (vec![button.id], vec![button.id], vec![]));
    assert_eq!(world.find(world.id(), first).await, None, "another tenant");
    let only_dead = world.store.outbox(world.tenant, OutboxFilter::of_status(OutboxStatus::Dead), Page::default()).await.unwrap();
    assert_eq!(only_dead.len(), 1);

    // A canceled turn writes its rows too.
    let second = world.begin(world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "2")).await;
    let waiting = world.opening(ConversationRef::Existing { id: second.conversation, any_user: false }, "3");
    let turn = waiting.turn_id;
    world.store.open_turn(waiting).await.unwrap();
    let mut cancellation = world.cancellation();
    cancellation.outbox = vec![world.outbox_row(Some(turn), "canceled")];
    let canceled = cancellation.outbox[0].id;
    assert!(world.store.cancel_waiting(world.tenant, turn, cancellation).await.unwrap().is_some());
    assert_eq!((world.stored(canceled).await.part, world.stored(canceled).await.status), (1, OutboxStatus::Pending));
}

pub(crate) async fn rows_of_a_lane_leave_in_order(mut world: World<impl Store>) {
    let ids = world.send(vec![world.outbox_row(None, "1"), world.outbox_row(None, "2")]).await;
    assert_eq!(world.next_due().await.map(|due| due.as_millisecond()), Some(world.now.as_millisecond()));
    let first = world.next().await;
    assert_eq!((first.id, first.status, first.attempts), (ids[0], OutboxStatus::Sending, 1));
    assert_eq!(world.claimed().await, [], "the second waits for the first");
    assert_eq!(world.next_due().await.map(|due| due.as_millisecond()), Some(world.in_s(60).as_millisecond()));
    // A new row makes its lane due, but not itself.
    let third = world.send(vec![world.outbox_row(None, "3")]).await;
    assert_eq!(world.claimed().await, []);
    let retry = SendEnd::Retry { at: world.in_s(10), code: "130429".to_owned(), message: "slow down".to_owned() };
    assert!(world.settle(&first, retry.clone()).await);
    assert!(!world.settle(&first, retry).await, "it is not being sent any more");
    let row = world.stored(first.id).await;
    assert_eq!((row.status, row.error_code.as_deref(), row.error.as_deref()), (OutboxStatus::Pending, Some("130429"), Some("slow down")));
    assert_eq!(world.claimed().await, [], "the lane waits for the retry");
    world.later(10_000);
    let again = world.next().await;
    assert_eq!((again.id, again.attempts), (ids[0], 2));
    assert!(!world.settle(&first, sent("w")).await, "an earlier attempt");
    assert!(world.settle(&again, sent("w1")).await);
    let row = world.stored(ids[0]).await;
    assert_eq!((row.status, row.external_id.as_deref(), row.error_code), (OutboxStatus::Sent, Some("w1"), None));
    for id in [ids[1], third[0]] {
        let row = world.next().await;
        assert_eq!(row.id, id);
        assert!(world.settle(&row, sent(&id.to_string())).await);
    }
    assert_eq!((world.claimed().await, world.next_due().await), (Vec::new(), None));
}

/// Several claimers share the work. Each part is sent once, and never before the one before it was settled.
pub(crate) async fn several_claimers_keep_the_order(world: World<impl Store>) {
    const LANES: usize = 6;
    const PARTS: usize = 5;
    let mut rows = Vec::new();
    for part in 0..PARTS {
        rows.extend((0..LANES).map(|lane| world.in_lane(&format!("lane-{lane}"), None, &part.to_string())));
    }
    let mut order: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
    for row in &rows {
        order.entry(row.recipient.lane.clone()).or_default().push(row.id);
    }
    world.send(rows).await;
    let sent_rows: Arc<std::sync::Mutex<Vec<(String, Uuid)>>> = Arc::default();
    let mut claimers = JoinSet::new();
    for claimer in 0..4 {
        let (world, sent_rows) = (world.clone(), Arc::clone(&sent_rows));
        claimers.spawn(async move {
            while world.next_due().await.is_some() {
                for claimed in world.store.claim(world.claim(&format!("p{claimer}"), 2)).await.unwrap() {
                    let Claimed::Send(row) = claimed else { panic!("given up: {claimed:?}") };
                    sent_rows.lock().unwrap().push((row.recipient.lane.clone(), row.id));
                    let owner = format!("p{claimer}");
                    let settlement = Settlement { owner, ..world.settlement(&row, sent(&row.id.to_string())) };
                    assert!(world.store.settle(settlement).await.unwrap());
                }
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(done) = claimers.join_next().await {
        done.unwrap();
    }
    let mut found: BTreeMap<String, Vec<Uuid>> = BTreeMap::new();
    for (lane, id) in sent_rows.lock().unwrap().iter() {
        found.entry(lane.clone()).or_default().push(*id);
    }
    assert_eq!(found, order);
}

pub(crate) async fn a_doubtful_row_is_sent_once_more_and_then_given_up(mut world: World<impl Store>) {
    let id = world.send(vec![world.outbox_row(None, "1")]).await[0];
    let first = world.next().await;
    let unknown = |until| SendEnd::Unknown { until, code: "timeout".to_owned(), message: "no answer".to_owned() };
    assert!(world.settle(&first, unknown(world.in_s(30))).await);
    let row = world.stored(id).await;
    assert_eq!((row.status, row.error_code.as_deref(), row.ambiguous), (OutboxStatus::Sending, Some("timeout"), false));
    world.later(29_000);
    assert_eq!(world.claimed().await, [], "a report may still come");
    world.later(1_000);
    let second = world.next().await;
    assert_eq!((second.id, second.ambiguous, second.attempts), (id, true, 2));
    // Its process dies; the time of the claim passes.
    world.later(60_000);
    let given_up = world.claimed().await;
    let [Claimed::GiveUp { row, code: OUTCOME_UNKNOWN }] = &given_up[..] else { panic!("{given_up:?}") };
    assert_eq!((row.id, row.attempts, row.status), (id, 2, OutboxStatus::Sending));
    assert_eq!(world.claimed().await, []);
    let announced = world.in_lane("webhook:w:1", None, "dead_letter");
    let announce = vec![announced.clone()];
    let end = dead(OUTCOME_UNKNOWN);
    let settlement = Settlement { announce, ..world.settlement(row, end) };
    assert!(world.store.settle(settlement.clone()).await.unwrap());
    assert!(!world.store.settle(settlement).await.unwrap(), "once, with what it announces");
    assert_eq!(world.statuses(&[id, announced.id]).await, [died(OUTCOME_UNKNOWN), is(OutboxStatus::Pending)]);
    // It did arrive after all.
    assert_eq!(world.reported(id, "w1", ReportedStatus::Delivered).await, Some(OutboxStatus::Delivered));
}

pub(crate) async fn a_repeatable_row_is_repeated_until_it_is_exhausted(mut world: World<impl Store>) {
    let rows = ["often", "long"].map(|lane| NewOutboxRow { repeatable: true, ..world.in_lane(lane, None, "1") });
    let ids = world.send(rows.to_vec()).await;
    for attempt in 1..=10 {
        let claimed = world.claimed().await;
        let rows: Vec<&OutboxRow> =
            claimed.iter().map(|claimed| if let Claimed::Send(row) = claimed { row } else { panic!("{claimed:?}") }).collect();
        assert!(rows.iter().all(|row| !row.ambiguous && row.attempts == if row.id == ids[0] { attempt } else { 1 }), "{rows:?}");
        // The second one stays claimed for a day.
        if let Some(row) = rows.iter().find(|row| row.id == ids[1]) {
            let (code, message) = ("timeout".to_owned(), String::new());
            assert!(world.settle(row, SendEnd::Unknown { until: world.in_s(86_400), code, message }).await);
        }
        world.later(60_000);
    }
    let claimed = world.claimed().await;
    assert!(matches!(&claimed[..], [Claimed::GiveUp { row, code: ATTEMPTS_EXHAUSTED }] if row.id == ids[0]), "{claimed:?}");
    world.later(86_400_000);
    let claimed = world.claimed().await;
    assert!(
        claimed.iter().any(|claimed| matches!(claimed, Claimed::GiveUp { row, code: ATTEMPTS_EXHAUSTED } if row.id == ids[1])),
        "{claimed:?}"
    );
}

pub(crate) async fn a_dead_part_ends_the_parts_of_its_turn(mut world: World<impl Store>) {
    let (turn, other) = (Some(world.id()), Some(world.id()));
    let mut rows = [(turn, "1"), (turn, "2"), (other, "other turn"), (turn, "button"), (turn, "3")]
        .map(|(turn, text)| world.outbox_row(turn, text))
        .to_vec();
    rows[3].approval_id = Some(world.id());
    let ids = world.send(rows).await;
    let first = world.next().await;
    assert!(world.settle(&first, dead("131026")).await);
    let pending = is(OutboxStatus::Pending);
    let later = died(EARLIER_PART_DEAD);
    assert_eq!(world.statuses(&ids).await, [died("131026"), later.clone(), pending.clone(), pending.clone(), later.clone()]);
    assert_eq!(world.next().await.id, ids[2], "the next turn goes on");

    // A retry revives what died with it, and only that.
    world.later(1);
    assert!(!world.store.retry_outbox(world.tenant, ids[2], Author::server(), world.now).await.unwrap(), "it is not dead");
    assert!(!world.store.retry_outbox(world.id(), ids[0], Author::server(), world.now).await.unwrap(), "another tenant");
    assert!(world.store.retry_outbox(world.tenant, ids[0], Author::server(), world.now).await.unwrap());
    assert!(!world.store.retry_outbox(world.tenant, ids[0], Author::server(), world.now).await.unwrap());
    let sending = is(OutboxStatus::Sending);
    assert_eq!(world.statuses(&ids).await, [pending.clone(), pending.clone(), sending, pending.clone(), pending]);
    assert_eq!(world.stored(ids[0]).await.attempts, 0);
    assert_eq!(world.claimed().await, [], "the row that is being sent comes first");
    let other = world.stored(ids[2]).await;
    assert!(world.settle(&other, sent("o")).await);
    for (place, wamid) in [(0, "a"), (1, "b"), (3, "c"), (4, "d")] {
        let row = world.next().await;
        assert_eq!(row.id, ids[place]);
        assert!(world.settle(&row, sent(wamid)).await);
    }
    assert_eq!(world.next_due().await, None);
    let retried = world.send(vec![world.outbox_row(None, "alone")]).await[0];
    let row = world.next().await;
    assert!(world.settle(&row, dead("100")).await);
    assert_eq!(world.next_due().await, None, "a dead row keeps no lane waiting");
    assert!(world.store.retry_outbox(world.tenant, retried, Author::server(), world.now).await.unwrap());
    assert_eq!(world.next().await.id, retried, "the retry opens the lane again");
}

pub(crate) async fn reports_only_move_forward(world: World<impl Store>) {
    let ids = world.send(vec![world.outbox_row(None, "1"), world.outbox_row(None, "2")]).await;
    let first = world.next().await;
    // The report comes before the answer of the sending.
    assert_eq!(world.reported(ids[0], "w1", ReportedStatus::Delivered).await, Some(OutboxStatus::Delivered));
    assert_eq!(world.stored(ids[0]).await.external_id.as_deref(), Some("w1"));
    assert!(!world.settle(&first, sent("w1")).await);
    assert_eq!(world.next().await.id, ids[1], "the report settled the first");
    assert_eq!(world.reported(ids[0], "w1", ReportedStatus::Delivered).await, None, "a copy");
    assert_eq!(world.reported(ids[0], "w1", ReportedStatus::Sent).await, Some(OutboxStatus::Delivered));
    assert_eq!(world.reported(ids[0], "w1", failed("131026", None)).await, Some(OutboxStatus::Delivered), "it arrived");
    let mut read = world.report(ids[0], "w1", ReportedStatus::Read);
    read.outbox_id = None;
    assert_eq!(world.store.report(read).await.unwrap().map(|row| row.status), Some(OutboxStatus::Read), "found by the id of the channel");
    for unknown in [
        world.report(world.id(), "w9", ReportedStatus::Read),
        DeliveryReport { account: "200".to_owned(), ..world.report(ids[0], "w8", ReportedStatus::Read) },
    ] {
        assert_eq!(world.store.report(unknown).await.unwrap(), None);
    }
    assert_eq!(world.stored(ids[1]).await.status, OutboxStatus::Sending);
}

pub(crate) async fn a_failed_report_kills_or_sends_again(mut world: World<impl Store>) {
    let turn = Some(world.id());
    let ids = world.send(vec![world.outbox_row(turn, "1"), world.outbox_row(turn, "2")]).await;
    let first = world.next().await;
    assert!(world.settle(&first, sent("w1")).await);
    world.later(1);
    let template = r#"{"type":"template","name":"hello"}"#;
    let sent_as = async |account: &str, wamid: &str| {
        let account = Account { channel: "whatsapp".to_owned(), account: account.to_owned() };
        let filter = OutboxFilter { sent_as: Some((account, wamid.to_owned())), ..OutboxFilter::default() };
        world.store.outbox(world.tenant, filter, Page::default()).await.unwrap().pop().map(|row| row.id)
    };
    assert_eq!([sent_as("100", "w1").await, sent_as("200", "w1").await, sent_as("100", "w0").await], [Some(ids[0]), None, None]);
    let resend = Resend { body: template.to_owned(), at: world.in_s(30) };
    assert_eq!(world.reported(ids[0], "w1", failed("131047", Some(resend))).await, Some(OutboxStatus::Pending));
    assert_eq!(world.claimed().await, [], "the whole lane waits for the resending");
    world.later(30_000);
    let again = world.next().await;
    assert_eq!((again.id, again.body.as_str(), again.external_id.as_deref(), again.attempts), (ids[0], template, None, 2));
    assert!(world.settle(&again, sent("w2")).await);
    assert_eq!(world.reported(ids[0], "w1", failed("again", None)).await, None, "the inbox has it");
    let mut old = world.report(ids[0], "w1", failed("131047", None));
    old.inbox = world.entry("another-key");
    assert_eq!(world.store.report(old).await.unwrap().map(|row| row.status), Some(OutboxStatus::Sent), "about an earlier sending");
    let hook = world.in_lane("webhook:w:1", None, "dead_letter");
    let report = DeliveryReport { announce: vec![hook.clone()], ..world.report(ids[0], "w2", failed("131026", None)) };
    assert_eq!(world.store.report(report).await.unwrap().map(|row| row.status), Some(OutboxStatus::Dead));
    assert_eq!(world.statuses(&[ids[0], ids[1], hook.id]).await, [died("131026"), died(EARLIER_PART_DEAD), is(OutboxStatus::Pending)]);
    assert_eq!(world.next().await.id, hook.id, "the lane of the turn is empty");
}

pub(crate) async fn an_item_without_a_turn_is_recorded_once(mut world: World<impl Store>) {
    let notice = |since| Notice {
        channel: "whatsapp".to_owned(),
        account: "100".to_owned(),
        person: "49999".to_owned(),
        address: "49999".to_owned(),
        since,
    };
    let mut written = Vec::new();
    for (key, seconds) in [("m1", 0), ("m1", 0), ("m2", 10), ("m3", 89), ("m4", 60), ("m5", 180)] {
        let since = world.in_s(seconds - 90);
        world.later(1);
        let row = world.outbox_row(None, key);
        let (id, now) = (row.id, world.in_s(seconds));
        let inbound = RecordedInbound { now, ..world.inbound(key, vec![row], Some(notice(since))) };
        let recorded = world.store.record_inbound(inbound).await.unwrap();
        written.push((recorded, world.find(world.tenant, id).await.is_some()));
    }
    let expected = [(true, true), (false, false), (true, false), (true, false), (true, false), (true, true)];
    assert_eq!(written, expected, "the same message once, and one notice in 90 s");

    // A copy of a recorded item starts no turn.
    let mut open = world.opening(world.new_conversation(), "hello");
    open.inbox = Some(world.entry("m1"));
    assert_eq!(world.store.open_turn(open.clone()).await.unwrap(), Opened::Recorded);
    open.conversation = ConversationRef::Existing { id: world.id(), any_user: false };
    assert_eq!(world.store.open_turn(open).await.unwrap(), Opened::Recorded, "also where the conversation is unknown");
    assert_eq!(world.store.known_copy(world.tenant, world.entry("m1"), world.now).await.unwrap(), None);
    let kept = world.store.record_inbound(world.inbound("m1", Vec::new(), None)).await.unwrap();
    assert!(!kept);

    // After its time the entry is deleted, and so is the contact of a person who is no user.
    let much_later = world.in_s(40 * 86_400);
    assert_eq!(world.store.delete_expired(much_later).await.unwrap(), 6, "five entries and a contact");
    assert_eq!(world.store.delete_expired(much_later).await.unwrap(), 0);
    assert!(world.store.record_inbound(world.inbound("m1", Vec::new(), None)).await.unwrap());
}

pub(crate) async fn two_first_messages_at_once_get_one_conversation(world: World<impl Store>) {
    let mut both = JoinSet::new();
    for _ in 0..8 {
        let world = world.clone();
        both.spawn(async move { world.store.contact(world.contact("1", "49170")).await.unwrap() });
    }
    let mut found: Vec<Uuid> = both.join_all().await;
    found.dedup();
    assert_eq!(found.len(), 1, "one conversation");
    let conversation = world.store.conversation(world.tenant, found[0]).await.unwrap().unwrap();
    assert_eq!((conversation.user_id.as_str(), conversation.channel.as_str(), conversation.title.as_str()), ("1", "whatsapp", "Hello"));
    assert_eq!(world.store.conversations(world.tenant, ConversationFilter::default(), Page::default()).await.unwrap().len(), 1);

    // The newest address counts, and the newest message.
    let earlier = NewContact { inbound_at: world.in_s(-3600), ..world.contact("1", "49171") };
    assert_eq!(world.store.contact(earlier).await.unwrap(), found[0]);
    world.store.contact(world.contact("2", "49172")).await.unwrap();
    let of = |ids: &[&str]| world.store.contacts_of(world.tenant, "whatsapp".to_owned(), ids.iter().map(|id| (*id).to_owned()).collect());
    let contacts = of(&["2", "1", "3"]).await.unwrap();
    let addresses: Vec<_> = contacts.iter().map(|contact| (contact.user_id.as_str(), contact.address.as_str())).collect();
    assert_eq!(addresses, [("2", "49172"), ("1", "49171")]);
    assert_eq!(contacts[1].last_inbound_at.map(Timestamp::as_millisecond), Some(world.now.as_millisecond()));
    assert_eq!(contacts[1].conversation_id, Some(found[0]));

    // A deleted conversation takes its rows with it and leaves the person.
    let mut row = world.outbox_row(None, "1");
    row.conversation_id = Some(found[0]);
    let id = world.send(vec![row]).await[0];
    assert!(world.store.delete_conversation(world.tenant, found[0]).await.unwrap());
    assert_eq!(world.find(world.tenant, id).await, None);
    assert_eq!(of(&["1"]).await.unwrap()[0].conversation_id, None);
    assert_eq!((world.claimed().await, world.next_due().await), (Vec::new(), None), "its lane is gone too");
    let new = world.contact("1", "49171");
    let id = new.conversation_id;
    assert_eq!(world.store.contact(new).await.unwrap(), id);
}

pub(crate) async fn old_rows_of_the_outbox_are_deleted(mut world: World<impl Store>) {
    let lanes = ["sent", "dead", "open"];
    let ids = world.send(lanes.iter().map(|lane| world.in_lane(lane, None, lane)).collect()).await;
    for claimed in world.claimed().await {
        let Claimed::Send(row) = claimed else { panic!("{claimed:?}") };
        match row.recipient.lane.as_str() {
            "sent" => assert!(world.settle(&row, sent("w")).await),
            "dead" => assert!(world.settle(&row, dead("100")).await),
            _ => {}
        }
    }
    world.later(1000);
    let young = world.send(vec![NewOutboxRow { dead: Some("x".to_owned()), ..world.outbox_row(None, "young") }]).await[0];
    let sweep = Sweep { rows: Sweepable::Outbox, before: world.now, now: world.now, dry_run: true };
    assert_eq!(world.store.sweep(sweep, None).await.unwrap().rows, 2);
    assert_eq!(world.store.sweep(Sweep { dry_run: false, ..sweep }, None).await.unwrap().rows, 2);
    let kept = world.store.outbox(world.tenant, OutboxFilter::default(), Page::default()).await.unwrap();
    assert_eq!(kept.iter().map(|row| row.id).collect::<Vec<_>>(), [ids[2], young]);
}
