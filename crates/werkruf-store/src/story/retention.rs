//! Retention: which rows are deleted together, which ones stay because they are still needed, and deletion in batches.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{CallStatus, Effect, TurnStatus, Uuid};

use super::world::{OWNER, Running, to};
use super::{Store, World};
use crate::{
    CallFilter, CallRetry, CallRow, ConversationRef, NewApproval, OpenTurn, Opened, Page, RequestsOf, Summary, Sweep, Sweepable, Swept,
    TurnKind,
};

impl<S: Store> World<S> {
    /// Runs all batches, and returns how many rows and conversations were deleted.
    async fn sweep(&self, rows: Sweepable, before: Timestamp, dry_run: bool) -> (u64, u64) {
        let sweep = Sweep { rows, before, now: self.now, dry_run };
        let (mut total, mut after) = (Swept::default(), None);
        loop {
            let Swept { rows, conversations, next } = self.store.sweep(sweep, after).await.unwrap();
            total.rows += rows;
            total.conversations += conversations;
            if next.is_none() {
                return (total.rows, total.conversations);
            }
            after = next;
        }
    }

    /// Counts with a dry run, then deletes. Returns the deleted rows and conversations.
    async fn swept(&self, rows: Sweepable, before: Timestamp) -> (u64, u64) {
        let counted = self.sweep(rows, before, true).await.0;
        let (deleted, conversations) = self.sweep(rows, before, false).await;
        assert_eq!(counted, deleted, "{rows:?}: a dry run counts what a run deletes");
        assert_eq!(self.sweep(rows, before, false).await.0, 0, "{rows:?}: only once");
        (deleted, conversations)
    }

    async fn next_turn(&self, in_conversation: Uuid, text: &str) -> Running {
        self.begin(self.opening(ConversationRef::Existing { id: in_conversation, any_user: false }, text)).await
    }

    /// Runs a whole turn with one call.
    async fn whole_turn(&self, running: &Running, output_index: u32) -> CallRow {
        let call = self.call(running, output_index);
        self.act(running, std::slice::from_ref(&call)).await;
        self.finish_call(running, &call).await;
        self.complete(running).await;
        call
    }

    /// Numbers and roles of the remaining messages.
    async fn remaining(&self, conversation: Uuid) -> Vec<(i64, String)> {
        let rows = self.store.history(self.tenant, conversation).await.unwrap();
        rows.into_iter().map(|row| (row.seq.unwrap(), row.role)).collect()
    }

    async fn call_count(&self) -> usize {
        self.store.calls(self.tenant, CallFilter::default(), Page::default()).await.unwrap().len()
    }

    async fn has_turn(&self, turn: Uuid) -> bool {
        self.store.turn(self.tenant, turn).await.unwrap().is_some()
    }
}

fn roles(first: i64, roles: &[&str]) -> Vec<(i64, String)> {
    roles.iter().zip(first..).map(|(role, seq)| (seq, (*role).to_owned())).collect()
}

pub(crate) async fn old_messages_are_deleted_in_whole_turns<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let conversation = first.conversation;
    world.whole_turn(&first, 0).await;
    let mut second = world.opening(ConversationRef::Existing { id: conversation, any_user: false }, "second");
    (second.client, second.request_digest) = (Some(r#"{"history":[]}"#.to_owned()), Some("digest".to_owned()));
    let second = world.begin(second).await;
    let mut write = world.to_write(&second);
    write.summary = Some(Summary { until: 4, text: "They said hello.".to_owned(), untrusted: None });
    world.store.write(write).await.unwrap();
    world.complete(&second).await;
    let before = world.later(1_000);
    let third = world.next_turn(conversation, "third").await;
    world.whole_turn(&third, 1).await;

    assert_eq!(world.swept(Sweepable::Messages, before).await, (6, 0));
    assert_eq!(world.remaining(conversation).await, roles(7, &["user", "assistant", "tool", "assistant"]), "a later start, and no gap");
    let turn = world.store.turn(world.tenant, first.turn).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.message), (TurnStatus::Completed, None), "a turn with calls stays, without its text");
    assert!(!world.has_turn(second.turn).await, "a turn without rows is deleted");
    assert_eq!(world.store.turns_by_request_digest(world.tenant, "1".to_owned(), "digest".to_owned()).await.unwrap(), []);
    assert_eq!(world.store.summary(world.tenant, conversation).await.unwrap(), None, "all its messages are deleted");
    assert_eq!(world.store.conversation(world.tenant, conversation).await.unwrap().unwrap().title, "third");
    assert_eq!(world.call_count().await, 2, "calls have their own retention time");

    // Numbers continue; once the calls are deleted too, the turn row is deleted.
    let fourth = world.next_turn(conversation, "fourth").await;
    world.complete(&fourth).await;
    assert_eq!(world.remaining(conversation).await[4..], roles(11, &["user", "assistant"]));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0));
    assert!(!world.has_turn(first.turn).await);
    assert!(world.has_turn(third.turn).await);
}

