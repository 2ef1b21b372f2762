//! Calls that a provider runs itself, abandoned steps, token counts and summaries.

use werkruf_contract::CallStatus;

use super::{Store, World};
use crate::{ProviderCallUpdate, StoreError, Summary};

pub(crate) async fn a_provider_call_ends_with_its_latest_update<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let mut call = world.call(&running, 0);
    call.call_id = None;
    let mut start = world.to_write(&running);
    start.calls.push(call.clone());
    world.store.write(start).await.unwrap();
    let update = ProviderCallUpdate {
        id: call.id,
        tool_name: "lookup".to_owned(),
        response_id: None,
        item_id: Some("mcp_2".to_owned()),
        call_id: None,
        request: Some("{}".to_owned()),
        raw_arguments: None,
    };
    let mut ended = world.to_write(&running);
    ended.provider_updates.push(update.clone());
    ended.ends.push(world.end(&call, CallStatus::Succeeded));
    world.store.write(ended).await.unwrap();
    let row = world.store.call(world.tenant, call.id).await.unwrap().unwrap();
    assert_eq!((row.tool_name.as_str(), row.item_id.as_deref(), row.request.as_deref()), ("lookup", Some("mcp_2"), Some("{}")));
    assert_eq!(
        (row.response_id, row.raw_arguments, row.call_id),
        (call.response_id, call.raw_arguments, None),
        "fields without a value stay"
    );
    let mut late = world.to_write(&running);
    late.provider_updates.push(update);
    assert!(matches!(world.store.write(late).await, Err(StoreError::Moved { .. })), "a terminal row never changes");
}

pub(crate) async fn an_abandoned_step_is_no_committed_step<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let mut write = world.to_write(&running);
    write.abandoned_step = Some(1);
    world.store.write(write.clone()).await.unwrap();
    let turn = world.store.turn(world.tenant, running.turn).await.unwrap().unwrap();
    assert_eq!((turn.step, turn.stalled), (1, 0));
    write.id = world.id();
    assert!(matches!(world.store.write(write).await, Err(StoreError::Moved { .. })), "a step is abandoned once");
}

pub(crate) async fn a_conversation_stores_token_counts_and_its_summary<S: Store>(world: World<S>) {
    let running = world.talk().await;
    assert_eq!(world.store.summary(world.tenant, running.conversation).await.unwrap(), None);
    let history = world.store.history(world.tenant, running.conversation).await.unwrap();
    let mut write = world.to_write(&running);
    write.counted = vec![(history[0].id, 7), (world.id(), 9)];
    write.summary = Some(Summary { until: 0, text: "before".to_owned(), untrusted: None });
    world.store.write(write).await.unwrap();
    let summary = Summary { until: 1, text: "tea".to_owned(), untrusted: Some(r#"[{"tool":"web"}]"#.to_owned()) };
    let mut write = world.to_write(&running);
    write.summary = Some(summary.clone());
    world.store.write(write).await.unwrap();
    assert_eq!(world.store.summary(world.tenant, running.conversation).await.unwrap(), Some(summary));
    assert_eq!(world.store.summary(world.id(), running.conversation).await.unwrap(), None, "another tenant reads nothing");
    let history = world.store.history(world.tenant, running.conversation).await.unwrap();
    assert_eq!(history[0].tokens, Some(7));
}
