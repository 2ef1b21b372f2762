//! Calls that a client runs: placeholders that its results replace, and the ways back to the conversation.

use werkruf_contract::TurnStatus;

use super::world::Running;
use super::{Store, World};
use crate::{ConversationRef, OpenTurn, Replacement, ResumePoint, TurnChange};

/// A turn that ended with two calls for its client, which has seen `sight` by then.
async fn left_to_the_client<S: Store>(world: &World<S>, sight: &str) -> Running {
    let mut open = world.opening(world.new_conversation(), "hello");
    open.client = Some(r#"{"history":[1]}"#.to_owned());
    let running = world.begin(open).await;
    let mut write = world.to_write(&running);
    let seat = |id: &str| {
        let mut seat = world.message("tool", "waiting");
        (seat.tool_call_id, seat.status) = (Some(id.to_owned()), Some("pending"));
        seat
    };
    write.messages = vec![seat("c1"), seat("c2")];
    let (message, seen) = (Some(String::new()), Some(sight.to_owned()));
    write.turn = Some(TurnChange { status: TurnStatus::Completed, step: 1, error: None, message, transcript_digest: seen });
    world.store.write(write).await.unwrap();
    running
}

fn next<S: Store>(world: &World<S>, running: &Running) -> OpenTurn {
    world.opening(ConversationRef::Existing { id: running.conversation, any_user: false }, "and?")
}

pub(crate) async fn a_clients_results_take_their_places<S: Store>(world: World<S>) {
    let running = left_to_the_client(&world, "a").await;
    let (tenant, user) = (world.tenant, "1".to_owned());
    let found = Some(ResumePoint { conversation_id: running.conversation, turn_id: running.turn });
    let ids = || vec!["x".to_owned(), "c2".to_owned()];
    assert_eq!(world.store.conversation_awaiting(tenant, user.clone(), ids()).await.unwrap(), found);
    assert_eq!(world.store.conversation_awaiting(tenant, "2".to_owned(), ids()).await.unwrap(), None, "nobody else's");
    assert_eq!(world.store.conversation_awaiting(world.id(), user.clone(), ids()).await.unwrap(), None, "no other tenant's");
    let mut open = next(&world, &running);
    open.results =
        ["c1", "never asked"].map(|id| Replacement { tool_call_id: id.to_owned(), content: "7".to_owned(), status: "success" }).to_vec();
    open.unanswered = Some("canceled".to_owned());
    world.begin(open).await;
    let history = world.store.history(tenant, running.conversation).await.unwrap();
    let told: Vec<_> = history.iter().map(|row| (row.role.as_str(), row.content.as_str(), row.status.as_deref())).collect();
    let results = [("tool", "7", Some("success")), ("tool", "canceled", Some("error"))];
    assert_eq!(told, [[("user", "hello", None)].as_slice(), &results, &[("user", "and?", None)]].concat());
    assert_eq!(world.store.conversation_awaiting(tenant, user, ids()).await.unwrap(), None, "nothing waits any more");
}

pub(crate) async fn a_client_is_known_by_what_it_has_seen<S: Store>(world: World<S>) {
    let running = left_to_the_client(&world, "a").await;
    let (tenant, user) = (world.tenant, "1".to_owned());
    let found = Some(ResumePoint { conversation_id: running.conversation, turn_id: running.turn });
    assert_eq!(world.store.conversation_by_digest(tenant, user.clone(), "a".to_owned()).await.unwrap(), found);
    assert_eq!(world.store.conversation_by_digest(tenant, "2".to_owned(), "a".to_owned()).await.unwrap(), None);
    assert_eq!(world.store.conversation_by_digest(tenant, user.clone(), "b".to_owned()).await.unwrap(), None);
    let brought = Some(r#"{"history":[1]}"#.to_owned());
    assert_eq!(world.store.client_request(tenant, running.turn).await.unwrap(), brought);
    let later = world.begin(next(&world, &running)).await;
    assert_eq!(
        world.store.conversation_by_digest(tenant, user, "a".to_owned()).await.unwrap(),
        None,
        "the conversation has gone on from there"
    );
    assert_eq!(world.store.client_request(tenant, later.turn).await.unwrap(), None);
    assert_eq!(world.store.first_client_request(tenant, running.conversation).await.unwrap(), brought);
    assert_eq!(world.store.first_client_request(world.id(), running.conversation).await.unwrap(), None);
}

pub(crate) async fn what_a_client_takes_back_is_marked_once_and_kept<S: Store>(world: World<S>) {
    let mut open = world.opening(world.new_conversation(), "hello");
    open.client = Some(r#"{"door":{"responses":{"model":"m"}}}"#.to_owned());
    let running = world.begin(open).await;
    let tenant = world.tenant;
    assert!(!world.store.withdraw_client_request(world.id(), running.turn).await.unwrap(), "no other tenant's");
    assert!(world.store.withdraw_client_request(tenant, running.turn).await.unwrap());
    let brought = world.store.client_request(tenant, running.turn).await.unwrap().unwrap();
    let brought: serde_json::Value = serde_json::from_str(&brought).unwrap();
    assert_eq!(brought, serde_json::json!({"door": {"responses": {"model": "m"}, "deleted": true}}));
    let plain = left_to_the_client(&world, "a").await;
    assert!(!world.store.withdraw_client_request(tenant, plain.turn).await.unwrap(), "it came through no door that can take it back");
}