pub(crate) async fn a_turn_that_ended_after_later_turns_keeps_them<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let conversation = first.conversation;
    // The first turn releases the lease while it waits for an approval, and another turn runs meanwhile.
    let mut write = world.to_write(&first);
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let second = world.next_turn(conversation, "second").await;
    world.complete(&second).await;
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0), "a turn waits for an approval");
    let fence = world.store.take_over(world.tenant, first.turn, OWNER.to_owned(), world.now).await.unwrap();
    world.complete(&Running { fence, ..first.clone() }).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0), "the first turn ended late");

    let before = world.later(1_000);
    let third = world.next_turn(conversation, "third").await;
    world.complete(&third).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    assert_eq!(world.remaining(conversation).await, roles(5, &["user", "assistant"]));

    // The reverse case: the turn that ended late is not old enough.
    let late = world.next_turn(conversation, "late").await;
    let mut write = world.to_write(&late);
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let fifth = world.next_turn(conversation, "fifth").await;
    world.complete(&fifth).await;
    let fence = world.store.take_over(world.tenant, late.turn, OWNER.to_owned(), world.now).await.unwrap();
    let before = world.later(1_000);
    world.complete(&Running { fence, ..late.clone() }).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (2, 0), "only the messages before it");
    assert_eq!(world.remaining(conversation).await, roles(7, &["user", "user", "assistant", "assistant"]));
}

pub(crate) async fn unfinished_work_is_not_deleted<S: Store>(mut world: World<S>) {
    let (running, known, unknown) = (world.talk().await, world.opening(world.new_conversation(), "known"), world.talk().await);
    let known = world.begin(OpenTurn { inbox: Some(world.inbox("key-1", "print")), ..known }).await;
    world.whole_turn(&known, 0).await;
    let mut call = world.call(&unknown, 0);
    call.effect = Effect::Once;
    world.act(&unknown, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&unknown);
    write.ends = vec![world.unknown_end(&call)];
    let mut result = world.message("tool", "unknown");
    (result.tool_call_id, result.status) = (Some("call_0".to_owned()), Some("error"));
    write.messages = vec![result];
    world.store.write(write).await.unwrap();
    world.complete(&unknown).await;

    let before = world.later(1_000);
    for rows in [Sweepable::Messages, Sweepable::Calls] {
        assert_eq!(world.swept(rows, before).await, (0, 0), "{rows:?}");
    }
    assert_eq!(world.remaining(running.conversation).await.len(), 1);

    // A day later the inbox entry expires; until then a second copy is recognized.
    let mut again = world.opening(world.new_conversation(), "known");
    again.inbox = Some(world.inbox("key-1", "print"));
    let opened = world.store.open_turn(again).await.unwrap();
    assert_eq!(opened, Opened::Duplicate { turn_id: known.turn, same_body: true });
    world.now += SignedDuration::from_hours(24);
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 1));
    assert!(world.store.conversation(world.tenant, known.conversation).await.unwrap().is_none());

    // Only a later message of the user settles an unknown outcome, however old it is.
    let later = world.next_turn(unknown.conversation, "it did").await;
    world.complete(&later).await;
    let found = world.store.reusable_call(world.tenant, Some(unknown.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(found.message_since);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.remaining(unknown.conversation).await, roles(5, &["user", "assistant"]));

    // The running turn continues unaffected.
    world.whole_turn(&running, 0).await;
    assert_eq!(world.remaining(running.conversation).await, roles(1, &["user", "assistant", "tool", "assistant"]));
}

