//! Pages of lists that end before they are too large.

use serde_json::json;
use werkruf_contract::Uuid;

use super::world::World;
use crate::{CallFilter, ListRow, MessageRow, NewHistory, NewMessage, Order, Page, Store};

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

pub(crate) async fn a_list_of_conversations_has_no_states<S: Store>(world: World<S>) {
    let ids: [Uuid; 3] = [world.talk().await.conversation, world.talk().await.conversation, world.talk().await.conversation];
    let patch = werkruf_contract::State::from_iter([("a".to_owned(), json!(1))]);
    world.store.patch_state(world.tenant, ids[0], patch.clone(), 1000, world.now).await.unwrap();
    let small = Page { max_bytes: 1, ..Page::default() };
    let rows = world.store.conversations(world.tenant, None, small).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..1]);
    assert!(small.is_full(&rows) && rows[0].state.is_empty());
    assert_eq!(world.store.conversation(world.tenant, ids[0]).await.unwrap().unwrap().state, patch);
    assert_eq!(world.store.conversations(world.tenant, None, Page::default()).await.unwrap().len(), 3);
}
