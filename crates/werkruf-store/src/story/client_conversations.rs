//! Conversations that a client manages itself.

use werkruf_contract::Uuid;

use super::{Store, World};
use crate::{ConversationCopy, ConversationRef, MessageChange, MessageEdit, NewHistory, NewItems, NewMessage, Replacement, StoreError};

fn empty<S: Store>(world: &World<S>, id: Uuid) -> NewHistory {
    NewHistory {
        tenant_id: world.tenant,
        id,
        user_id: "1".to_owned(),
        channel: "openai".to_owned(),
        assistant: "default".to_owned(),
        title: String::new(),
        messages: Vec::new(),
        now: world.now,
    }
}

fn items<S: Store>(world: &World<S>, conversation_id: Uuid, messages: Vec<NewMessage>) -> NewItems {
    NewItems { tenant_id: world.tenant, conversation_id, results: Vec::new(), messages, now: world.now }
}

async fn listed<S: Store>(world: &World<S>, conversation: Uuid) -> Vec<(String, String, Option<String>, Option<i64>)> {
    let rows = world.store.history(world.tenant, conversation).await.unwrap();
    rows.into_iter().map(|row| (row.role, row.content, row.status, row.seq)).collect()
}

fn entry(role: &str, content: &str, status: Option<&str>, seq: i64) -> (String, String, Option<String>, Option<i64>) {
    (role.to_owned(), content.to_owned(), status.map(str::to_owned), Some(seq))
}

fn placeholder<S: Store>(world: &World<S>, call_id: &str) -> NewMessage {
    NewMessage { tool_call_id: Some(call_id.to_owned()), status: Some("pending"), ..world.message("tool", "") }
}

