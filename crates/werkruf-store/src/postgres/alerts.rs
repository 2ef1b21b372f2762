//! [`Alerts`] on PostgreSQL. Functions of the schema (`functions/alerts.sql`) write an alert and what is sent about it.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::outbox::OutboxItem;
use super::param::{ms, p};
use super::records::ListColumns;
use super::row::{ALERT, alert, all, all_within, only};
use super::text::clean_json;
use super::turn_documents::document;
use crate::alerts::MAX_CONDITIONS;
use crate::{AlertRow, Alerts, NewAlert, NewOutboxRow, Order, Page, PoisonTurn, StoreFuture, StoredConditions, WaitingApproval};

impl Alerts for PostgresStore {
    fn open_alert(&self, alert: NewAlert) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let doc = document(&AlertDocument::from(&alert))?;
            let role = DbRole::Tenant(alert.key.tenant_id);
            // A second attempt finds the id of the first.
            let rows = self.query(role, "SELECT open_alert($1::text::jsonb)", &[(&doc, Type::TEXT)]).await?;
            only(&rows, |columns| columns.flag())
        })
    }

    fn resolve_alert(&self, tenant_id: Uuid, id: Uuid, rows: Vec<NewOutboxRow>, now: Timestamp) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let items = document(&rows.iter().map(OutboxItem::from).collect::<Vec<_>>())?;
            let now = ms(now);
            let values = [p(&tenant_id), p(&id), p(&now), (&items as _, Type::TEXT)];
            let sql = "SELECT resolve_alert($1, $2, $3, $4::text::jsonb, $5)";
            only(&self.query_once(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| columns.flag())
        })
    }

    fn open_alerts(&self) -> StoreFuture<'_, Vec<AlertRow>> {
        Box::pin(async move {
            let sql = format!("SELECT {ALERT} FROM alerts WHERE resolved_at IS NULL AND NOT once ORDER BY id");
            all(&self.query(DbRole::System, &sql, &[]).await?, alert)
        })
    }

    fn touch_alerts(&self, ids: Vec<Uuid>, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sql = "UPDATE alerts SET seen_at = $2 WHERE id = ANY ($1) AND resolved_at IS NULL AND NOT once";
            let now = ms(now);
            self.query(DbRole::System, sql, &[(&ids as _, Type::UUID_ARRAY), p(&now)]).await.map(|_| ())
        })
    }

    fn alerts(&self, tenant_id: Uuid, open_only: bool, page: Page) -> StoreFuture<'_, Vec<AlertRow>> {
        Box::pin(async move {
            let (past, order) = match page.order {
                Order::OldestFirst => ("id > $2", "id"),
                Order::NewestFirst => ("id < $2", "id DESC"),
            };
            let limit = i64::from(page.limit);
            let list = format!(
                "SELECT {ALERT} FROM alerts WHERE tenant_id = $1 AND ($2 IS NULL OR {past}) AND (NOT $3 OR (resolved_at IS NULL AND NOT once))
                 ORDER BY {order} LIMIT $4"
            );
            let sql =
                ListColumns { columns: ALERT, bytes: "octet_length(subject) + octet_length(detail::text)" }.within(&list, order, page);
            let values = [p(&tenant_id), p(&page.after), p(&open_only), p(&limit)];
            all_within(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, alert, page.max_bytes)
        })
    }

    fn stored_conditions(&self, asked_until: Timestamp, poison_since: Timestamp) -> StoreFuture<'_, StoredConditions> {
        Box::pin(async move {
            let (asked_until, poison_since, limit) = (ms(asked_until), ms(poison_since), i64::from(MAX_CONDITIONS));
            let (asked, poison) = ([p(&asked_until), p(&limit)], [p(&poison_since), p(&limit)]);
            let statements = [
                Statement { sql: DEAD_LETTERS, params: &[] },
                Statement { sql: WAITING, params: &asked },
                Statement { sql: POISON, params: &poison },
            ];
            let found = self.run(DbRole::System, &statements).await?;
            let rows = |at: usize| found.get(at).map(Vec::as_slice).unwrap_or_default();
            Ok(StoredConditions {
                dead_letters: all(rows(0), |columns| Ok((columns.id()?, u64::try_from(columns.int()?).unwrap_or(0))))?,
                approvals: all(rows(1), |columns| {
                    let (tenant_id, id, tool_name) = (columns.id()?, columns.id()?, columns.text()?);
                    Ok(WaitingApproval { tenant_id, id, tool_name, created_at: columns.time()? })
                })?,
                poison: all(rows(2), |columns| {
                    Ok(PoisonTurn { tenant_id: columns.id()?, id: columns.id()?, finished_at: columns.time()? })
                })?,
            })
        })
    }
}

const DEAD_LETTERS: &str = "SELECT tenant_id, count(*) FROM outbox WHERE status = 'dead' AND attempts > 0 GROUP BY tenant_id";
const WAITING: &str = "SELECT tenant_id, id, tool_name, created_at FROM approvals WHERE status = 'pending' AND created_at <= $1
    ORDER BY created_at, id LIMIT $2";
const POISON: &str =
    "SELECT tenant_id, id, finished_at FROM turns WHERE error_code = 'poison' AND finished_at > $1 ORDER BY finished_at LIMIT $2";

#[derive(Serialize)]
struct AlertDocument<'a> {
    tenant_id: Uuid,
    id: Uuid,
    kind: &'a str,
    subject: &'a str,
    once: bool,
    source: Option<&'a str>,
    detail: std::borrow::Cow<'a, str>,
    now: Timestamp,
    rows: Vec<OutboxItem<'a>>,
}

impl<'a> From<&'a NewAlert> for AlertDocument<'a> {
    fn from(alert: &'a NewAlert) -> Self {
        Self {
            tenant_id: alert.key.tenant_id,
            id: alert.id,
            kind: &alert.key.kind,
            subject: &alert.key.subject,
            once: alert.once,
            source: alert.source.as_deref(),
            detail: clean_json(&alert.detail),
            now: ms(alert.now),
            rows: alert.rows.iter().map(OutboxItem::from).collect(),
        }
    }
}
