//! Limited reads of events, partial texts, canceled waiting turns, and the deletion of old events.

use jiff::Timestamp;
use werkruf_contract::{EventType, TurnStatus};

use super::world::{OWNER, Running, event};
use super::{Store, World};
use crate::{ConversationRef, NewEvent, NewPartial, OpenTurn, Opened, Page, PartialText, ReadLimit, RowKey, Sweep, Sweepable, Swept};

fn partial(running: &Running, step: u32, content: &str) -> NewPartial {
    NewPartial { fence: running.fence.clone(), turn_id: running.turn, step, content: content.to_owned() }
}

impl<S: Store> World<S> {
    async fn saved_partial(&self, running: &Running) -> Option<(u32, String)> {
        let found = self.store.partial(self.tenant, running.conversation).await.unwrap();
        found.map(|PartialText { turn_id, step, content }| {
            assert_eq!(turn_id, running.turn);
            (step, content)
        })
    }

    /// Opens a second turn behind a running one, and returns its id.
    async fn wait_behind(&self, first: &Running, text: &str) -> werkruf_contract::Uuid {
        let mut open = self.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, text);
        open.start = false;
        let turn = open.turn_id;
        assert!(matches!(self.store.open_turn(open).await.unwrap(), Opened::Stored { fence: None, .. }));
        turn
    }

    async fn cancel(&self, turn: werkruf_contract::Uuid) -> Option<i64> {
        self.store.cancel_waiting(self.tenant, turn, self.cancellation()).await.unwrap()
    }

    async fn numbered_texts(&self, running: &Running) -> Vec<(Option<i64>, String)> {
        let listed = self.store.messages(self.tenant, running.conversation, Page::default()).await.unwrap();
        listed.into_iter().map(|message| (message.seq, message.content)).collect()
    }
}

pub(crate) async fn partial_text_is_saved_under_the_lease_until_its_step_is_committed<S: Store>(world: World<S>) {
    let (first, second) = (world.talk().await, world.talk().await);
    let batch = vec![partial(&first, 1, "Hel"), partial(&second, 1, "Gru")];
    assert_eq!(world.store.save_partials(batch, world.now).await.unwrap(), 2);
    assert_eq!(world.store.save_partials(vec![partial(&first, 1, "Hello")], world.now).await.unwrap(), 1);
    assert_eq!(world.saved_partial(&first).await, Some((1, "Hello".to_owned())));
    assert_eq!(world.saved_partial(&second).await, Some((1, "Gru".to_owned())));
    assert_eq!(world.store.partial(world.id(), first.conversation).await.unwrap(), None, "another tenant reads nothing");

    let mut stale = partial(&first, 1, "ghost");
    stale.fence.epoch -= 1;
    let batch = vec![stale, partial(&first, 2, "too early"), partial(&second, 1, "Grusse")];
    assert_eq!(world.store.save_partials(batch, world.now).await.unwrap(), 1, "the others are left out");
    assert_eq!(world.saved_partial(&first).await, Some((1, "Hello".to_owned())));

    // A retried model stream discards the partial text and its checkpoint.
    let mut reset = world.to_write(&first);
    reset.events = vec![event(EventType::AssistantReset)];
    world.store.write(reset).await.unwrap();
    assert_eq!(world.saved_partial(&first).await, None);

    // The step is committed: a late checkpoint finds its step closed.
    world.store.save_partials(vec![partial(&first, 1, "Hello")], world.now).await.unwrap();
    world.act(&first, &[world.call(&first, 0)]).await;
    assert_eq!(world.saved_partial(&first).await, None);
    assert_eq!(world.store.save_partials(vec![partial(&first, 1, "late")], world.now).await.unwrap(), 0);
    assert_eq!(world.store.save_partials(vec![partial(&first, 2, "next")], world.now).await.unwrap(), 1);
    world.complete(&first).await;
    assert_eq!(world.saved_partial(&first).await, None);
    assert_eq!(world.store.save_partials(vec![partial(&first, 3, "later")], world.now).await.unwrap(), 0);
}

