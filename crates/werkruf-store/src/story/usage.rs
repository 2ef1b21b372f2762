//! Usage rows of requests that a turn's commits do not write.

use werkruf_contract::Uuid;

use super::{Store, World};
use crate::{RequestsOf, UsageOwner};

pub(crate) async fn usage_of_a_tool_belongs_to_its_turn<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let before = world.store.turn_usage(world.tenant, running.turn, RequestsOf::Turn).await.unwrap();
    let who = UsageOwner {
        tenant_id: world.tenant,
        user_id: "1".to_owned(),
        conversation_id: Some(running.conversation),
        turn_id: Some(running.turn),
    };
    let used = || world.store.turn_usage(world.tenant, running.turn, RequestsOf::Turn);
    let by_tool = crate::NewUsage { operation: "ask_gpt", ..world.usage() };
    world.store.put_usage(who.clone(), by_tool, world.now).await.unwrap();
    assert_eq!(used().await.unwrap(), before, "a model request of a tool does not count as the turn's own");
    let all = world.store.turn_usage(world.tenant, running.turn, RequestsOf::TurnAndTools).await.unwrap();
    assert_eq!((all.total_tokens, all.model_calls), (before.total_tokens + world.usage().tokens_total, before.model_calls + 1));
    let without_turn = UsageOwner { tenant_id: world.tenant, ..UsageOwner::default() };
    world.store.put_usage(without_turn, world.usage(), world.now).await.unwrap();
    // An estimate is corrected under its id, and the row of a request that was never sent is deleted.
    let estimate = crate::NewUsage { tokens_total: 7, cost_nano_usd: None, estimated: true, ..world.usage() };
    world.store.put_usage(who.clone(), estimate.clone(), world.now).await.unwrap();
    let after = used().await.unwrap();
    assert_eq!((after.total_tokens, after.model_calls), (before.total_tokens + 7, before.model_calls + 1));
    let known = crate::NewUsage { tokens_total: 9, estimated: false, ..estimate };
    world.store.put_usage(who, known.clone(), world.now).await.unwrap();
    let after = used().await.unwrap();
    assert_eq!((after.total_tokens, after.model_calls), (before.total_tokens + 9, before.model_calls + 1));
    for _ in 0..2 {
        world.store.delete_usage(world.tenant, Some(known.id), None).await.unwrap();
        assert_eq!(used().await.unwrap(), before);
    }
    assert_eq!(world.store.turn_usage(world.tenant, Uuid::nil(), RequestsOf::TurnAndTools).await.unwrap().total_tokens, 0);
}
