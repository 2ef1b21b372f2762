//! Calls that a client runs: results that replace placeholders, and the ways to find the conversation again.

use werkruf_contract::TurnStatus;

use super::world::Running;
use super::{Store, World};
use crate::{ConversationRef, OpenTurn, Replacement, ResumePoint, TurnChange};

/// A turn that ended with two calls for its client, and with this transcript digest.
async fn with_client_calls<S: Store>(world: &World<S>, digest: &str) -> Running {
    let mut open = world.opening(world.new_conversation(), "hello");
    open.client = Some(r#"{"history":[1]}"#.to_owned());
    let running = world.begin(open).await;
    let mut write = world.to_write(&running);
    let placeholder = |id: &str| {
        let mut message = world.message("tool", "waiting");
        (message.tool_call_id, message.status) = (Some(id.to_owned()), Some("pending"));
        message
    };
    write.messages = vec![placeholder("c1"), placeholder("c2")];
    let (message, transcript_digest) = (Some(String::new()), Some(digest.to_owned()));
    write.turn = Some(TurnChange { status: TurnStatus::Completed, step: 1, error: None, message, transcript_digest });
    world.store.write(write).await.unwrap();
    running
}

fn next<S: Store>(world: &World<S>, running: &Running) -> OpenTurn {
    world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "and?")
}

pub(crate) async fn a_clients_results_replace_their_placeholders<S: Store>(world: World<S>) {
    let running = with_client_calls(&world, "a").await;
    let (tenant, user) = (world.tenant, "1".to_owned());
    let found = Some(ResumePoint { conversation_id: running.conversation, turn_id: running.turn });
    let ids = || vec!["x".to_owned(), "c2".to_owned()];
    assert_eq!(world.store.conversation_awaiting(tenant, user.clone(), ids()).await.unwrap(), found);
    assert_eq!(world.store.conversation_awaiting(tenant, "2".to_owned(), ids()).await.unwrap(), None, "another user's");
    assert_eq!(world.store.conversation_awaiting(world.id(), user.clone(), ids()).await.unwrap(), None, "another tenant's");
    let mut open = next(&world, &running);
    open.results = ["c1", "unknown"]
        .map(|id| Replacement { tool_call_id: id.to_owned(), content: "7".to_owned(), status: "success", metadata: None })
        .to_vec();
    open.unanswered = Some("canceled".to_owned());
    world.begin(open).await;
    let history = world.store.history(tenant, running.conversation).await.unwrap();
    let listed: Vec<_> = history.iter().map(|row| (row.role.as_str(), row.content.as_str(), row.status.as_deref())).collect();
    let results = [("tool", "7", Some("success")), ("tool", "canceled", Some("error"))];
    assert_eq!(listed, [[("user", "hello", None)].as_slice(), &results, &[("user", "and?", None)]].concat());
    assert_eq!(world.store.conversation_awaiting(tenant, user, ids()).await.unwrap(), None, "nothing waits any more");
}

