//! The loop that claims rows that are due and sends them, until the process drains.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use werkruf_store::StoreError;

use super::delivery::{Delivery, SEND_TIMEOUT};
use crate::engine::Engine;
use crate::lease::{POLL, WakeupListener};

/// So many rows are sent at once.
const MAX_SENDS: usize = 64;
/// The longest time between two looks where no other process writes rows.
const IDLE_POLL: Duration = Duration::from_secs(10);
/// The shortest time between two looks that found nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// What a sending may take beside the sending itself, until its end is written.
const MARGIN: Duration = Duration::from_secs(5);

/// Sends rows until the process drains. The rows of turns that end during the drain are claimed too; what is being sent is finished.
pub(crate) async fn run(engine: &Arc<Engine>) {
    let mut wakeups = engine.journals.outbox.listen();
    adopt(engine).await;
    let (mut sends, mut failing) = (JoinSet::new(), false);
    loop {
        let stopping = engine.stopping.is_raised() && engine.running.len() == 0;
        let claimed = claim(engine, &mut sends).await;
        if let Err(error) = &claimed
            && !failing
        {
            tracing::warn!(%error, "the outbox could not be read; trying again");
        }
        failing = claimed.is_err();
        if !failing {
            engine.outbox_progress_ms.store(engine.store.clock.now().as_millisecond(), Ordering::Relaxed);
        }
        let pause = claimed.unwrap_or(POLL);
        if stopping {
            break;
        }
        wait(engine, &mut wakeups, &mut sends, pause).await;
    }
    while sends.join_next().await.is_some() {}
}

/// Waits until there may be something to do: a row was written, a sending has ended, a lane is due, or the process drains.
async fn wait(engine: &Engine, wakeups: &mut WakeupListener, sends: &mut JoinSet<()>, pause: Duration) {
    if sends.len() >= MAX_SENDS {
        sends.join_next().await;
        return;
    }
    // While the process drains, the end of the last turn is found by looking.
    let pause = if engine.stopping.is_raised() { PAUSE } else { pause };
    tokio::select! {
        biased;
        Some(_) = sends.join_next() => {}
        () = wakeups.within(pause) => {}
        () = engine.stopping.raised(), if !engine.stopping.is_raised() => {}
    }
}

/// Claims what is due and starts to send it. Returns how long to wait for the next lane.
async fn claim(engine: &Arc<Engine>, sends: &mut JoinSet<()>) -> Result<Duration, StoreError> {
    let (store, clock) = (&engine.store.outbox, &engine.store.clock);
    let longest = if engine.is_shared() { POLL } else { IDLE_POLL };
    let free = MAX_SENDS.saturating_sub(sends.len());
    let until_due = |due: jiff::Timestamp| Duration::try_from(due.duration_since(clock.now())).unwrap_or_default();
    // Reading is cheap; a claim is a write.
    match store.next_due().await?.map(until_due) {
        Some(Duration::ZERO) if free > 0 => {}
        Some(left) => return Ok(left.clamp(PAUSE, longest)),
        None => return Ok(longest),
    }
    let now = clock.now();
    let until = now + SEND_TIMEOUT + MARGIN + engine.setup().channels.reconcile_after();
    let claimed = store.claim(engine.owner.clone(), now, until, u32::try_from(free).unwrap_or(u32::MAX)).await?;
    let found = claimed.len();
    for claimed in claimed {
        let delivery = Delivery::new(Arc::clone(engine), until);
        // The process waits for its tasks before it ends.
        sends.spawn(engine.tasks.track_future(delivery.deliver(claimed)));
    }
    Ok(if found == free { Duration::ZERO } else { PAUSE })
}

/// Rows that an earlier process left: their channels may still report them.
async fn adopt(engine: &Engine) {
    let until = engine.store.clock.now() + engine.setup().channels.reconcile_after();
    match engine.store.outbox.adopt(engine.owner.clone(), until).await {
        Ok(0) => {}
        Ok(rows) => tracing::info!(rows, "an earlier process left rows of the outbox half sent"),
        Err(error) => tracing::warn!(%error, "rows of the outbox that an earlier process left were not found"),
    }
}
