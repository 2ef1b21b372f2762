//! Writes one alert with its notifications, and its line in the log.

use std::sync::Arc;

use serde_json::{Value, json};
use werkruf_contract::{Tenant, Uuid};
use werkruf_store::{AlertKey, AlertRow, Alerts, NewAlert, NewOutboxRow, StoreError};

use crate::channels::Notification;
use crate::engine::Engine;
use crate::journal::alert_rows;
use crate::stored::{json as to_json, object};

/// What the operator is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alert {
    pub(super) kind: Notification,
    /// The nil id for the server.
    pub(super) tenant_id: Uuid,
    pub(super) subject: String,
    /// It is told once for its subject and does not end.
    pub(super) once: bool,
    /// Only this process sees it.
    pub(super) local: bool,
    /// Programs were told already; only the log and the list are.
    pub(super) announced: bool,
    /// The person whom it names.
    pub(super) user_id: Option<String>,
    /// One sentence.
    pub(super) message: String,
    /// More fields, as an object.
    pub(super) detail: Value,
}

impl Alert {
    /// A state of the server or of a tenant, which ends at some time.
    pub(super) fn state(kind: Notification, tenant_id: Uuid, subject: impl Into<String>, message: String) -> Self {
        let (subject, detail) = (subject.into(), Value::Null);
        Self { kind, tenant_id, subject, once: false, local: false, announced: false, user_id: None, message, detail }
    }

    /// An event, which is told once.
    pub(super) fn event(kind: Notification, tenant_id: Uuid, subject: String, message: String, detail: Value) -> Self {
        Self { once: true, detail, ..Self::state(kind, tenant_id, subject, message) }
    }

    pub(super) fn key(&self) -> AlertKey {
        AlertKey { tenant_id: self.tenant_id, kind: self.kind.as_str().to_owned(), subject: self.subject.clone() }
    }

    /// Opens the alert. False when another process did, or it was told before.
    pub(super) async fn open(&self, engine: &Arc<Engine>, alerts: &dyn Alerts) -> Result<bool, StoreError> {
        let clock = &engine.store.clock;
        let id = clock.new_id();
        let mut detail = object(json!({"message": self.message}));
        detail.extend(object(self.detail.clone()));
        let detail = Value::Object(detail);
        let body = if self.once { detail.clone() } else { state_body(id, &self.subject, false, &detail) };
        let rows = if self.announced { Vec::new() } else { self.rows(engine, &body).await? };
        let source = self.local.then(|| engine.owner.clone());
        let alert = NewAlert { id, key: self.key(), once: self.once, source, detail: to_json(&detail), rows, now: clock.now() };
        let opened = alerts.open_alert(alert).await?;
        if opened {
            self.log(id);
            engine.journals.outbox.wake();
        }
        Ok(opened)
    }

    async fn rows(&self, engine: &Engine, body: &Value) -> Result<Vec<NewOutboxRow>, StoreError> {
        rows(engine, self.tenant_id, self.kind, self.user_id.as_deref(), body).await
    }

    fn log(&self, alert_id: Uuid) {
        let (kind, subject, tenant_id) = (self.kind.as_str(), &self.subject, self.tenant_id);
        let message = &self.message;
        if self.kind == Notification::DailyOverview {
            tracing::info!(target: TARGET, kind, subject, %alert_id, %tenant_id, "{message}");
        } else if self.tenant_id.is_nil() {
            tracing::warn!(target: TARGET, kind, subject, %alert_id, "{message}");
        } else {
            tracing::warn!(target: TARGET, kind, subject, %alert_id, %tenant_id, "{message}");
        }
    }
}

/// Log filters name it.
const TARGET: &str = "werkruf::alerts";

/// Ends an alert, with what programs are told about that.
pub(super) async fn resolve(engine: &Arc<Engine>, alerts: &dyn Alerts, row: &AlertRow) -> Result<(), StoreError> {
    let AlertKey { tenant_id, kind, subject } = &row.key;
    let detail = serde_json::from_str::<Value>(&row.detail).unwrap_or_default();
    let rows = match Notification::from_name(kind) {
        Some(kind) => rows(engine, *tenant_id, kind, None, &state_body(row.id, subject, true, &detail)).await?,
        // Of a newer version.
        None => Vec::new(),
    };
    if alerts.resolve_alert(*tenant_id, row.id, rows, engine.store.clock.now()).await? {
        tracing::info!(target: TARGET, kind, subject, alert_id = %row.id, "resolved: {}", detail["message"].as_str().unwrap_or_default());
        engine.journals.outbox.wake();
    }
    Ok(())
}

/// The fields of a notification about a state.
fn state_body(alert_id: Uuid, subject: &str, resolved: bool, detail: &Value) -> Value {
    let head = json!({"alert_id": alert_id, "resolved": resolved, "subject": subject});
    Value::Object(object(head).into_iter().chain(object(detail.clone())).collect())
}

async fn rows(
    engine: &Engine,
    tenant_id: Uuid,
    kind: Notification,
    user_id: Option<&str>,
    body: &Value,
) -> Result<Vec<NewOutboxRow>, StoreError> {
    let slug = if tenant_id.is_nil() { String::new() } else { engine.tenant_slug(tenant_id).await? };
    let tenant = Tenant { id: tenant_id, slug: &slug };
    Ok(alert_rows(&engine.setup().channels, tenant, kind, user_id, body, &engine.store.clock))
}
