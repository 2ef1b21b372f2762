//! Opening and ending turns, writes, queues and fences.

use serde_json::json;
use werkruf_contract::{CallStatus, EventType, TurnStatus};

use super::world::{OWNER, Running, event, state, to};
use super::{Store, World};
use crate::{
    CallFilter, CallRetry, CallRow, CallStart, ConversationFilter, ConversationRef, OpenTurn, Opened, Order, Page, ReadLimit, StoreError,
    TurnKind,
};

pub(crate) async fn a_turn_is_stored_in_four_commits<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    let call = world.call(&running, 0);
    world.later(5);
    assert_eq!(world.act(&running, std::slice::from_ref(&call)).await.event_seqs, [2]);
    world.later(5);
    assert_eq!(world.finish_call(&running, &call).await.event_seqs, [3]);
    world.later(5);
    assert_eq!(world.complete(&running).await.event_seqs, [4]);

    let history = world.store.history(world.tenant, running.conversation).await.unwrap();
    let listed: Vec<_> = history.iter().map(|m| (m.seq, m.role.as_str())).collect();
    assert_eq!(listed, [(Some(1), "user"), (Some(2), "assistant"), (Some(3), "tool"), (Some(4), "assistant")]);
    assert_eq!(history[2].tool_call_id.as_deref(), Some("call_0"));
    assert_eq!((history[0].metadata.as_str(), history[0].turn_id), ("{}", Some(running.turn)));

    let row = world.store.call(world.tenant, call.id).await.unwrap().unwrap();
    assert_eq!((row.status, row.finished_at.is_some(), row.took_ms()), (CallStatus::Succeeded, true, 10));
    assert_eq!(row.response.as_deref(), Some(r#"{"items":[]}"#));
    let unfinished = crate::CallRow { status: CallStatus::Running, response: None, updated_at: call.updated_at, finished_at: None, ..row };
    assert_eq!(unfinished, call, "every column is read as it was written");

    let turn = world.store.turn(world.tenant, running.turn).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.step, turn.message.as_deref()), (TurnStatus::Completed, 2, Some("done")));
    assert_eq!((turn.finished_at, turn.kind.as_str(), turn.cancel_requested), (Some(world.now), "chat", false));
    let events = world.store.events(world.tenant, running.conversation, Some(running.turn), 1, ReadLimit::rows(2)).await.unwrap();
    assert_eq!(events.iter().map(|e| (e.seq, e.kind)).collect::<Vec<_>>(), [(2, EventType::ToolStarted), (3, EventType::ToolFinished)]);
    let row = world.store.conversation(world.tenant, running.conversation).await.unwrap().unwrap();
    assert_eq!((row.user_id.as_str(), row.channel.as_str(), row.assistant.as_str(), row.title.as_str()), ("1", "web", "default", "Hello"));
    assert_eq!(world.store.call(world.id(), call.id).await.unwrap(), None, "another tenant reads nothing");
    assert_eq!(world.store.history(world.id(), running.conversation).await.unwrap(), []);
    world.store.ping().await.unwrap();
}

pub(crate) async fn a_second_message_waits_for_its_number<S: Store>(world: World<S>) {
    let first = world.talk().await;
    let mut open = world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "and more");
    let second = open.turn_id;
    open.start = false;
    let Opened::Stored { fence: None, event_seqs, .. } = world.store.open_turn(open).await.unwrap() else { panic!("started too early") };
    assert_eq!(event_seqs, [2]);
    assert_eq!(world.store.turn(world.tenant, second).await.unwrap().unwrap().status, TurnStatus::Accepted);
    let page = Page::default();
    let listed = world.store.messages(world.tenant, first.conversation, page).await.unwrap();
    assert_eq!(listed.iter().map(|m| (m.seq, m.content.as_str())).collect::<Vec<_>>(), [(Some(1), "hello"), (None, "and more")]);
    let rest = Page { after: Some(listed[0].id), ..Page::of(5, Order::OldestFirst) };
    assert_eq!(world.store.messages(world.tenant, first.conversation, rest).await.unwrap(), listed[1..]);
    let newest = Page { after: Some(listed[1].id), ..Page::of(5, Order::NewestFirst) };
    assert_eq!(world.store.messages(world.tenant, first.conversation, newest).await.unwrap(), listed[..1]);
    assert_eq!(world.store.history(world.tenant, first.conversation).await.unwrap().len(), 1);

    world.complete(&first).await;
    let fence = world.store.start_turn(world.tenant, second, OWNER, world.now).await.unwrap();
    assert!(fence.epoch > first.fence.epoch);
    let history = world.store.history(world.tenant, first.conversation).await.unwrap();
    let listed: Vec<_> = history.iter().map(|m| (m.seq, m.content.as_str())).collect();
    assert_eq!(listed, [(Some(1), "hello"), (Some(2), "done"), (Some(3), "and more")]);
    let again = world.store.start_turn(world.tenant, second, OWNER, world.now).await;
    assert!(matches!(again, Err(StoreError::Moved { what: "turn", .. })), "{again:?}");
    let running = Running { fence, conversation: first.conversation, turn: second };
    assert_eq!(world.complete(&running).await.event_seqs, [4]);
}

