//! The loop that compares what is wrong with the open alerts, until the process drains.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use werkruf_store::{AlertKey, AlertRow, StoreError};

use super::alert::{Alert, resolve};
use super::conditions::{CurrentConditions, find, times};
use super::{AlertSources, budget_thresholds, daily_overview};
use crate::channels::Notification;
use crate::engine::Engine;

/// Between two looks at budgets.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Every so many looks, all conditions are looked at.
const LOOKS_PER_ROUND: u32 = 5;
/// How often a condition that only this process sees is marked as seen.
const TOUCH_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// A condition that nobody has seen for this long has ended with its process.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Tells what is wrong until the process drains.
pub(crate) async fn run(engine: &Arc<Engine>, sources: AlertSources) {
    let mut watch = Watch { engine, sources, told: HashSet::new(), overviews_until: None, adopted: engine.is_shared() };
    let (mut looks, mut failing) = (0, false);
    loop {
        let looked = watch.look(looks == 0).await;
        if let Err(error) = &looked
            && !failing
        {
            tracing::warn!(%error, "alerts could not be looked at; trying again");
        }
        failing = looked.is_err();
        if !failing {
            engine.alerts_progress.tick(engine.store.clock.now());
        }
        looks = (looks + 1) % LOOKS_PER_ROUND;
        tokio::select! {
            biased;
            () = engine.stopping.raised() => return,
            () = engine.store.models.gate.conditions().changed() => looks = 0,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

struct Watch<'a> {
    engine: &'a Arc<Engine>,
    sources: AlertSources,
    /// The thresholds that the last look found, so that the store is not asked again at every look. The store knows all events that were told.
    told: HashSet<AlertKey>,
    /// Overviews of all days before this one were told.
    overviews_until: Option<Date>,
    /// Alerts of an earlier process were taken over. Where several processes share the database, they are left to end by themselves.
    adopted: bool,
}

impl Watch<'_> {
    async fn look(&mut self, all: bool) -> Result<(), StoreError> {
        let now = self.engine.store.clock.now();
        let conditions = self.engine.store.models.gate.conditions();
        let refused = conditions.refused();
        let reached = budget_thresholds::reached(&self.sources, &refused, now).await?;
        let found: HashSet<AlertKey> = reached.iter().map(Alert::key).collect();
        self.tell(reached).await?;
        self.told.retain(|key| found.contains(key));
        conditions.forget_refused(&refused);
        let today = TimeZone::UTC.to_datetime(now).date();
        if self.overviews_until != Some(today) {
            self.tell(daily_overview::before(self.engine, &self.sources, today).await?).await?;
            self.overviews_until = Some(today);
        }
        if all { self.compare(now).await } else { Ok(()) }
    }

    /// Tells events, but those that are known to be told.
    async fn tell(&mut self, events: Vec<Alert>) -> Result<(), StoreError> {
        for event in events {
            let key = event.key();
            if !self.told.contains(&key) {
                event.open(self.engine, &*self.sources.store).await?;
                self.told.insert(key);
            }
        }
        Ok(())
    }

    /// Opens and ends alerts. The open ones are read first: one whose condition ends meanwhile is ended in the next round.
    async fn compare(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let open = self.sources.store.open_alerts().await?;
        self.adopt(&open);
        let (asked_until, poison_since) = times(self.engine, now);
        let stored = self.sources.store.stored_conditions(asked_until, poison_since).await?;
        let found = find(self.engine, stored, &(self.sources.stalled_loops)(), now);
        for alert in found.told.values().filter(|alert| !open.iter().any(|row| row.key == alert.key())) {
            alert.open(self.engine, &*self.sources.store).await?;
        }
        for row in open.iter().filter(|row| !found.has(&row.key) && self.may_end(row, now)) {
            resolve(self.engine, &*self.sources.store, row).await?;
        }
        self.touch(&open, &found, now).await
    }

    /// Whether this process knows that a condition it does not see has ended.
    fn may_end(&self, row: &AlertRow, now: Timestamp) -> bool {
        let seen_elsewhere = row.source.as_ref().is_some_and(|source| *source != self.engine.owner) && self.engine.is_shared();
        !seen_elsewhere || now.duration_since(row.seen_at) >= FORGOTTEN_AFTER
    }

    /// Conditions that requests show are taken over from an earlier process of this database: the next answer ends them.
    fn adopt(&mut self, open: &[AlertRow]) {
        if std::mem::replace(&mut self.adopted, true) {
            return;
        }
        let by_requests = [Notification::Credentials, Notification::ModelDown, Notification::Quota];
        for row in open.iter().filter(|row| row.source.is_some()) {
            if let Some(kind) = by_requests.into_iter().find(|kind| kind.as_str() == row.key.kind) {
                let detail = serde_json::from_str::<serde_json::Value>(&row.detail).unwrap_or_default();
                let message = detail["message"].as_str().unwrap_or_default().to_owned();
                self.engine.store.models.gate.conditions().raise(kind, &row.key.subject, message);
            }
        }
    }

    async fn touch(&self, open: &[AlertRow], found: &CurrentConditions, now: Timestamp) -> Result<(), StoreError> {
        let seen = |row: &&AlertRow| found.told.get(&row.key).is_some_and(|alert| alert.local);
        let due = open.iter().filter(seen).filter(|row| now.duration_since(row.seen_at) >= TOUCH_AFTER);
        let ids: Vec<_> = due.map(|row| row.id).collect();
        if ids.is_empty() { Ok(()) } else { self.sources.store.touch_alerts(ids, now).await }
    }
}