pub(crate) async fn a_read_of_events_is_bounded_by_rows_and_bytes<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let mut write = world.to_write(&running);
    write.events = (0..9).map(|_| NewEvent { kind: EventType::ToolStarted, data: format!("\"{}\"", "x".repeat(98)) }).collect();
    world.store.write(write).await.unwrap();
    let bite = async |after, rows, bytes| {
        let found = world.store.events(world.tenant, running.conversation, None, after, ReadLimit { rows, bytes }).await.unwrap();
        found.iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    assert_eq!(bite(0, 4, usize::MAX).await, [1, 2, 3, 4]);
    assert_eq!(bite(1, 9, 250).await, [2, 3, 4], "the row that goes beyond is the last");
    assert_eq!(bite(4, 9, 0).await, [5], "never nothing while there is something");
    assert_eq!(bite(8, 9, usize::MAX).await, [9, 10]);
    assert_eq!(bite(10, 9, usize::MAX).await, [0_i64; 0]);
    let foreign = world.store.events(world.id(), running.conversation, None, 0, ReadLimit { rows: 9, bytes: 9 }).await.unwrap();
    assert_eq!(foreign, []);
}

pub(crate) async fn a_waiting_turn_is_canceled_and_its_message_kept<S: Store>(world: World<S>) {
    let first = world.talk().await;
    let second = world.wait_behind(&first, "second").await;
    let third = world.wait_behind(&first, "third").await;
    let fourth = world.wait_behind(&first, "fourth").await;
    assert_eq!(world.cancel(first.turn).await, None, "it runs");
    assert_eq!(world.cancel(third).await, Some(5));
    assert_eq!(world.cancel(third).await, None, "it has ended");
    let turn = world.store.turn(world.tenant, third).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.error_code.as_deref(), turn.finished_at), (TurnStatus::Canceled, Some("canceled"), Some(world.now)));
    assert!(world.store.start_turn(world.tenant, third, OWNER, world.now).await.is_err(), "it never begins");
    // The lease of the running turn is unchanged, and no message is between its call and the result.
    let call = world.call(&first, 0);
    world.act(&first, std::slice::from_ref(&call)).await;
    world.finish_call(&first, &call).await;
    world.complete(&first).await;

    let text =
        |listed: &[(Option<i64>, String)]| listed.iter().map(|(seq, text)| format!("{}{text}", seq.unwrap_or(0))).collect::<Vec<_>>();
    let fence = world.store.start_turn(world.tenant, second, OWNER, world.now).await.unwrap();
    assert_eq!(text(&world.numbered_texts(&first).await), ["1hello", "2", "3{}", "4done", "5second", "0third", "0fourth"]);
    world.complete(&Running { fence, turn: second, ..first.clone() }).await;
    let fence = world.store.start_turn(world.tenant, fourth, OWNER, world.now).await.unwrap();
    assert_eq!(text(&world.numbered_texts(&first).await)[4..], ["5second", "6done", "7third", "8fourth"], "in the order of their arrival");
    let last = Running { fence, turn: fourth, ..first.clone() };
    let fifth = world.wait_behind(&first, "fifth").await;
    world.complete(&last).await;
    assert!(world.cancel(fifth).await.is_some());
    world.begin(world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "sixth")).await;
    assert_eq!(
        text(&world.numbered_texts(&first).await)[7..],
        ["8fourth", "9done", "10fifth", "11sixth"],
        "also before one that never waited"
    );
}

async fn delete_events<S: Store>(world: &World<S>, before: Timestamp, after: Option<RowKey>) -> Swept {
    let sweep = Sweep { rows: Sweepable::Events, before, now: world.now, dry_run: false };
    world.store.sweep(sweep, after).await.unwrap()
}