/// An import into a conversation that went on gives an older message the highest number.
pub(crate) async fn an_older_message_with_a_higher_number_changes_nothing<S: Store>(mut world: World<S>) {
    let started = world.now;
    let unknown = world.talk().await;
    let mut call = world.call(&unknown, 0);
    call.effect = Effect::Once;
    world.act(&unknown, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&unknown);
    write.ends = vec![world.unknown_end(&call)];
    world.store.write(write).await.unwrap();
    world.later(10);
    world.complete(&unknown).await;
    let ended = world.later(10);
    world.now = started;
    let older = world.next_turn(unknown.conversation, "before the outcome").await;
    world.complete(&older).await;
    let before = world.later(1_000);
    for rows in [Sweepable::Messages, Sweepable::Calls] {
        assert_eq!(world.swept(rows, before).await, (0, 0), "{rows:?}: only an older message was sent");
    }

    world.now = ended;
    let later = world.next_turn(unknown.conversation, "it did").await;
    world.complete(&later).await;
    world.now = started;
    let older = world.next_turn(unknown.conversation, "also before the outcome").await;
    world.complete(&older).await;
    let found = world.store.reusable_call(world.tenant, Some(unknown.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(found.message_since, "the call may be repeated");
    world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (9, 0));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
}

/// All of it happens in one millisecond, so only the order of the events says what was sent before the outcome was known.
pub(crate) async fn only_a_message_after_an_unknown_outcome_settles_it<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    let mut call = world.call(&running, 0);
    call.effect = Effect::Once;
    world.act(&running, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&running);
    write.ends = vec![world.unknown_end(&call)];
    world.store.write(write).await.unwrap();
    let queued = world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "and then?");
    let queued = OpenTurn { start: false, ..queued };
    let turn = queued.turn_id;
    world.store.open_turn(queued).await.unwrap();
    world.complete(&running).await;
    let fence = world.store.start_turn(world.tenant, turn, OWNER, world.now).await.unwrap();
    world.complete(&Running { fence, turn, ..running.clone() }).await;
    let settled = async |world: &World<S>| {
        let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap();
        found.unwrap().message_since
    };

    let ended = world.now;
    let before = world.later(1_000);
    for rows in [Sweepable::Messages, Sweepable::Calls] {
        assert_eq!(world.swept(rows, before).await, (0, 0), "{rows:?}: the message was sent before the outcome was known");
    }
    assert!(!settled(&world).await);
    world.now = ended;
    let later = world.next_turn(running.conversation, "it did").await;
    world.complete(&later).await;
    assert!(settled(&world).await);
    world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (7, 0));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
}

pub(crate) async fn calls_are_deleted_with_their_rows<S: Store>(mut world: World<S>) {
    let inside = world.talk().await;
    let mut call = world.call(&inside, 0);
    (call.status, call.attempt) = (CallStatus::Running, 1);
    world.act(&inside, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&inside);
    let error = r#"{"type":"UPSTREAM"}"#.to_owned();
    let (started_at, finished_at, next_started_at) = (world.now, world.now, world.now);
    write.retries =
        vec![CallRetry { id: call.id, attempt: 1, started_at, finished_at, status: CallStatus::Failed, error, next_started_at }];
    write.approvals = vec![NewApproval {
        id: world.id(),
        call_id: call.id,
        tool_name: call.tool_name.clone(),
        server_label: None,
        arguments: "{}".to_owned(),
        arguments_digest: "digest".to_owned(),
        approver_roles: vec!["lead".to_owned()],
        taint: None,
        asked_by: "1".to_owned(),
        asked_key: "key:1".to_owned(),
        retried_by: None,
        expires_at: world.now,
    }];
    let approval = write.approvals[0].id;
    world.store.write(write).await.unwrap();
    world.finish_call(&inside, &call).await;
    world.complete(&inside).await;
    let alone = world.begin(OpenTurn { kind: TurnKind::Invoke, message: None, ..world.opening(ConversationRef::None, "") }).await;
    let mut own = world.call(&alone, 0);
    own.conversation_id = None;
    let mut write = world.to_write(&alone);
    (write.conversation_id, write.calls, write.ends) = (None, vec![own.clone()], vec![world.end(&own, CallStatus::Succeeded)]);
    write.turn = Some(to(TurnStatus::Completed));
    world.store.write(write).await.unwrap();

    let before = world.later(1_000);
    let young = world.talk().await;
    let kept = world.whole_turn(&young, 0).await;
    assert_eq!(world.swept(Sweepable::Calls, before).await, (2, 0));
    for deleted in [call.id, own.id] {
        assert!(world.store.call(world.tenant, deleted).await.unwrap().is_none());
        assert!(world.store.attempts(world.tenant, deleted).await.unwrap().is_empty());
    }
    assert!(world.store.approval(world.tenant, approval).await.unwrap().is_none());
    assert!(world.store.call(world.tenant, kept.id).await.unwrap().is_some());
    assert!(world.has_turn(inside.turn).await, "the conversation still has it");
    assert!(!world.has_turn(alone.turn).await, "a turn without a conversation is deleted with its calls");
    assert_eq!(world.store.first_event(world.tenant, alone.turn).await.unwrap(), 1, "and with its events");
    assert_eq!(world.remaining(inside.conversation).await.len(), 4, "messages have their own retention time");
}