pub(crate) async fn a_lease_of_another_owner_makes_the_turn_wait<S: Store>(world: World<S>) {
    let first = world.talk().await;
    let mut open = world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "me too");
    open.owner = "process-2".to_owned();
    (open.credential, open.context) = ("key:1".to_owned(), Some(r#"{"case_id":"c-1"}"#.to_owned()));
    let turn = open.turn_id;
    let Opened::Stored { fence: None, event_seqs, .. } = world.store.open_turn(open).await.unwrap() else { panic!("stole the lease") };
    assert_eq!(event_seqs, [2]);
    let early = world.store.start_turn(world.tenant, turn, "process-2", world.now).await;
    assert!(matches!(early, Err(StoreError::Busy)), "{early:?}");
    world.complete(&first).await;
    world.store.start_turn(world.tenant, turn, "process-2", world.now).await.unwrap();
    let row = world.store.turn(world.tenant, turn).await.unwrap().unwrap();
    assert_eq!((row.credential.as_str(), row.context.as_deref()), ("key:1", Some(r#"{"case_id":"c-1"}"#)), "what the request said stays");
}

/// The owner may be the same process: a task that failed leaves a history with a call that has no result yet.
pub(crate) async fn an_abandoned_turn_is_resumed_before_another_starts<S: Store>(world: World<S>) {
    let first = world.talk().await;
    let existing = || ConversationRef::Existing { id: first.conversation, any_user: false };
    let waiting = world.opening(existing(), "and?");
    let second = waiting.turn_id;
    let opened = world.store.open_turn(waiting).await.unwrap();
    assert!(matches!(opened, Opened::Stored { fence: None, .. }), "the same owner started a second turn: {opened:?}");
    let mut direct = OpenTurn { message: None, kind: TurnKind::Invoke, ..world.opening(existing(), "") };
    direct.calls = vec![CallRow { turn_id: direct.turn_id, ..world.call(&first, 0) }];
    let (third, refused) = (direct.turn_id, world.store.open_turn(direct).await);
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    assert_eq!(world.store.turn(world.tenant, third).await.unwrap(), None, "a call that cannot start stores nothing");

    for (takeovers, released) in [(1, true), (1, false)] {
        let early = world.store.start_turn(world.tenant, second, OWNER, world.now).await;
        assert!(matches!(early, Err(StoreError::Busy)), "{early:?}");
        let unfinished = world.store.unfinished_turns(OWNER.to_owned()).await.unwrap();
        assert_eq!(unfinished.iter().map(|turn| turn.id).collect::<Vec<_>>(), [first.turn, second]);
        let fence = world.store.take_over(world.tenant, first.turn, OWNER.to_owned(), world.now).await.unwrap();
        assert_eq!(world.store.turn(world.tenant, first.turn).await.unwrap().unwrap().takeovers, takeovers);
        if released {
            world.store.release(fence).await.unwrap();
        } else {
            world.complete(&Running { fence, ..first.clone() }).await;
        }
    }
    world.store.start_turn(world.tenant, second, OWNER, world.now).await.unwrap();
}

pub(crate) async fn the_inbox_recognizes_a_second_copy<S: Store>(mut world: World<S>) {
    let mut open = world.opening(world.new_conversation(), "once");
    open.inbox = Some(world.inbox("k", "body"));
    let running = world.begin(open.clone()).await;
    let copy = |world: &World<S>, fingerprint| {
        let mut open = world.opening(world.new_conversation(), "once");
        open.inbox = Some(world.inbox("k", fingerprint));
        open
    };
    let second = world.store.open_turn(copy(&world, "body")).await.unwrap();
    assert_eq!(second, Opened::Duplicate { turn_id: running.turn, same_body: true });
    let other = world.store.open_turn(copy(&world, "other")).await.unwrap();
    assert_eq!(other, Opened::Duplicate { turn_id: running.turn, same_body: false });
    let all = world.store.conversations(world.tenant, ConversationFilter::default(), Page::default()).await.unwrap();
    assert_eq!(all.len(), 1, "a duplicate writes nothing");

    world.later(24 * 3_600_000);
    let fresh = world.begin(copy(&world, "other")).await;
    assert_ne!(fresh.turn, running.turn);
    let known = world.store.open_turn(copy(&world, "other")).await.unwrap();
    assert_eq!(known, Opened::Duplicate { turn_id: fresh.turn, same_body: true });
}

pub(crate) async fn only_the_owner_finds_a_conversation<S: Store>(world: World<S>) {
    let running = world.talk().await;
    world.complete(&running).await;
    let open = |any_user, user: &str| {
        let mut open = world.opening(ConversationRef::Existing { id: running.conversation, any_user }, "hi");
        open.user_id = user.to_owned();
        open.inbox = Some(world.inbox("unknown", "body"));
        open
    };
    assert_eq!(world.store.open_turn(open(false, "2")).await.unwrap(), Opened::UnknownConversation);
    let mut foreign = open(true, "1");
    foreign.tenant_id = world.id();
    assert_eq!(world.store.open_turn(foreign).await.unwrap(), Opened::UnknownConversation);
    // The refusals stored no inbox entry, or this one would be a duplicate.
    assert!(matches!(world.store.open_turn(open(true, "2")).await.unwrap(), Opened::Stored { .. }));
}

pub(crate) async fn a_fenced_write_changes_nothing<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let mut stale = running.clone();
    stale.fence.epoch -= 1;
    let mut write = world.to_write(&stale);
    write.messages = vec![world.message("assistant", "ghost")];
    write.events = vec![event(EventType::Final)];
    write.turn = Some(to(TurnStatus::Completed));
    assert!(matches!(world.store.write(write).await, Err(StoreError::Fenced)));
    assert_eq!(world.store.history(world.tenant, running.conversation).await.unwrap().len(), 1);
    assert_eq!(world.store.events(world.tenant, running.conversation, None, 0, ReadLimit::rows(10)).await.unwrap().len(), 1);
    assert_eq!(world.store.turn(world.tenant, running.turn).await.unwrap().unwrap().status, TurnStatus::Planning);
    assert_eq!(world.complete(&running).await.event_seqs, [2], "no number was allocated");
    let after = world.to_write(&running);
    assert!(matches!(world.store.write(after).await, Err(StoreError::Fenced)), "a finished turn has released its lease");
}

pub(crate) async fn terminal_rows_never_change<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    world.finish_call(&running, &call).await;
    let mut write = world.to_write(&running);
    write.ends = vec![world.end(&call, CallStatus::Failed)];
    write.messages = vec![world.message("assistant", "ghost")];
    let moved = world.store.write(write).await;
    assert!(matches!(moved, Err(StoreError::Moved { what: "call", .. })), "{moved:?}");
    assert_eq!(world.store.history(world.tenant, running.conversation).await.unwrap().len(), 3, "the whole write is rolled back");
    world.complete(&running).await;

    // Another turn owns the lease now; even under a valid fence the finished one stays as it is.
    let next = world.begin(world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "next")).await;
    let mut write = world.to_write(&Running { turn: running.turn, ..next });
    write.turn = Some(to(TurnStatus::Failed));
    let moved = world.store.write(write).await;
    assert!(matches!(moved, Err(StoreError::Moved { what: "turn", .. })), "{moved:?}");
    assert_eq!(world.store.turn(world.tenant, running.turn).await.unwrap().unwrap().status, TurnStatus::Completed);
}

pub(crate) async fn a_failed_attempt_is_stored_and_the_call_continues<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    let mut call = world.call(&running, 0);
    (call.status, call.attempt, call.started_at) = (CallStatus::Queued, 0, None);
    world.act(&running, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&running);
    write.starts = vec![CallStart { id: call.id, started_at: world.now }];
    world.store.write(write.clone()).await.unwrap();
    write.id = world.id();
    assert!(matches!(world.store.write(write).await, Err(StoreError::Moved { .. })), "a call starts once");
    let started_at = world.now;
    let finished_at = world.later(10);
    let next_started_at = world.later(10);
    let mut write = world.to_write(&running);
    let error = r#"{"type":"UPSTREAM"}"#.to_owned();
    write.retries =
        vec![CallRetry { id: call.id, attempt: 1, started_at, finished_at, status: CallStatus::Failed, error, next_started_at }];
    world.store.write(write).await.unwrap();
    let row = world.store.call(world.tenant, call.id).await.unwrap().unwrap();
    assert_eq!((row.status, row.attempt, row.started_at), (CallStatus::Running, 2, Some(next_started_at)));
    let attempts = world.store.attempts(world.tenant, call.id).await.unwrap();
    assert_eq!(attempts.iter().map(|a| (a.attempt, a.started_at, a.finished_at)).collect::<Vec<_>>(), [(1, started_at, finished_at)]);
}