pub(crate) async fn a_conversation_is_found_by_its_transcript_digest<S: Store>(world: World<S>) {
    let running = with_client_calls(&world, "a").await;
    let (tenant, user) = (world.tenant, "1".to_owned());
    let found = Some(ResumePoint { conversation_id: running.conversation, turn_id: running.turn });
    assert_eq!(world.store.conversation_by_digest(tenant, user.clone(), "a".to_owned()).await.unwrap(), found);
    assert_eq!(world.store.conversation_by_digest(tenant, "2".to_owned(), "a".to_owned()).await.unwrap(), None);
    assert_eq!(world.store.conversation_by_digest(tenant, user.clone(), "b".to_owned()).await.unwrap(), None);
    let request = Some(r#"{"history":[1]}"#.to_owned());
    assert_eq!(world.store.client_request(tenant, running.turn).await.unwrap(), request);
    let later = world.begin(next(&world, &running)).await;
    assert_eq!(world.store.conversation_by_digest(tenant, user, "a".to_owned()).await.unwrap(), None, "the conversation has a newer turn");
    assert_eq!(world.store.client_request(tenant, later.turn).await.unwrap(), None);
    assert_eq!(world.store.first_client_request(tenant, running.conversation).await.unwrap(), request);
    assert_eq!(world.store.first_client_request(world.id(), running.conversation).await.unwrap(), None);
}

pub(crate) async fn turns_of_the_same_request_are_found_with_how_they_ended<S: Store>(world: World<S>) {
    let (tenant, user) = (world.tenant, "1".to_owned());
    let running = with_client_calls(&world, "a").await;
    let continuing = |request: &str, conversation| {
        let mut open = world.opening(conversation, "and?");
        open.client = Some(format!(r#"{{"continues":{{"request":"{request}","results":"r"}}}}"#));
        open.request_digest = Some("digest".to_owned());
        open
    };
    let failed = world.begin(continuing("one", ConversationRef::Existing { id: running.conversation, any_user: false })).await;
    let mut write = world.to_write(&failed);
    write.turn = Some(TurnChange { status: TurnStatus::Failed, step: 1, error: None, message: None, transcript_digest: None });
    world.store.write(write).await.unwrap();
    let other = world.begin(continuing("two", world.new_conversation())).await;
    let mut plain = world.opening(world.new_conversation(), "and?");
    (plain.client, plain.request_digest) = (Some(r#"{"history":[1]}"#.to_owned()), Some("digest".to_owned()));
    let plain = world.begin(plain).await;
    let look_up =
        async |tenant, user: &str| world.store.turns_by_request_digest(tenant, user.to_owned(), "digest".to_owned()).await.unwrap();
    let found = look_up(tenant, "1").await;
    let listed: Vec<_> = found.iter().map(|turn| (turn.turn_id, turn.status, turn.is_newest, turn.request.as_deref())).collect();
    assert_eq!(
        listed,
        [
            (plain.turn, TurnStatus::Planning, true, None),
            (other.turn, TurnStatus::Planning, true, Some("two")),
            (failed.turn, TurnStatus::Failed, true, Some("one")),
        ]
    );
    assert_eq!((found[2].conversation_id, found[2].results.as_deref()), (running.conversation, Some("r")));
    assert_eq!((found[1].finished_at, found[2].finished_at.is_some()), (None, true));
    assert_eq!((look_up(tenant, "2").await, look_up(world.id(), "1").await), (Vec::new(), Vec::new()), "another user's or tenant's");
    world.begin(next(&world, &running)).await;
    assert!(!look_up(tenant, "1").await[2].is_newest, "a turn followed");
    let first = Some(ResumePoint { conversation_id: running.conversation, turn_id: running.turn });
    assert_eq!(world.store.turn_by_digest(tenant, user.clone(), "a".to_owned()).await.unwrap(), first, "also with later turns");
    assert_eq!(world.store.turn_by_digest(world.id(), user, "a".to_owned()).await.unwrap(), None, "another tenant's");
}

pub(crate) async fn a_withdrawn_client_request_is_marked_and_kept<S: Store>(world: World<S>) {
    let mut open = world.opening(world.new_conversation(), "hello");
    open.client = Some(r#"{"endpoint":{"responses":{"model":"m"}}}"#.to_owned());
    let running = world.begin(open).await;
    let tenant = world.tenant;
    assert!(!world.store.withdraw_client_request(world.id(), running.turn).await.unwrap(), "another tenant's");
    assert!(world.store.withdraw_client_request(tenant, running.turn).await.unwrap());
    let request = world.store.client_request(tenant, running.turn).await.unwrap().unwrap();
    let request: serde_json::Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request, serde_json::json!({"endpoint": {"responses": {"model": "m"}, "deleted": true}}));
    let plain = with_client_calls(&world, "a").await;
    assert!(!world.store.withdraw_client_request(tenant, plain.turn).await.unwrap(), "its API has no deletion");
}