pub(crate) async fn an_empty_conversation_is_deleted_and_usage_rows_stay<S: Store>(mut world: World<S>) {
    let (old, open) = (world.talk().await, world.talk().await);
    world.whole_turn(&old, 0).await;
    let mut write = world.to_write(&open);
    write.usage = vec![world.usage()];
    world.store.write(write).await.unwrap();
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    let emptied = world.store.conversation(world.tenant, old.conversation).await.unwrap().unwrap();
    assert_eq!(emptied.title, "", "it stays for its calls, without its title");
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.sweep(Sweepable::Events, before, true).await.0, 4, "counted, not deleted");
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 1));
    assert!(world.store.conversation(world.tenant, old.conversation).await.unwrap().is_none());
    assert!(!world.has_turn(old.turn).await);
    assert_eq!(world.sweep(Sweepable::Events, before, true).await.0, 0, "its events were deleted with it");
    assert_eq!(world.store.first_event(world.tenant, old.conversation).await.unwrap(), 1);
    assert_eq!(world.store.turn_usage(world.tenant, old.turn, RequestsOf::Turn).await.unwrap().model_calls, 2);

    assert_eq!(world.swept(Sweepable::Usage, before).await, (2, 0), "the usage rows of an unfinished turn stay");
    assert_eq!(world.store.turn_usage(world.tenant, old.turn, RequestsOf::Turn).await.unwrap().model_calls, 0);
    assert_eq!(world.store.turn_usage(world.tenant, open.turn, RequestsOf::Turn).await.unwrap().model_calls, 1);
    world.complete(&open).await;
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Usage, before).await, (2, 0));
}

pub(crate) async fn a_long_conversation_is_swept_in_batches<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let many_messages = |world: &World<S>, running: &Running| {
        let mut write = world.to_write(running);
        write.messages = (0..398).map(|_| world.message("assistant", "and so on")).collect();
        write
    };
    world.store.write(many_messages(&world, &first)).await.unwrap();
    world.complete(&first).await;
    for _ in 0..3 {
        let next = world.next_turn(first.conversation, "more").await;
        world.store.write(many_messages(&world, &next)).await.unwrap();
        world.complete(&next).await;
    }
    // A turn that is larger than a batch is still deleted as a whole.
    let giant = world.next_turn(first.conversation, "much more").await;
    for _ in 0..2 {
        world.store.write(many_messages(&world, &giant)).await.unwrap();
    }
    world.complete(&giant).await;
    let before = world.later(1_000);
    let last = world.next_turn(first.conversation, "last").await;
    world.complete(&last).await;
    let (commits, counted) = (world.store.counts().commits, world.sweep(Sweepable::Messages, before, true).await.0);
    assert_eq!(world.sweep(Sweepable::Messages, before, false).await, (4 * 400 + 798, 0));
    assert_eq!(counted, 4 * 400 + 798);
    assert!(world.store.counts().commits - commits >= 5, "other writes run in between");
    assert_eq!(world.remaining(first.conversation).await, roles(2399, &["user", "assistant"]));
}
