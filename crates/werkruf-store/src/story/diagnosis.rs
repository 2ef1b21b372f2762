//! What the metrics and `doctor` read of a database as a whole.

use werkruf_contract::TurnStatus;

use super::world::to;
use super::{Store, World, fill_outbox};
use crate::{ConversationRef, Measurements, NewUsage, UsageOwner};

pub(crate) async fn a_diagnosis_counts_what_waits_and_what_is_wrong<S: Store>(mut world: World<S>) {
    fill_outbox(&world).await;
    let running = world.talk().await;
    let next = ConversationRef::Existing { id: running.conversation, any_user: true };
    world.store.open_turn(world.opening(next, "and then?")).await.unwrap();
    let done = world.talk().await;
    world.complete(&done).await;
    let approving = world.talk().await;
    let mut write = world.to_write(&approving);
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let measured = world.store.measurements().await.unwrap();
    let statuses = ["pending", "sending", "read", "dead"].map(|status| measured.outbox_rows(status));
    assert_eq!(statuses, [1, 1, 1, 0], "{measured:?}");
    let counted = (measured.pending_approvals, measured.open_turns, measured.waiting_turns);
    assert_eq!(counted, (0, 3, 1), "{measured:?}");
    assert!(measured.size_bytes > 50_000, "{measured:?}");
    let connections = world.store.connections();
    assert!(connections.open >= 1 && connections.idle <= connections.open, "{connections:?}");

    for (model, cost_nano_usd, tokens_total) in
        [("known", Some(0), 15), ("new-model", None, 15), ("new-model", None, 15), ("refused", None, 0)]
    {
        let usage = NewUsage { model: model.to_owned(), cost_nano_usd, tokens_total, ..world.usage() };
        let owner = UsageOwner { tenant_id: world.tenant, user_id: "1".to_owned(), ..UsageOwner::default() };
        world.store.put_usage(owner, usage, world.now).await.unwrap();
    }
    let now = world.now;
    let fresh = world.store.diagnose(now).await.unwrap();
    assert_eq!((fresh.stuck_turns, fresh.stuck_turn, fresh.damage.as_slice()), (0, None, &[] as &[String]));
    assert_eq!(fresh.unpriced, [("new-model".to_owned(), 2)]);
    assert_eq!(Measurements { size_bytes: 0, ..fresh.measurements }, Measurements { size_bytes: 0, ..measured });
    assert!(fresh.version.starts_with("SQLite 3.") || fresh.version.starts_with("PostgreSQL "), "{}", fresh.version);
    let later = world.later(2 * 3_600_000);
    let stuck = world.store.diagnose(later).await.unwrap();
    // The turn that waits for an approval is none of them.
    assert_eq!((stuck.stuck_turns, stuck.stuck_turn), (2, Some(running.turn)));
}
