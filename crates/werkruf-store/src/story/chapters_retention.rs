//! Rows that were kept long enough: what goes together, what stays because somebody still needs it, and that it goes in batches.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{CallStatus, Effect, TurnStatus, Uuid};

use super::world::{OWNER, Running, to};
use super::{Store, World};
use crate::{
    CallFilter, CallRetry, CallRow, ConversationRef, NewApproval, OpenTurn, Opened, Page, Summary, Sweep, Sweepable, Swept, TurnKind,
};

impl<S: Store> World<S> {
    /// All batches; how many rows and conversations went.
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

    /// How many rows go, first counted and then deleted; conversations too.
    async fn swept(&self, rows: Sweepable, before: Timestamp) -> (u64, u64) {
        let counted = self.sweep(rows, before, true).await.0;
        let (gone, conversations) = self.sweep(rows, before, false).await;
        assert_eq!(counted, gone, "{rows:?}: what was counted is what goes");
        assert_eq!(self.sweep(rows, before, false).await.0, 0, "{rows:?}: once");
        (gone, conversations)
    }

    async fn go_on(&self, in_conversation: Uuid, text: &str) -> Running {
        self.begin(self.opening(ConversationRef::Existing { id: in_conversation, any_user: false }, text)).await
    }

    /// A turn with one call, from beginning to end.
    async fn whole_turn(&self, running: &Running, output_index: u32) -> CallRow {
        let call = self.call(running, output_index);
        self.act(running, std::slice::from_ref(&call)).await;
        self.finish_call(running, &call).await;
        self.complete(running).await;
        call
    }

    /// Places and roles of what is left.
    async fn left(&self, conversation: Uuid) -> Vec<(i64, String)> {
        let rows = self.store.history(self.tenant, conversation).await.unwrap();
        rows.into_iter().map(|row| (row.seq.unwrap(), row.role)).collect()
    }

    async fn calls_left(&self) -> usize {
        self.store.calls(self.tenant, CallFilter::default(), Page::default()).await.unwrap().len()
    }

    async fn has_turn(&self, turn: Uuid) -> bool {
        self.store.turn(self.tenant, turn).await.unwrap().is_some()
    }
}

fn roles(first: i64, roles: &[&str]) -> Vec<(i64, String)> {
    roles.iter().zip(first..).map(|(role, seq)| (seq, (*role).to_owned())).collect()
}

pub(crate) async fn old_messages_go_in_whole_turns<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let conversation = first.conversation;
    world.whole_turn(&first, 0).await;
    let mut second = world.opening(ConversationRef::Existing { id: conversation, any_user: false }, "second");
    (second.client, second.request_digest) = (Some(r#"{"history":[]}"#.to_owned()), Some("digest".to_owned()));
    let second = world.begin(second).await;
    let mut write = world.to_write(&second);
    write.summary = Some(Summary { until: 4, text: "They said hello.".to_owned() });
    world.store.write(write).await.unwrap();
    world.complete(&second).await;
    let before = world.later(1_000);
    let third = world.go_on(conversation, "third").await;
    world.whole_turn(&third, 1).await;

    assert_eq!(world.swept(Sweepable::Messages, before).await, (6, 0));
    assert_eq!(world.left(conversation).await, roles(7, &["user", "assistant", "tool", "assistant"]), "a later beginning, and no hole");
    let turn = world.store.turn(world.tenant, first.turn).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.message), (TurnStatus::Completed, None), "a turn with calls stays, without its words");
    assert!(!world.has_turn(second.turn).await, "one with nothing left goes");
    assert_eq!(world.store.turn_by_request_digest(world.tenant, "1".to_owned(), "digest".to_owned()).await.unwrap(), None);
    assert_eq!(world.store.summary(world.tenant, conversation).await.unwrap(), None, "it told of nothing that is left");
    assert_eq!(world.store.conversation(world.tenant, conversation).await.unwrap().unwrap().title, "third");
    assert_eq!(world.calls_left().await, 2, "calls have a window of their own");

    // Numbers go on where they were; with the calls gone too, the turn's row has nothing to hold.
    let fourth = world.go_on(conversation, "fourth").await;
    world.complete(&fourth).await;
    assert_eq!(world.left(conversation).await[4..], roles(11, &["user", "assistant"]));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0));
    assert!(!world.has_turn(first.turn).await);
    assert!(world.has_turn(third.turn).await);
}