pub(crate) async fn metadata_of_a_conversation_is_replaced<S: Store>(world: World<S>) {
    let (id, store) = (world.id(), &world.store);
    store.put_history(empty(&world, id)).await.unwrap();
    let read = async |tenant| {
        let text = store.conversation_metadata(tenant, id).await.unwrap();
        text.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    assert_eq!(read(world.tenant).await, Some(serde_json::json!({})));
    assert!(store.put_conversation_metadata(world.tenant, id, r#"{"topic":"a\u0000b"}"#.to_owned()).await.unwrap());
    assert!(read(world.tenant).await.unwrap()["topic"].as_str().unwrap().starts_with('a'));
    assert!(!store.put_conversation_metadata(world.id(), id, "{}".to_owned()).await.unwrap(), "another tenant's");
    assert_eq!(read(world.id()).await, None);
}

pub(crate) async fn items_are_appended_between_turns_only<S: Store>(mut world: World<S>) {
    let id = world.id();
    world.store.put_history(empty(&world, id)).await.unwrap();
    let calls = Some(r#"[{"id":"c1","name":"f","args":{}}]"#.to_owned());
    let asks = NewMessage { tool_calls: calls, ..world.message("assistant", "") };
    let first = items(&world, id, vec![world.message("user", "hello"), asks, placeholder(&world, "c1")]);
    assert!(world.store.append_items(first).await.unwrap());
    let at = world.later(1000);
    let metadata = Some(r#"{"content":[{"type":"text","text":"7"}]}"#.to_owned());
    let result =
        |id: &str| Replacement { tool_call_id: id.to_owned(), content: "7".to_owned(), status: "success", metadata: metadata.clone() };
    let second = NewItems { results: vec![result("c1"), result("none")], ..items(&world, id, vec![world.message("user", "more")]) };
    assert!(world.store.append_items(second).await.unwrap());
    let expected = [
        entry("user", "hello", None, 1),
        entry("assistant", "", None, 2),
        entry("tool", "7", Some("success"), 3),
        entry("user", "more", None, 4),
    ];
    assert_eq!(listed(&world, id).await, expected);
    let rows = world.store.history(world.tenant, id).await.unwrap();
    assert!(rows[2].metadata.contains("content"), "{}", rows[2].metadata);
    assert_eq!(world.store.conversation(world.tenant, id).await.unwrap().unwrap().updated_at, at);
    assert!(!world.store.append_items(items(&world, world.id(), Vec::new())).await.unwrap(), "there is no such conversation");
    let running = world.begin(world.opening(ConversationRef::Existing { id, any_user: false }, "and?")).await;
    let refused = world.store.append_items(items(&world, id, vec![world.message("user", "late")])).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    let edit = vec![MessageEdit { id: rows[0].id, change: MessageChange::Delete }];
    let refused = world.store.edit_messages(world.tenant, id, edit).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    world.complete(&running).await;
    assert!(world.store.append_items(items(&world, id, vec![world.message("user", "late")])).await.unwrap());
    let seqs: Vec<_> = listed(&world, id).await.into_iter().map(|(.., seq)| seq.unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as i64).collect::<Vec<_>>());
}

pub(crate) async fn a_result_for_a_call_without_a_turn_is_stored<S: Store>(world: World<S>) {
    let id = world.id();
    world.store.put_history(empty(&world, id)).await.unwrap();
    let calls = Some(r#"[{"id":"c1","name":"f","args":{}},{"id":"c2","name":"f","args":{}}]"#.to_owned());
    let asks = NewMessage { tool_calls: calls, ..world.message("assistant", "") };
    let open = vec![asks, placeholder(&world, "c1"), placeholder(&world, "c2")];
    assert!(world.store.append_items(items(&world, id, open)).await.unwrap());
    let mut open = world.opening(ConversationRef::Existing { id, any_user: false }, "go on");
    let metadata = Some(r#"{"content":[]}"#.to_owned());
    open.results = vec![Replacement { tool_call_id: "c1".to_owned(), content: "7".to_owned(), status: "success", metadata }];
    open.unanswered = Some("canceled".to_owned());
    world.begin(open).await;
    let expected = [
        entry("assistant", "", None, 1),
        entry("tool", "7", Some("success"), 2),
        entry("tool", "canceled", Some("error"), 3),
        entry("user", "go on", None, 4),
    ];
    assert_eq!(listed(&world, id).await, expected);
    assert!(world.store.history(world.tenant, id).await.unwrap()[1].metadata.contains("content"));
}

pub(crate) async fn messages_are_changed_together_or_not_at_all<S: Store>(world: World<S>) {
    let id = world.id();
    world.store.put_history(empty(&world, id)).await.unwrap();
    let result = NewMessage { tool_call_id: Some("c1".to_owned()), status: Some("success"), ..world.message("tool", "7") };
    let messages = vec![world.message("user", "a"), world.message("assistant", "b"), result, world.message("user", "d")];
    let ids: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
    assert!(world.store.append_items(items(&world, id, messages)).await.unwrap());
    let edit = |at: usize, change| MessageEdit { id: ids[at], change };
    let gone = MessageEdit { id: world.id(), change: MessageChange::Delete };
    let refused = world.store.edit_messages(world.tenant, id, vec![edit(0, MessageChange::Delete), gone]).await;
    assert!(matches!(refused, Err(StoreError::Moved { .. })), "{refused:?}");
    assert_eq!(listed(&world, id).await.len(), 4, "nothing was changed");
    let (tool_calls, metadata) = (Some(r#"[{"id":"c1","name":"f","args":{}}]"#.to_owned()), r#"{"untrusted":[]}"#.to_owned());
    let replaced = MessageChange::Replace { content: "B".to_owned(), tool_calls, metadata };
    let edits = vec![edit(0, MessageChange::Delete), edit(1, replaced), edit(2, MessageChange::Reopen)];
    world.store.edit_messages(world.tenant, id, edits).await.unwrap();
    assert_eq!(
        listed(&world, id).await,
        [entry("assistant", "B", None, 2), entry("tool", "", Some("pending"), 3), entry("user", "d", None, 4)]
    );
    let row = world.store.history(world.tenant, id).await.unwrap().remove(0);
    assert!(row.tool_calls.unwrap().contains("c1") && row.metadata.contains("untrusted"));
}

pub(crate) async fn a_copy_has_the_messages_up_to_its_turn<S: Store>(world: World<S>) {
    let first = world.talk().await;
    world.complete(&first).await;
    let conversation = first.conversation;
    let existing = || ConversationRef::Existing { id: conversation, any_user: false };
    let second = world.begin(world.opening(existing(), "second")).await;
    let mut write = world.to_write(&second);
    write.messages = vec![NewMessage { tool_call_id: Some("c1".to_owned()), status: Some("success"), ..world.message("tool", "7") }];
    world.store.write(write).await.unwrap();
    world.complete(&second).await;
    let before = listed(&world, conversation).await;
    let third = world.begin(world.opening(existing(), "third")).await;
    assert_eq!(world.store.newest_turn(world.tenant, conversation).await.unwrap(), Some(third.turn));
    let copy = |until, reopened: &[&str]| ConversationCopy {
        tenant_id: world.tenant,
        from: conversation,
        until,
        id: world.id(),
        reopened: reopened.iter().map(|id| (*id).to_owned()).collect(),
        now: world.now,
    };
    let whole = copy(second.turn, &[]);
    let id = whole.id;
    assert!(world.store.copy_conversation(whole).await.unwrap());
    assert_eq!(listed(&world, id).await, before, "the third turn is not in the copy, although it runs");
    let (made, original) = (
        world.store.conversation(world.tenant, id).await.unwrap().unwrap(),
        world.store.conversation(world.tenant, conversation).await.unwrap().unwrap(),
    );
    assert_eq!(
        (made.user_id, made.channel, made.assistant, made.title),
        (original.user_id, original.channel, original.assistant, original.title)
    );
    assert!(made.state.is_empty() && world.store.newest_turn(world.tenant, id).await.unwrap().is_none());
    let waiting = copy(second.turn, &["c1"]);
    let id = waiting.id;
    assert!(world.store.copy_conversation(waiting).await.unwrap());
    let mut expected = before.clone();
    let at = expected.iter().position(|row| row.0 == "tool").unwrap();
    expected[at] = entry("tool", "", Some("pending"), expected[at].3.unwrap());
    assert_eq!(listed(&world, id).await, expected);
    let turn = world.begin(world.opening(ConversationRef::Existing { id, any_user: false }, "other")).await;
    let last = listed(&world, id).await.pop().unwrap();
    assert_eq!((last.1.as_str(), last.3), ("other", Some(before.len() as i64 + 1)), "the copy continues with its own numbers");
    world.complete(&turn).await;
    assert!(
        !world.store.copy_conversation(ConversationCopy { tenant_id: world.id(), ..copy(second.turn, &[]) }).await.unwrap(),
        "another tenant's"
    );
}
