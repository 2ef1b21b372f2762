//! Budgets: create, list, delete. What the configuration names is changed there only.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;
use werkruf_runtime::period_end;
use werkruf_store::{Budget, BudgetScope, BudgetUse};

use super::body::PathParam;
use super::error::ApiError;
use super::keys::tenant_of;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::config::{BudgetConfig, BudgetSubject};
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Admin.on(routes!(list)))
        .routes(Policy::Admin.on(routes!(create)))
        .routes(Policy::Admin.on(routes!(delete)))
}

#[derive(Debug, Deserialize, ToSchema)]
struct BudgetRequest {
    /// Slug or id; the caller's own tenant by default.
    #[serde(default)]
    tenant: Option<String>,
    /// `tenant`, `user`, `key` or `assistant`.
    scope: String,
    /// The id of the user or the key, or the name of the assistant; without it each of them has the budget for itself.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    subject: Option<BudgetSubject>,
    /// `day` or `month`, in UTC.
    period: String,
    /// `tokens`, `nano_usd` or `model_calls`.
    unit: String,
    /// What may be used in a period.
    limit: i64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Budget)]
struct BudgetView {
    id: Uuid,
    tenant_id: Uuid,
    scope: &'static str,
    subject: Option<String>,
    period: &'static str,
    unit: &'static str,
    limit: i64,
    /// In the current period. Where each user, key or assistant has the budget for itself: of the one that used most.
    used: i64,
    /// The worst case of the requests in progress.
    reserved: i64,
    /// When the current period ends.
    #[schema(value_type = String, format = DateTime)]
    resets_at: Iso,
    /// It comes from the configuration.
    configured: bool,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    /// Where each user, key or assistant has the budget for itself: the hundred that used most of it in the current period.
    #[serde(skip_serializing_if = "Option::is_none")]
    subjects: Option<Vec<SubjectUse>>,
}

#[derive(Serialize, ToSchema)]
struct SubjectUse {
    subject: String,
    used: i64,
    reserved: i64,
}

#[derive(Serialize, ToSchema)]
struct BudgetList {
    budgets: Vec<BudgetView>,
    /// Always null: the list is complete.
    next_after: Option<Uuid>,
}

impl BudgetView {
    fn of(budget: Budget, uses: &[BudgetUse], now: Timestamp) -> Self {
        let start = budget.period.start_at(now);
        let own = uses.iter().filter(|found| found.counter.budget_id == budget.id && found.counter.period_start == start);
        let mut subjects: Vec<SubjectUse> =
            own.map(|found| SubjectUse { subject: found.counter.subject.clone(), used: found.used, reserved: found.reserved }).collect();
        subjects.sort_unstable_by(|a, b| (b.used + b.reserved, &a.subject).cmp(&(a.used + a.reserved, &b.subject)));
        let (used, reserved) = subjects.first().map_or((0, 0), |most| (most.used, most.reserved));
        let each = budget.subject.is_none() && budget.scope != BudgetScope::Tenant;
        Self {
            id: budget.id,
            tenant_id: budget.tenant_id,
            scope: budget.scope.as_str(),
            subject: budget.subject,
            period: budget.period.as_str(),
            unit: budget.unit.as_str(),
            limit: budget.limit,
            used,
            reserved,
            resets_at: Iso(period_end(budget.period, start)),
            configured: budget.configured,
            created_at: Iso(budget.created_at),
            subjects: each.then_some(subjects),
        }
    }
}

/// The tenant's budgets, with what their current period has used.
#[routing::path(get, path = "/api/budgets", operation_id = "list_budgets", tag = "budgets", responses((status = 200, body = BudgetList)))]
async fn list(ApiCaller { api, identity }: ApiCaller) -> Result<Json<BudgetList>, ApiError> {
    let now = api.app.clock.now();
    let uses = api.app.monitoring_store.budget_uses(identity.tenant_id, now).await?;
    let mut budgets = of_tenant(&api, identity.tenant_id).await?;
    budgets.sort_by_key(|budget| (budget.scope, budget.subject.clone(), budget.period, budget.unit));
    let budgets = budgets.into_iter().map(|budget| BudgetView::of(budget, &uses, now)).collect();
    Ok(Json(BudgetList { budgets, next_after: None }))
}

async fn of_tenant(api: &ApiState, tenant_id: Uuid) -> Result<Vec<Budget>, ApiError> {
    let all = api.app.store.all_budgets().await?;
    Ok(all.into_iter().find(|tenant| tenant.tenant_id == tenant_id).map(|tenant| tenant.budgets).unwrap_or_default())
}

/// Creates a budget. What the current period has used already counts.
#[routing::path(post, path = "/api/budgets", operation_id = "create_budget", tag = "budgets", request_body = BudgetRequest,
    responses((status = 201, body = BudgetView), (status = 409, body = ref("#/components/schemas/Error"), description = "`budget_exists`"),
        (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn create(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Response, ApiError> {
    let request: BudgetRequest = body::json(&body::bytes(body).await?)?;
    let tenant_id = tenant_of(&api, &identity, request.tenant.as_deref()).await?;
    let subject = request.subject.map(BudgetSubject::text);
    let (scope, period, unit) = (request.scope.as_str(), request.period.as_str(), request.unit.as_str());
    let checked = BudgetConfig::check(scope, subject, period, unit, request.limit).map_err(|faults| {
        ApiError::invalid(faults.iter().map(|(key, message)| format!("{key} {message}.")).collect::<Vec<_>>().join(" "))
    })?;
    let now = api.app.clock.now();
    let budget = checked.budget(api.app.clock.new_id(), tenant_id, false, now);
    if !api.app.administration_store.create_budget(budget.clone(), identity.author()).await? {
        let message = "There is a budget of this scope, subject, period and unit already; delete it first.";
        return Err(ApiError::conflict("budget_exists", message));
    }
    api.app.runtime.refresh_budgets().await?;
    let uses = api.app.monitoring_store.budget_uses(tenant_id, now).await?;
    Ok((StatusCode::CREATED, Json(BudgetView::of(budget, &uses, now))).into_response())
}

/// Deletes a budget and what it counted. Requests are free of it at once.
#[routing::path(delete, path = "/api/budgets/{id}", operation_id = "delete_budget", tag = "budgets", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`budget_configured`")))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    let unknown = || ApiError::not_found("budget");
    let id = Uuid::parse_str(&id).map_err(|_| unknown())?;
    let budgets = of_tenant(&api, identity.tenant_id).await?;
    let budget = budgets.iter().find(|budget| budget.id == id).ok_or_else(unknown)?;
    if budget.configured {
        let message = "This budget comes from the configuration; the operator removes it there and reloads.";
        return Err(ApiError::conflict("budget_configured", message));
    }
    let deleted = api.app.administration_store.delete_budget(identity.tenant_id, id, identity.author()).await?;
    api.app.runtime.refresh_budgets().await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}