pub(crate) async fn a_turn_that_spoke_last_after_others_keeps_them<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let conversation = first.conversation;
    // The first turn lets go of the lease as one that waits for a word does, and another is answered meanwhile.
    let mut write = world.to_write(&first);
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let second = world.go_on(conversation, "second").await;
    world.complete(&second).await;
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0), "a turn waits for a word");
    let fence = world.store.take_over(world.tenant, first.turn, OWNER.to_owned(), world.now).await.unwrap();
    world.complete(&Running { fence, ..first.clone() }).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 0), "the first to have spoken ended late");

    let before = world.later(1_000);
    let third = world.go_on(conversation, "third").await;
    world.complete(&third).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    assert_eq!(world.left(conversation).await, roles(5, &["user", "assistant"]));

    // The other way round: the one that ended late is young.
    let late = world.go_on(conversation, "late").await;
    let mut write = world.to_write(&late);
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let fifth = world.go_on(conversation, "fifth").await;
    world.complete(&fifth).await;
    let fence = world.store.take_over(world.tenant, late.turn, OWNER.to_owned(), world.now).await.unwrap();
    let before = world.later(1_000);
    world.complete(&Running { fence, ..late.clone() }).await;
    assert_eq!(world.swept(Sweepable::Messages, before).await, (2, 0), "only what lies before it");
    assert_eq!(world.left(conversation).await, roles(7, &["user", "user", "assistant", "assistant"]));
}

pub(crate) async fn what_is_not_over_stays<S: Store>(mut world: World<S>) {
    let (running, known, unknown) = (world.talk().await, world.opening(world.new_conversation(), "known"), world.talk().await);
    let known = world.begin(OpenTurn { inbox: Some(world.inbox("key-1", "print")), ..known }).await;
    world.whole_turn(&known, 0).await;
    let mut call = world.call(&unknown, 0);
    call.effect = Effect::Once;
    world.act(&unknown, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&unknown);
    let mut end = world.end(&call, CallStatus::Timeout);
    (end.response, end.error_code) = (None, Some("outcome_unknown".to_owned()));
    write.ends = vec![end];
    let mut result = world.message("tool", "nobody knows");
    (result.tool_call_id, result.status) = (Some("call_0".to_owned()), Some("error"));
    write.messages = vec![result];
    world.store.write(write).await.unwrap();
    world.complete(&unknown).await;

    let before = world.later(1_000);
    for rows in [Sweepable::Messages, Sweepable::Calls] {
        assert_eq!(world.swept(rows, before).await, (0, 0), "{rows:?}");
    }
    assert_eq!(world.left(running.conversation).await.len(), 1);

    // A day later the key is free; until then a second copy is known for one.
    let mut again = world.opening(world.new_conversation(), "known");
    again.inbox = Some(world.inbox("key-1", "print"));
    let opened = world.store.open_turn(again).await.unwrap();
    assert_eq!(opened, Opened::Duplicate { turn_id: known.turn, same_body: true });
    world.now += SignedDuration::from_hours(24);
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 1));
    assert!(world.store.conversation(world.tenant, known.conversation).await.unwrap().is_none());

    // Whether it happened is for the person to say, however long ago it was.
    let spoken = world.go_on(unknown.conversation, "it did").await;
    world.complete(&spoken).await;
    let found = world.store.reusable_call(world.tenant, Some(unknown.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(found.message_since);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.left(unknown.conversation).await, roles(5, &["user", "assistant"]));

    // The turn that runs goes on as if nothing had been.
    world.whole_turn(&running, 0).await;
    assert_eq!(world.left(running.conversation).await, roles(1, &["user", "assistant", "tool", "assistant"]));
}