pub(crate) async fn events_are_deleted_from_the_start_without_gaps<S: Store>(mut world: World<S>) {
    let (old, open) = (world.talk().await, world.talk().await);
    let first = async |world: &World<S>, running: &Running| world.store.first_event(world.tenant, running.conversation).await.unwrap();
    world.complete(&old).await;
    assert_eq!((first(&world, &old).await, world.store.first_event(world.tenant, world.id()).await.unwrap()), (1, 1));
    let before = world.later(1_000);
    let begin = |world: &World<S>| world.opening(ConversationRef::Existing { id: old.conversation, any_user: false }, "again");
    let young = world.begin(begin(&world)).await;
    world.complete(&young).await;

    let deleted = delete_events(&world, before, None).await;
    assert_eq!((deleted.rows, deleted.next), (2, None), "old and ended");
    assert_eq!((first(&world, &old).await, first(&world, &open).await), (3, 1), "a running turn keeps its events");
    let all = world.later(1_000);
    assert_eq!(delete_events(&world, all, None).await.rows, 2);
    assert_eq!(first(&world, &old).await, 5, "no event is left, and the numbers do not start at 1 again");
    assert_eq!(delete_events(&world, all, None).await.rows, 0);
    let third = world.begin(begin(&world)).await;
    assert_eq!(world.complete(&third).await.event_seqs, [6]);
}

pub(crate) async fn events_of_a_turn_are_deleted_together<S: Store>(mut world: World<S>) {
    let first = async |world: &World<S>, id| world.store.first_event(world.tenant, id).await.unwrap();
    let long = world.talk().await;
    let window_start = world.later(1_000);
    // The next turn waits: its first event is between those of the long turn.
    let next = ConversationRef::Existing { id: long.conversation, any_user: false };
    let waiting = OpenTurn { start: false, ..world.opening(next, "next") };
    let waiting_id = waiting.turn_id;
    world.store.open_turn(waiting).await.unwrap();
    world.later(1_000);
    world.complete(&long).await;
    let ended = world.later(1_000);
    assert_eq!(delete_events(&world, window_start, None).await.rows, 0, "the turn started before the window and ended inside it");
    let counted = Sweep { rows: Sweepable::Events, before: window_start, now: world.now, dry_run: true };
    assert_eq!(world.store.sweep(counted, None).await.unwrap().rows, 0);
    assert_eq!(delete_events(&world, ended, None).await.rows, 0, "the first event of the waiting turn is between");
    let fence = world.store.start_turn(world.tenant, waiting_id, OWNER, world.now).await.unwrap();
    world.complete(&Running { fence, turn: waiting_id, ..long.clone() }).await;
    assert_eq!(delete_events(&world, ended, None).await.rows, 0, "both turns go together");
    let all = world.later(1_000);
    let counted = Sweep { before: all, ..counted };
    assert_eq!(world.store.sweep(counted, None).await.unwrap().rows, 4);
    assert_eq!((delete_events(&world, all, None).await.rows, first(&world, long.conversation).await), (4, 5));

    let large = world.talk().await;
    let mut write = world.to_write(&large);
    write.events = (0..2_500).map(|_| event(EventType::ToolStarted)).collect();
    world.store.write(write).await.unwrap();
    world.complete(&large).await;
    let (before, after) = (world.later(1_000), Some(RowKey { tenant_id: world.tenant, id: long.conversation }));
    let deleted = delete_events(&world, before, after).await;
    assert_eq!((deleted.rows, first(&world, large.conversation).await), (2_502, 2_503), "more events than a batch has");
}

pub(crate) async fn many_events_are_deleted_in_batches<S: Store>(mut world: World<S>) {
    let (mut streams, per_stream) = (Vec::new(), 450);
    for _ in 0..11 {
        let running = world.talk().await;
        let mut write = world.to_write(&running);
        write.events = (0..per_stream - 2).map(|_| event(EventType::ToolStarted)).collect();
        world.store.write(write).await.unwrap();
        world.complete(&running).await;
        streams.push(running);
    }
    let before = world.later(1_000);
    let (mut total, mut after, mut batches) = (0, None, 0);
    loop {
        let deleted = delete_events(&world, before, after).await;
        assert!(deleted.rows <= 2_000, "{deleted:?}");
        (total, after, batches) = (total + deleted.rows, deleted.next, batches + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((total, batches), (11 * per_stream, 3));
    for running in streams {
        assert_eq!(world.store.first_event(world.tenant, running.conversation).await.unwrap(), per_stream as i64 + 1);
    }
}
