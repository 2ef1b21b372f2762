//! The loop that claims rows that are due and sends them, until the process drains.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use werkruf_store::{Account, Claim, DueAccount, StoreError};

use super::delivery::{Delivery, SEND_TIMEOUT};
use super::sends::Sends;
use crate::channels::Channels;
use crate::engine::Engine;
use crate::lease::{POLL, WakeupListener};

/// So many rows of one account are sent at once. An account that does not answer keeps no other one waiting.
const MAX_SENDS: usize = 16;
/// The longest time between two looks where no other process writes rows.
const IDLE_POLL: Duration = Duration::from_secs(10);
/// The shortest time between two looks that found nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// What a sending may take beside the sending itself, until its end is written.
const MARGIN: Duration = Duration::from_secs(5);
/// So long the rows of an account that this process does not know are left to others, which may have read a newer configuration.
const LEFT_TO_OTHERS: SignedDuration = SignedDuration::from_mins(10);

/// Sends rows until the process drains. The rows of turns that end during the drain are claimed too; what is being sent is finished.
pub(crate) async fn run(engine: &Arc<Engine>) {
    let mut wakeups = engine.journals.outbox.listen();
    adopt(engine).await;
    let (mut sends, mut failing) = (Sends::default(), false);
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
            engine.outbox_progress.tick(engine.store.clock.now());
        }
        let pause = claimed.unwrap_or(POLL);
        if stopping {
            break;
        }
        wait(engine, &mut wakeups, &mut sends, pause).await;
    }
    while sends.ended().await {}
}

/// Waits until there may be something to do: a row was written, a sending has ended, a lane is due, or the process drains.
async fn wait(engine: &Engine, wakeups: &mut WakeupListener, sends: &mut Sends, pause: Duration) {
    // While the process drains, the end of the last turn is found by looking.
    let pause = if engine.stopping.is_raised() { PAUSE } else { pause };
    tokio::select! {
        biased;
        true = sends.ended() => {}
        () = wakeups.within(pause) => {}
        () = engine.stopping.raised(), if !engine.stopping.is_raised() => {}
    }
}

/// Claims what is due and starts to send it. Returns how long to wait for the next lane.
async fn claim(engine: &Arc<Engine>, sends: &mut Sends) -> Result<Duration, StoreError> {
    let (store, clock, setup) = (&engine.store.outbox, &engine.store.clock, engine.setup());
    let mut pause = if engine.is_shared() { POLL } else { IDLE_POLL };
    // Reading is cheap; a claim is a write.
    for DueAccount { account, at } in store.due().await? {
        let now = clock.now();
        let free = MAX_SENDS.saturating_sub(sends.of(&account));
        let due_at = due_at(&setup.channels, &account, at);
        if due_at > now {
            pause = pause.min(Duration::try_from(due_at.duration_since(now)).unwrap_or_default());
            continue;
        }
        if free == 0 {
            // A sending that ends continues the loop.
            continue;
        }
        let reports = setup.channels.find(&account.channel).map(|channel| channel.reconcile_after()).unwrap_or_default();
        let until = now + SEND_TIMEOUT + MARGIN + reports;
        let limit = u32::try_from(free).unwrap_or(u32::MAX);
        let claim = Claim { owner: engine.owner.clone(), account: account.clone(), now, until, limit, being_sent: sends.rows() };
        for claimed in store.claim(claim).await? {
            let id = claimed.row().id;
            let delivery = Delivery::new(Arc::clone(engine), until);
            // The process waits for its tasks before it ends.
            sends.start(&account, id, engine.tasks.track_future(delivery.deliver(claimed)));
        }
        pause = Duration::ZERO;
    }
    Ok(pause.max(PAUSE))
}

/// When this process claims rows of an account that are due at a time.
fn due_at(channels: &Channels, account: &Account, at: Timestamp) -> Timestamp {
    if channels.know(account) { at } else { at.checked_add(LEFT_TO_OTHERS).unwrap_or(at) }
}

/// Rows that an earlier process left: their channels may still report them.
async fn adopt(engine: &Engine) {
    let now = engine.store.clock.now();
    let until = now + engine.setup().channels.reconcile_after();
    match engine.store.outbox.adopt(engine.owner.clone(), now, until).await {
        Ok(0) => {}
        Ok(rows) => tracing::info!(rows, "an earlier process left rows of the outbox half sent"),
        Err(error) => tracing::warn!(%error, "rows of the outbox that an earlier process left were not found"),
    }
}