pub(crate) async fn calls_go_with_all_that_is_theirs<S: Store>(mut world: World<S>) {
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
        arguments: "{}".to_owned(),
        arguments_digest: "digest".to_owned(),
        approver_roles: vec!["lead".to_owned()],
        asked_by: "1".to_owned(),
        expires_at: world.now,
    }];
    let wish = write.approvals[0].id;
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
    for gone in [call.id, own.id] {
        assert!(world.store.call(world.tenant, gone).await.unwrap().is_none());
        assert!(world.store.attempts(world.tenant, gone).await.unwrap().is_empty());
    }
    assert!(world.store.approval(world.tenant, wish).await.unwrap().is_none());
    assert!(world.store.call(world.tenant, kept.id).await.unwrap().is_some());
    assert!(world.has_turn(inside.turn).await, "the conversation has it still");
    assert!(!world.has_turn(alone.turn).await, "one outside any conversation was its call");
    assert_eq!(world.store.first_event(world.tenant, alone.turn).await.unwrap(), 1, "and its log");
    assert_eq!(world.left(inside.conversation).await.len(), 4, "messages have a window of their own");
}

pub(crate) async fn an_empty_conversation_goes_and_bills_stay_for_their_time<S: Store>(mut world: World<S>) {
    let (old, open) = (world.talk().await, world.talk().await);
    world.whole_turn(&old, 0).await;
    let mut write = world.to_write(&open);
    write.usage = vec![world.usage()];
    world.store.write(write).await.unwrap();
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Messages, before).await, (4, 0));
    let shell = world.store.conversation(world.tenant, old.conversation).await.unwrap().unwrap();
    assert_eq!(shell.title, "", "its calls keep it, and no word of it");
    assert_eq!(world.swept(Sweepable::Calls, before).await, (1, 0));
    assert_eq!(world.sweep(Sweepable::Events, before, true).await.0, 4, "counted and kept");
    assert_eq!(world.swept(Sweepable::Messages, before).await, (0, 1));
    assert!(world.store.conversation(world.tenant, old.conversation).await.unwrap().is_none());
    assert!(!world.has_turn(old.turn).await);
    assert_eq!(world.sweep(Sweepable::Events, before, true).await.0, 0, "its log went with it");
    assert_eq!(world.store.first_event(world.tenant, old.conversation).await.unwrap(), 1);
    assert_eq!(world.store.turn_usage(world.tenant, old.turn).await.unwrap().model_calls, 2);

    assert_eq!(world.swept(Sweepable::Usage, before).await, (2, 0), "a turn that goes on counts what it has cost");
    assert_eq!(world.store.turn_usage(world.tenant, old.turn).await.unwrap().model_calls, 0);
    assert_eq!(world.store.turn_usage(world.tenant, open.turn).await.unwrap().model_calls, 1);
    world.complete(&open).await;
    let before = world.later(1_000);
    assert_eq!(world.swept(Sweepable::Usage, before).await, (2, 0));
}

pub(crate) async fn a_long_conversation_is_swept_in_batches<S: Store>(mut world: World<S>) {
    let first = world.talk().await;
    let said = |world: &World<S>, running: &Running| {
        let mut write = world.to_write(running);
        write.messages = (0..398).map(|_| world.message("assistant", "and so on")).collect();
        write
    };
    world.store.write(said(&world, &first)).await.unwrap();
    world.complete(&first).await;
    for _ in 0..3 {
        let next = world.go_on(first.conversation, "more").await;
        world.store.write(said(&world, &next)).await.unwrap();
        world.complete(&next).await;
    }
    // A turn that is larger than any batch goes whole all the same.
    let giant = world.go_on(first.conversation, "much more").await;
    for _ in 0..2 {
        world.store.write(said(&world, &giant)).await.unwrap();
    }
    world.complete(&giant).await;
    let before = world.later(1_000);
    let last = world.go_on(first.conversation, "last").await;
    world.complete(&last).await;
    let (commits, counted) = (world.store.counts().commits, world.sweep(Sweepable::Messages, before, true).await.0);
    assert_eq!(world.sweep(Sweepable::Messages, before, false).await, (4 * 400 + 798, 0));
    assert_eq!(counted, 4 * 400 + 798);
    assert!(world.store.counts().commits - commits >= 5, "turns go on in between");
    assert_eq!(world.left(first.conversation).await, roles(2399, &["user", "assistant"]));
}
