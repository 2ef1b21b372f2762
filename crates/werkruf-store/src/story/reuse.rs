//! Reusable results, used call ids, and pages of lists.

use werkruf_contract::{CallStatus, Effect};

use super::world::{OWNER, Running};
use super::{Store, World};
use crate::{CallFilter, ConversationFilter, ConversationRef, IdOf, OpenTurn, Opened, Order, Page, TurnKind};

pub(crate) async fn a_result_is_reusable_until_a_later_effect<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    world.later(10);
    let read = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&read)).await;
    let lookup =
        async |world: &World<S>| world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap();
    assert_eq!(lookup(&world).await, None, "nothing is reusable while it runs");
    world.later(10);
    world.finish_call(&running, &read).await;
    let found = lookup(&world).await.unwrap();
    assert_eq!((found.call.id, found.stale, found.message_since), (read.id, false, false));
    assert_eq!(
        world.store.reusable_call(world.id(), Some(running.conversation), "key".to_owned()).await.unwrap(),
        None,
        "another tenant's"
    );
    assert_eq!(world.store.reusable_call(world.tenant, None, "key".to_owned()).await.unwrap(), None, "a conversation's own");

    // A result that was itself reused is not a source.
    let mut joined = world.call(&running, 1);
    (joined.status, joined.dedupe_of, joined.finished_at) = (CallStatus::Succeeded, Some(read.id), Some(world.now));
    world.act(&running, &[joined]).await;
    assert_eq!(lookup(&world).await.unwrap().call.id, read.id);

    world.later(10);
    let mut change = world.call(&running, 2);
    (change.effect, change.dedupe_key) = (Effect::Once, Some("change".to_owned()));
    world.act(&running, std::slice::from_ref(&change)).await;
    assert!(!lookup(&world).await.unwrap().stale, "it has not finished");
    world.finish_call(&running, &change).await;
    assert!(lookup(&world).await.unwrap().stale);
    let own = world.store.reusable_call(world.tenant, Some(running.conversation), "change".to_owned()).await.unwrap().unwrap();
    assert!(!own.stale, "a call does not make itself stale");
    world.complete(&running).await;
}

pub(crate) async fn an_unknown_outcome_keeps_its_key<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    world.later(10);
    let mut call = world.call(&running, 0);
    call.effect = Effect::Once;
    world.act(&running, std::slice::from_ref(&call)).await;
    let mut write = world.to_write(&running);
    write.ends = vec![world.unknown_end(&call)];
    world.store.write(write).await.unwrap();
    let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert_eq!((found.call.status, found.message_since), (CallStatus::Timeout, false));

    // The rest happens within two milliseconds: the order of the events decides where the times are equal.
    world.later(10);
    let mut open = world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "again, please");
    open.start = false;
    let next = open.turn_id;
    world.store.open_turn(open).await.unwrap();
    let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(!found.message_since, "the user could not know the outcome when this message was queued");
    world.complete(&running).await;
    let fence = world.store.start_turn(world.tenant, next, OWNER, world.now).await.unwrap();
    let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(!found.message_since, "nor after it was numbered");
    let mut open = world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "yes, again");
    open.start = false;
    let last = open.turn_id;
    world.store.open_turn(open).await.unwrap();
    let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(found.message_since, "a message that waits counts");
    world.later(1);
    world.complete(&Running { fence, turn: next, ..running.clone() }).await;
    world.store.start_turn(world.tenant, last, OWNER, world.now).await.unwrap();
    let found = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert!(found.message_since, "and so does a numbered one");
}