pub(crate) async fn state_is_merged_and_null_clears<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let mut write = world.to_write(&running);
    write.state_patches = vec![state(json!({"a": 1, "b": {"x": 1}})), state(json!({"a": null, "b": {"y": 2}, "c": 3}))];
    let written = world.store.write(write).await.unwrap();
    assert_eq!(written.state, Some(state(json!({"b": {"y": 2}, "c": 3}))));
    let patched =
        world.store.patch_state(world.tenant, running.conversation, state(json!({"c": null, "d": "é"})), 1000, world.now).await.unwrap();
    assert_eq!(patched, Some(state(json!({"b": {"y": 2}, "d": "é"}))));
    assert_eq!(world.store.patch_state(world.tenant, world.id(), state(json!({"d": 1})), 1000, world.now).await.unwrap(), None);
    let large = world.store.patch_state(world.tenant, running.conversation, state(json!({"e": "x".repeat(1000)})), 1000, world.now).await;
    assert!(matches!(large, Err(StoreError::StateTooLarge)), "{large:?}");
    // Both databases measure JSON without spaces: {"b":{"y":2},"d":"é","f":[1,2,{"g":"h, i: j"}]}.
    let exact = async |max_bytes| {
        let patch = state(json!({"f": [1, 2, {"g": "h, i: j"}]}));
        world.store.patch_state(world.tenant, running.conversation, patch, max_bytes, world.now).await
    };
    let size = serde_json::to_string(&json!({"b": {"y": 2}, "d": "é", "f": [1, 2, {"g": "h, i: j"}]})).unwrap().len();
    assert!(matches!(exact(size - 1).await, Err(StoreError::StateTooLarge)));
    assert!(exact(size).await.is_ok());
    world.store.patch_state(world.tenant, running.conversation, state(json!({"f": null})), 1000, world.now).await.unwrap();
    // A state that is too large already can be made smaller.
    let smaller = world.store.patch_state(world.tenant, running.conversation, state(json!({"d": "e"})), 1, world.now).await.unwrap();
    assert_eq!(smaller, Some(state(json!({"b": {"y": 2}, "d": "e"}))));
    let patched = world.store.patch_state(world.tenant, running.conversation, state(json!({"d": "é"})), 1000, world.now).await.unwrap();
    world.complete(&running).await;
    let existing = || ConversationRef::Existing { id: running.conversation, any_user: false };
    for (named, expected) in [("", "default"), ("clerk", "clerk"), ("", "default")] {
        let open = OpenTurn { assistant: named.to_owned(), ..world.opening(existing(), "next") };
        let turn = open.turn_id;
        let Opened::Stored { state: stored, assistant, .. } = world.store.open_turn(open).await.unwrap() else { panic!("not stored") };
        let row = world.store.turn(world.tenant, turn).await.unwrap().unwrap();
        assert_eq!((Some(stored), assistant.as_str(), row.assistant.as_str()), (patched.clone(), expected, expected));
    }
}

