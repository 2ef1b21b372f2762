//! What is wrong now: as this process sees it, and by the rows of all tenants.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use werkruf_contract::Uuid;
use werkruf_store::{AlertKey, StoredConditions};

use super::alert::Alert;
use super::disk::Space;
use crate::channels::Notification;
use crate::engine::Engine;

/// A turn that was given up is told about within the first time, and counts as settled after the second.
const POISON_TOLD: SignedDuration = SignedDuration::from_mins(45);
const POISON_SETTLED: SignedDuration = SignedDuration::from_mins(60);
/// Clocks of processes differ by less: what one has told, another does not end at once.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Conditions by their keys.
#[derive(Debug, Default)]
pub(super) struct CurrentConditions {
    /// Told, if they are not yet.
    pub(super) told: BTreeMap<AlertKey, Alert>,
    /// Not told, but not ended either.
    pub(super) kept: Vec<AlertKey>,
}

impl CurrentConditions {
    fn add(&mut self, alert: Alert) {
        self.told.insert(alert.key(), alert);
    }

    /// Adds it to those that are told, or where the time has not come (or has passed), to those that are kept.
    fn add_when(&mut self, due: bool, alert: Alert) {
        if due { self.add(alert) } else { self.kept.push(alert.key()) }
    }

    pub(super) fn has(&self, key: &AlertKey) -> bool {
        self.told.contains_key(key) || self.kept.contains(key)
    }
}

/// The times that a look at the rows of all tenants asks for: approvals until the first, given-up turns since the second.
pub(super) fn times(engine: &Engine, now: Timestamp) -> (Timestamp, Timestamp) {
    let waiting = engine.setup().alerts.approval_waiting - SKEW;
    (before(now, waiting), before(now, POISON_SETTLED))
}

fn before(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_sub(span).unwrap_or(Timestamp::MIN)
}

/// Everything that is wrong now.
pub(super) fn find(engine: &Engine, stored: StoredConditions, stalled_loops: &[&str], now: Timestamp) -> CurrentConditions {
    let mut found = CurrentConditions::default();
    // What is about the server has no tenant whose outbox could be looked at; its alerts are listed.
    for (tenant_id, rows) in stored.dead_letters.into_iter().filter(|(tenant_id, _)| !tenant_id.is_nil()) {
        let message = format!("{rows} messages or notifications could not be delivered; `werkruf outbox list --status dead` shows them.");
        // Each dead row is announced by itself.
        found.add(Alert { announced: true, ..Alert::state(Notification::DeadLetter, tenant_id, "outbox", message) });
    }
    let asked_until = before(now, engine.setup().alerts.approval_waiting);
    for approval in stored.approvals {
        let message = format!("A call of {} has waited for a decision since {:.0}.", approval.tool_name, approval.created_at);
        let detail = json!({"approval_id": approval.id, "tool": approval.tool_name});
        let alert = Alert::state(Notification::ApprovalWaiting, approval.tenant_id, approval.id.to_string(), message);
        found.add_when(approval.created_at <= asked_until, Alert { detail, ..alert });
    }
    let told_since = before(now, POISON_TOLD);
    for turn in stored.poison {
        let message = format!("The turn {} was given up: the server stopped three times while it worked on it.", turn.id);
        let alert = Alert::state(Notification::Poison, turn.tenant_id, turn.id.to_string(), message);
        found.add_when(turn.finished_at > told_since, Alert { detail: json!({"turn_id": turn.id}), ..alert });
    }
    for (kind, subject, message) in engine.store.models.gate.conditions().held() {
        found.add(local(kind, subject, message));
    }
    for name in stalled_loops {
        let message = format!("The loop {name} of the server makes no progress; `GET /readyz` shows since when.");
        found.add(local(Notification::LoopStalled, (*name).to_owned(), message));
    }
    found.told.extend(disk(engine).map(|alert| (alert.key(), alert)));
    found
}

fn disk(engine: &Engine) -> Option<Alert> {
    let setup = engine.setup();
    let path = setup.alerts.database.as_ref()?;
    let space = Space::of(path).inspect_err(|error| tracing::debug!(%error, "the free space of the disk is not known")).ok()?;
    let message = space.complaint(setup.alerts.disk_free_mib)?;
    Some(local(Notification::DiskLow, "database".to_owned(), message))
}

/// A condition that only this process sees.
fn local(kind: Notification, subject: String, message: String) -> Alert {
    Alert { local: true, ..Alert::state(kind, Uuid::nil(), subject, message) }
}