pub(crate) async fn an_unknown_outcome_is_retried_once<S: Store>(mut world: World<S>) {
    let running = world.talk().await;
    let (unknown, failed) = (world.call(&running, 0), world.call(&running, 1));
    world.act(&running, &[unknown.clone(), failed.clone()]).await;
    let mut write = world.to_write(&running);
    write.ends = vec![world.unknown_end(&unknown), world.end(&failed, CallStatus::Failed)];
    world.store.write(write).await.unwrap();
    world.complete(&running).await;
    world.later(10);
    let retry = |world: &World<S>, original: &crate::CallRow| {
        let open = OpenTurn::new(world.tenant, "1", world.id(), ConversationRef::None, OWNER, world.now);
        let call = crate::CallRow { turn_id: open.turn_id, retry_of: Some(original.id), conversation_id: None, ..world.call(&running, 0) };
        OpenTurn { kind: TurnKind::Retry, calls: vec![call], ..open }
    };
    // A retry that ended without being sent does not count.
    let mut unsent = retry(&world, &unknown);
    (unsent.calls[0].status, unsent.calls[0].attempt, unsent.calls[0].finished_at) = (CallStatus::Failed, 0, Some(world.now));
    assert!(matches!(world.store.open_turn(unsent).await.unwrap(), Opened::Stored { .. }));
    let opens: Vec<OpenTurn> = (0..5).map(|_| retry(&world, &unknown)).collect();
    let ids: Vec<_> = opens.iter().map(|open| open.calls[0].id).collect();
    let mut stored = Vec::new();
    let mut refused = Vec::new();
    for (id, opened) in ids.iter().zip(futures_util::future::join_all(opens.into_iter().map(|open| world.store.open_turn(open))).await) {
        match opened.unwrap() {
            Opened::Stored { .. } => stored.push(*id),
            Opened::Retried { call_id } => refused.push(call_id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((stored.len(), refused), (1, vec![stored[0]; 4]), "the refusals name the one retry");
    for _ in 0..2 {
        assert!(matches!(world.store.open_turn(retry(&world, &failed)).await.unwrap(), Opened::Stored { .. }), "nothing is unknown");
    }
}

pub(crate) async fn ids_are_taken_per_conversation<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    let ids = || vec!["call_0".to_owned(), "call_9".to_owned()];
    assert!(world.store.taken_call_ids(world.tenant, running.conversation, ids()).await.unwrap().is_empty(), "it has no result yet");
    world.finish_call(&running, &call).await;
    assert_eq!(world.store.taken_call_ids(world.tenant, running.conversation, ids()).await.unwrap(), ["call_0"]);
    let other = world.talk().await;
    assert!(world.store.taken_call_ids(world.tenant, other.conversation, ids()).await.unwrap().is_empty());
    let mut write = world.to_write(&other);
    let mut message = world.message("tool", "{}");
    message.tool_call_id = Some("call_9".to_owned());
    write.messages = vec![message];
    world.store.write(write.clone()).await.unwrap();
    assert_eq!(world.store.taken_call_ids(world.tenant, other.conversation, ids()).await.unwrap(), ["call_9"]);
    (write.id, write.messages[0].id) = (world.id(), world.id());
    assert!(world.store.write(write).await.is_err(), "a call has one result");
}

pub(crate) async fn lists_page_by_id_both_ways<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let calls: Vec<_> = (0..5).map(|index| world.call(&running, index)).collect();
    let ids: Vec<_> = calls.iter().map(|call| call.id).collect();
    world.act(&running, &calls).await;
    let list = async |filter: CallFilter, page: Page| {
        let rows = world.store.calls(world.tenant, filter, page).await.unwrap();
        rows.into_iter().map(|call| call.id).collect::<Vec<_>>()
    };
    let page = |after, order| Page { after, ..Page::of(2, order) };
    assert_eq!(list(CallFilter::default(), page(None, Order::OldestFirst)).await, ids[..2]);
    assert_eq!(list(CallFilter::default(), page(Some(ids[1]), Order::OldestFirst)).await, ids[2..4]);
    assert_eq!(list(CallFilter::default(), page(None, Order::NewestFirst)).await, [ids[4], ids[3]]);
    assert_eq!(list(CallFilter::default(), page(Some(ids[1]), Order::NewestFirst)).await, [ids[0]]);
    let mine = CallFilter {
        conversation_id: Some(running.conversation),
        turn_id: Some(running.turn),
        user_id: Some("1".to_owned()),
        tool: Some("get_requests".to_owned()),
        status: Some(CallStatus::Running),
    };
    assert_eq!(list(mine.clone(), Page::default()).await, ids);
    assert!(list(CallFilter { user_id: Some("2".to_owned()), ..mine.clone() }, Page::default()).await.is_empty());
    assert!(list(CallFilter { tool: Some("other".to_owned()), ..mine }, Page::default()).await.is_empty());
    let of = async |user: &str| world.store.conversations(world.tenant, ConversationFilter::of(user), Page::default()).await.unwrap().len();
    assert_eq!((of("1").await, of("2").await), (1, 0));
}

pub(crate) async fn an_id_is_found_by_its_beginning_or_end<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let calls: Vec<_> = (0..3).map(|index| world.call(&running, index)).collect();
    world.act(&running, &calls).await;
    let id = calls[1].id.to_string();
    let look = async |text: &str| world.store.ids_like(world.tenant, IdOf::Call, text.to_owned(), 2).await.unwrap();
    assert_eq!(look(&id).await, [calls[1].id]);
    assert_eq!(look(&id.to_uppercase()[..35]).await.len(), look(&id[..35]).await.len());
    assert_eq!(look(&id[..2]).await, [calls[2].id, calls[1].id], "the newest, and not more than asked for");
    assert_eq!(look(&id[24..]).await, [calls[1].id], "an id is found by its end");
    assert_eq!(look(&id.to_uppercase()[20..]).await, [calls[1].id]);
    assert!(look("zz").await.is_empty());
    assert!(look("%").await.is_empty());
    let counted = world.store.row_counts(calls[1].id).await.unwrap();
    assert_eq!((counted.conversations, counted.open_turns, counted.recent_calls, counted.recent_failed_calls), (1, 1, 2, 0), "{counted:?}");
    let conversation = running.conversation.to_string();
    let found = world.store.ids_like(world.tenant, IdOf::Conversation, conversation[..20].to_owned(), 2).await.unwrap();
    assert_eq!(found, [running.conversation]);
    assert!(world.store.ids_like(world.id(), IdOf::Conversation, conversation, 2).await.unwrap().is_empty());
}
