//! `GET /api/alerts`: what the operator was told about a tenant and about the server.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::Uuid;
use werkruf_store::{AlertRow, Order, SERVER_CHAIN};

use super::ApiState;
use super::audit::chain;
use super::body::Params;
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(list)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AlertQuery {
    /// `open`: only those whose condition holds.
    status: Option<String>,
    /// A slug or an id, or `server`. Without it: the tenant's, and for the operator the server's too.
    tenant: Option<String>,
}

/// One alert.
#[derive(Serialize, ToSchema)]
#[schema(as = Alert)]
struct AlertView {
    id: Uuid,
    /// Null: of the server.
    tenant_id: Option<Uuid>,
    /// Such as `budget_threshold` or `model_down`.
    #[serde(rename = "type")]
    kind: String,
    /// `open`, `resolved`, or `told` where it is told once and does not end.
    #[schema(value_type = String)]
    status: &'static str,
    /// What it is about: a provider, an approval, a turn, a budget and its period.
    subject: String,
    message: String,
    /// The other fields of the notification.
    #[schema(value_type = Object)]
    details: Value,
    #[schema(value_type = String, format = DateTime)]
    opened_at: Iso,
    #[schema(value_type = Option<String>, format = DateTime)]
    resolved_at: Option<Iso>,
}

impl AlertView {
    fn new(row: AlertRow) -> Self {
        let mut details = serde_json::from_str::<Value>(&row.detail).unwrap_or_default();
        let message = details.as_object_mut().and_then(|fields| fields.remove("message"));
        Self {
            id: row.id,
            tenant_id: Some(row.key.tenant_id).filter(|id| *id != SERVER_CHAIN),
            kind: row.key.kind,
            status: match (row.once, row.resolved_at) {
                (true, _) => "told",
                (false, None) => "open",
                (false, Some(_)) => "resolved",
            },
            subject: row.key.subject,
            message: message.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default(),
            details,
            opened_at: Iso(row.opened_at),
            resolved_at: row.resolved_at.map(Iso),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct AlertList {
    alerts: Vec<AlertView>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// What the operator was told. Alerts are kept for 90 days after they ended.
#[routing::path(get, path = "/api/alerts", operation_id = "list_alerts", tag = "alerts", params(AlertQuery, PageQuery),
    responses((status = 200, body = AlertList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn list(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<AlertQuery>,
    Params(pages): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let page = pages.page()?;
    let open_only = match query.status.as_deref() {
        None => false,
        Some("open") => true,
        Some(_) => return Err(ApiError::invalid("status takes open, or is left out.")),
    };
    let mut rows = api.app.monitoring_store.alerts(chain(&api, &identity, query.tenant.as_deref()).await?, open_only, page).await?;
    if query.tenant.is_none() && identity.is_operator() {
        rows.extend(api.app.monitoring_store.alerts(SERVER_CHAIN, open_only, page).await?);
        rows.sort_unstable_by_key(|row| row.id);
        if page.order == Order::NewestFirst {
            rows.reverse();
        }
        rows.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    }
    let next_after = page::next_after(&rows, &page, |row| row.id);
    Ok(Json(AlertList { alerts: rows.into_iter().map(AlertView::new).collect(), next_after }).into_response())
}
