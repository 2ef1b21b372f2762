//! Pages of lists that end before they are too large.

use serde_json::json;
use werkruf_contract::Uuid;

use super::Store;
use super::world::World;
use crate::{CallFilter, ConversationFilter, ConversationRef, ListRow, MessageRow, NewHistory, NewMessage, OpenTurn, Order, Page};

pub(crate) async fn a_page_ends_before_it_is_too_large<S: Store>(world: World<S>) {
    let id = world.id();
    let messages = (0..9).map(|n| NewMessage::new(world.id(), "user", format!("{n}{}", "x".repeat(1000)))).collect();
    let history = NewHistory {
        tenant_id: world.tenant,
        id,
        user_id: "1".to_owned(),
        channel: "web".to_owned(),
        assistant: "default".to_owned(),
        title: "t".repeat(1000),
        messages,
        now: world.now,
    };
    world.store.put_history(history).await.unwrap();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let whole = world.store.messages(world.tenant, id, Page::of(100, order)).await.unwrap();
        assert_eq!(whole.len(), 9);
        let mut page = Page { max_bytes: 3000, ..Page::of(100, order) };
        let mut found: Vec<MessageRow> = Vec::new();
        loop {
            let rows = world.store.messages(world.tenant, id, page).await.unwrap();
            assert!(rows.iter().map(ListRow::list_bytes).sum::<usize>() < 3000 + 2000, "{}", rows.len());
            let full = page.is_full(&rows);
            page.after = rows.last().map(|row| row.id).or(page.after);
            found.extend(rows);
            if !full {
                break;
            }
        }
        assert_eq!(found, whole, "nothing is missing and nothing comes twice");
        let first = world.store.messages(world.tenant, id, Page { max_bytes: 1, ..Page::of(100, order) }).await.unwrap();
        assert_eq!(first, whole[..1], "a page has at least one row");
    }
    let small = Page { max_bytes: 1, ..Page::default() };
    assert_eq!(world.store.calls(world.tenant, CallFilter::default(), small).await.unwrap(), []);
    assert_eq!(world.store.keys(world.tenant, small).await.unwrap().len(), 0);
}

pub(crate) async fn a_turn_says_when_its_conversation_was_used<S: Store>(mut world: World<S>) {
    let updated_at = async |world: &World<S>, id| world.store.conversation(world.tenant, id).await.unwrap().unwrap().updated_at;
    let created = world.now;
    let first = world.talk().await;
    world.later(1000);
    let second = world.talk().await;
    assert_eq!(updated_at(&world, first.conversation).await, created);
    let call = world.call(&first, 0);
    world.later(1000);
    world.act(&first, std::slice::from_ref(&call)).await;
    world.later(1000);
    world.finish_call(&first, &call).await;
    let at = world.later(1000);
    world.complete(&first).await;
    assert_eq!(updated_at(&world, first.conversation).await, at, "the last message");
    let used = async |world: &World<S>, after, limit| {
        let page = Page { after, ..Page::of(limit, Order::OldestFirst) };
        let rows = world.store.conversations(world.tenant, last_used("1"), page).await.unwrap();
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(used(&world, None, 1).await, [first.conversation]);
    assert_eq!(used(&world, Some(first.conversation), 9).await, [second.conversation]);
    let at = world.later(1000);
    let waiting =
        OpenTurn { start: false, ..world.opening(ConversationRef::Existing { id: second.conversation, any_user: false }, "next") };
    world.store.open_turn(waiting).await.unwrap();
    assert_eq!(updated_at(&world, second.conversation).await, at, "a message that waits for its turn");
    assert_eq!(used(&world, None, 9).await, [second.conversation, first.conversation]);
    assert!(used(&world, Some(world.id()), 9).await.is_empty());
    let others = world.store.conversations(world.tenant, last_used("2"), Page::default()).await.unwrap();
    assert_eq!(others, []);
    world.later(-60_000);
    world.complete(&second).await;
    assert_eq!(updated_at(&world, second.conversation).await, at, "a clock that was set back");
}

pub(crate) async fn a_list_of_conversations_has_no_states<S: Store>(world: World<S>) {
    let ids: [Uuid; 3] = [world.talk().await.conversation, world.talk().await.conversation, world.talk().await.conversation];
    let patch = werkruf_contract::State::from_iter([("a".to_owned(), json!(1))]);
    world.store.patch_state(world.tenant, ids[0], patch.clone(), 1000, world.now).await.unwrap();
    let small = Page { max_bytes: 1, ..Page::default() };
    let rows = world.store.conversations(world.tenant, ConversationFilter::default(), small).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..1]);
    assert!(small.is_full(&rows) && rows[0].state.is_empty());
    assert_eq!(world.store.conversation(world.tenant, ids[0]).await.unwrap().unwrap().state, patch);
    assert_eq!(world.store.conversations(world.tenant, ConversationFilter::default(), Page::default()).await.unwrap().len(), 3);
}

fn last_used(user_id: &str) -> ConversationFilter {
    ConversationFilter { last_used_first: true, ..ConversationFilter::of(user_id) }
}