pub(crate) async fn many_turns_write_at_once<S: Store>(world: World<S>) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let world = world.clone();
        tasks.spawn(async move {
            let running = world.talk().await;
            let calls: Vec<_> = (0..3).map(|index| world.call(&running, index)).collect();
            world.act(&running, &calls).await;
            for call in &calls {
                world.finish_call(&running, call).await;
            }
            world.complete(&running).await;
            // A read after the write's future resolved sees the write.
            let history = world.store.history(world.tenant, running.conversation).await.unwrap();
            assert_eq!(history.iter().filter_map(|m| m.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
            let events = world.store.events(world.tenant, running.conversation, None, 0, ReadLimit::rows(100)).await.unwrap();
            assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let filter = CallFilter { status: Some(CallStatus::Succeeded), ..CallFilter::default() };
    assert_eq!(world.store.calls(world.tenant, filter, Page::default()).await.unwrap().len(), 48);
}

pub(crate) async fn a_cancel_request_reaches_the_owner<S: Store>(world: World<S>) {
    let running = world.talk().await;
    assert!(!world.store.write(world.to_write(&running)).await.unwrap().cancel_requested);
    assert!(world.store.request_cancel(world.tenant, running.turn, world.now).await.unwrap());
    assert!(world.store.write(world.to_write(&running)).await.unwrap().cancel_requested);
    assert!(world.complete(&running).await.cancel_requested);
    assert!(!world.store.request_cancel(world.tenant, running.turn, world.now).await.unwrap(), "too late");
    assert!(!world.store.request_cancel(world.tenant, world.id(), world.now).await.unwrap(), "no such turn");
}

pub(crate) async fn a_conversation_is_deleted_with_all_its_rows<S: Store>(world: World<S>) {
    let mut open = world.opening(world.new_conversation(), "secret");
    open.inbox = Some(world.inbox("k", "body"));
    let running = world.begin(open).await;
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    let busy = world.store.delete_conversation(world.tenant, running.conversation).await;
    assert!(matches!(busy, Err(StoreError::Busy)), "{busy:?}");
    world.finish_call(&running, &call).await;
    world.complete(&running).await;
    assert!(!world.store.delete_conversation(world.id(), running.conversation).await.unwrap(), "another tenant's");
    assert!(world.store.delete_conversation(world.tenant, running.conversation).await.unwrap());
    assert!(!world.store.delete_conversation(world.tenant, running.conversation).await.unwrap());
    assert_eq!(world.store.conversation(world.tenant, running.conversation).await.unwrap(), None);
    assert_eq!(world.store.messages(world.tenant, running.conversation, Page::default()).await.unwrap(), []);
    assert_eq!(world.store.turn(world.tenant, running.turn).await.unwrap(), None);
    assert_eq!(world.store.call(world.tenant, call.id).await.unwrap(), None);
    assert_eq!(world.store.events(world.tenant, running.conversation, None, 0, ReadLimit::rows(10)).await.unwrap(), []);
    let mut again = world.opening(world.new_conversation(), "secret");
    again.inbox = Some(world.inbox("k", "body"));
    world.begin(again).await;
}

pub(crate) async fn a_turn_needs_no_conversation<S: Store>(world: World<S>) {
    let mut open = world.opening(ConversationRef::None, "");
    (open.kind, open.message) = (TurnKind::Invoke, None);
    let stub = Running { fence: fence_of(&world), conversation: world.id(), turn: open.turn_id };
    let mut call = world.call(&stub, 0);
    call.conversation_id = None;
    open.calls = vec![call.clone()];
    let running = world.begin(open).await;
    assert_eq!(running.conversation, running.turn, "the turn is its own stream");
    assert_eq!(world.store.turn(world.tenant, running.turn).await.unwrap().unwrap().status, TurnStatus::Acting);
    let mut write = world.to_write(&running);
    write.conversation_id = None;
    write.ends = vec![world.end(&call, CallStatus::Succeeded)];
    write.events = vec![event(EventType::Final)];
    write.state_patches = vec![state(json!({"a": 1}))];
    write.turn = Some(to(TurnStatus::Completed));
    let written = world.store.write(write).await.unwrap();
    assert_eq!((written.event_seqs, written.state), (vec![2], None));
    assert_eq!(world.store.events(world.tenant, running.turn, None, 0, ReadLimit::rows(10)).await.unwrap().len(), 2);
}

fn fence_of<S: Store>(world: &World<S>) -> crate::Fence {
    crate::Fence { tenant_id: world.tenant, stream_id: world.id(), owner: OWNER.to_owned(), epoch: 1 }
}
