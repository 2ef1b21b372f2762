//! Approvals: list and show the pending ones, and decide them.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use werkruf_contract::{ApprovalStatus, Uuid};
use werkruf_runtime::Decider;
use werkruf_store::{ApprovalFilter, ApprovalRow, Approvals, Author, Page};

use super::body::{Params, PathParam};
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::{Iso, raw};
use super::{ApiState, body, lookup};
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

const APPROVAL_ID: HeaderName = HeaderName::from_static("x-approval-id");

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::ReadApprovals.on(routes!(list)))
        .routes(Policy::ReadApprovals.on(routes!(show)))
        .routes(Policy::Decide.on(routes!(decide)))
}

/// One approval.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalView<'a> {
    id: Uuid,
    #[schema(value_type = String)]
    status: ApprovalStatus,
    tool: &'a str,
    /// The server that the model's provider would call; null with the server's own tools.
    server_label: Option<&'a str>,
    /// The call that needs the approval.
    job_id: Uuid,
    turn_id: Uuid,
    conversation_id: Option<Uuid>,
    #[schema(value_type = Object)]
    arguments: Option<&'a RawValue>,
    /// SHA-256 of the arguments as RFC 8785 JSON. The approval is valid only for these arguments.
    arguments_digest: &'a str,
    /// A user with one of these roles may decide.
    approver_roles: &'a [String],
    /// The untrusted results that the model had read before it made the call: `[{tool, job_id}]`; null if there were none.
    #[schema(value_type = Option<Vec<Object>>)]
    taint: Option<&'a RawValue>,
    /// The user of the turn that made the call.
    asked_by: &'a str,
    /// The credential of that turn: `operator`, `key:<id>`, `token:<user>` or `whatsapp:<user>`.
    asked_key: &'a str,
    /// The user who retried the call; null if nobody else than `asked_by` did.
    retried_by: Option<&'a str>,
    /// The user who decided; the credential if it named no user.
    decided_by: Option<&'a str>,
    decided_key: Option<&'a str>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    #[schema(value_type = Option<String>, format = DateTime)]
    decided_at: Option<Iso>,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Iso,
}

impl<'a> ApprovalView<'a> {
    pub(crate) fn new(row: &'a ApprovalRow) -> Self {
        Self {
            id: row.id,
            status: row.status,
            tool: &row.tool_name,
            server_label: row.server_label.as_deref(),
            job_id: row.call_id,
            turn_id: row.turn_id,
            conversation_id: row.conversation_id,
            arguments: raw(Some(&row.arguments)),
            arguments_digest: &row.arguments_digest,
            approver_roles: &row.approver_roles,
            taint: raw(row.taint.as_deref()),
            asked_by: &row.asked_by,
            asked_key: &row.asked_key,
            retried_by: row.retried_by.as_deref(),
            decided_by: row.decided_by.as_deref(),
            decided_key: row.decided_key.as_deref(),
            created_at: Iso(row.created_at),
            decided_at: row.decided_at.map(Iso),
            expires_at: Iso(row.expires_at),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ApprovalQuery {
    /// `pending`, `approved`, `denied`, `expired` or `canceled`.
    status: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ApprovalList<'a> {
    approvals: Vec<ApprovalView<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The approvals that the caller's roles may decide; all approvals of the tenant with scope admin.
#[routing::path(get, path = "/api/approvals", operation_id = "list_approvals", tag = "approvals", params(ApprovalQuery, PageQuery),
    responses((status = 200, body = ApprovalList)))]
async fn list(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<ApprovalQuery>,
    Params(pages): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let page = pages.page()?;
    let status = query.status.map(|text| {
        ApprovalStatus::parse(&text).ok_or_else(|| ApiError::invalid("status takes pending, approved, denied, expired or canceled."))
    });
    let (credential, author) = (identity.credential(), identity.author());
    let rows = api.app.runtime.approvals(decider(&identity, &credential, &author), status.transpose()?, page).await?;
    let approvals = rows.iter().map(ApprovalView::new).collect();
    Ok(Json(ApprovalList { approvals, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// One approval, for callers who may decide it.
#[routing::path(get, path = "/api/approvals/{id}", operation_id = "get_approval", tag = "approvals",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = ApprovalView), (status = 403, body = ref("#/components/schemas/Error")),
        (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let (credential, author) = (identity.credential(), identity.author());
    let id = lookup::approval_id(&api, decider(&identity, &credential, &author), &id).await?;
    let row = api.app.runtime.approval(decider(&identity, &credential, &author), id).await?;
    Ok(Json(ApprovalView::new(&row)).into_response())
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Approve,
    Deny,
}

#[derive(Debug, Deserialize, ToSchema)]
struct DecisionRequest {
    decision: Decision,
}

/// Decides an approval. Only the first decision counts: the call runs or ends with `approval_denied`, and the turn continues. Whoever asked may
/// deny, but not approve.
#[routing::path(post, path = "/api/approvals/{id}", operation_id = "decide_approval", tag = "approvals", request_body = DecisionRequest,
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = ApprovalView),
        (status = 403, body = ref("#/components/schemas/Error"), description = "`forbidden`, or `four_eyes` for whoever asked"),
        (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`already_decided`")))]
async fn decide(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam, body: body::RequestBody) -> Result<Response, ApiError> {
    let raw = body::bytes(body).await?;
    let DecisionRequest { decision } = body::json(&raw)?;
    let (credential, author) = (identity.credential(), identity.author());
    let id = lookup::approval_id(&api, decider(&identity, &credential, &author), &id).await?;
    let (runtime, approve) = (api.app.runtime.clone(), matches!(decision, Decision::Approve));
    // Detached, because a decision that is stored must also be carried out when the client disconnects.
    let decided = api.run_detached(async move { runtime.decide(decider(&identity, &credential, &author), id, approve).await });
    let row = decided.await??;
    Ok(Json(ApprovalView::new(&row)).into_response())
}

fn decider<'a>(identity: &'a Identity, credential: &'a str, author: &'a Author) -> Decider<'a> {
    Decider { tenant_id: identity.tenant_id, person: identity.principal.as_deref(), admin: identity.scopes.admin, credential, author }
}

/// Names the approval that a turn waits for in the header `X-Approval-Id`.
pub(crate) fn set_approval_header(response: &mut Response, id: Uuid) {
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(APPROVAL_ID, value);
    }
}

/// The oldest pending approval of a turn.
pub(crate) async fn pending_approval_of_turn(
    approvals: &dyn Approvals,
    tenant_id: Uuid,
    turn_id: Uuid,
) -> Result<Option<ApprovalRow>, ApiError> {
    let filter = ApprovalFilter { turn_id: Some(turn_id), status: Some(ApprovalStatus::Pending), roles: None };
    let found = approvals.approvals(tenant_id, filter, Page { limit: 1, ..Page::default() }).await?;
    Ok(found.into_iter().next())
}
