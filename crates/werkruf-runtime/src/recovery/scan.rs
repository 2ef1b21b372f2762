//! Finds turns that no process works on, at the start and by a periodic scan. The scan only queues them; each turn then waits for its place in
//! its conversation like any other.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use werkruf_contract::{TurnStatus, Uuid};
use werkruf_store::{StoreError, TurnRow};

use super::takeover::take_over;
use crate::engine::Engine;
use crate::lease::WakeupListener;

const SCAN_EVERY: Duration = Duration::from_secs(5);
/// In a cluster, about: an expired lease is found soon.
const CLUSTER_SCAN: Duration = Duration::from_secs(2);

/// Takes over every turn that has not ended and that no process works on. Returns how many there were.
pub(crate) async fn recover(engine: &Arc<Engine>) -> Result<usize, StoreError> {
    let mut found = 0;
    let unfinished = engine.store.turns.unfinished_turns(engine.owner.clone()).await?;
    let unstarted = unstarted_to_take(engine, &unfinished);
    for turn in unfinished.into_iter().filter(|turn| turn.status != TurnStatus::Accepted || unstarted.contains(&turn.id)) {
        found += usize::from(take_over(engine, turn));
    }
    Ok(found)
}

/// Ends approvals that nobody decided in time. The scan then finds their turns.
pub(crate) async fn expire_approvals(engine: &Engine) -> Result<u64, StoreError> {
    engine.store.approvals.expire_approvals(engine.store.clock.now()).await
}

/// Scans until the process drains.
pub(crate) async fn recover_until_stopped(engine: &Arc<Engine>) {
    let mut wakeups = engine.wakeup.listen();
    loop {
        tokio::select! {
            biased;
            () = engine.stopping.raised() => return,
            () = until_next_scan(engine, &mut wakeups) => {}
        }
        engine.broadcast.remove_closed();
        if let Err(error) = scan(engine).await {
            tracing::warn!(%error, "the recovery scan could not reach the database");
        }
    }
}

async fn scan(engine: &Arc<Engine>) -> Result<(), StoreError> {
    expire_approvals(engine).await?;
    engine.store.models.budgets.release_expired(engine.store.clock.now()).await?;
    recover(engine).await.map(|_| ())?;
    engine.recovery_progress.tick(engine.store.clock.now());
    Ok(())
}

async fn until_next_scan(engine: &Engine, wakeups: &mut WakeupListener) {
    if !engine.is_shared() {
        return tokio::time::sleep(SCAN_EVERY).await;
    }
    // With jitter, so that processes that started together do not scan together.
    let longest = CLUSTER_SCAN.mul_f64(0.75 + engine.store.clock.chance() / 2.0);
    tokio::time::sleep(longest / 4).await;
    wakeups.within(longest * 3 / 4).await;
}

/// Which of the turns that have not started are taken over: all of them, or in a cluster those that an earlier scan found too. A turn that waits in
/// the queue of another process starts there as soon as its place is free, and only then does a scan find it.
fn unstarted_to_take(engine: &Engine, unfinished: &[TurnRow]) -> BTreeSet<Uuid> {
    let found: BTreeSet<Uuid> = unfinished.iter().filter(|turn| turn.status == TurnStatus::Accepted).map(|turn| turn.id).collect();
    if !engine.is_shared() {
        return found;
    }
    let before = std::mem::replace(&mut *engine.unstarted.lock().unwrap_or_else(PoisonError::into_inner), found.clone());
    &found & &before
}
