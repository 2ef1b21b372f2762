//! `GET /api/audit`: the log of administrative acts, and its verification.

use std::sync::Arc;

use axum::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use werkruf_contract::Uuid;
use werkruf_store::{AuditReport, AuditRow, SERVER_CHAIN, verify_chain};

use super::ApiState;
use super::body::Params;
use super::error::ApiError;
use super::page;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use crate::identity::{Identity, tenant_id};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

/// The name of the chain of acts on the whole server.
const SERVER: &str = "server";

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(list_audit))).routes(Policy::Admin.on(routes!(verify_audit)))
}

/// Selects a page of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// The last `seq` of the page before.
    #[param(value_type = Option<i64>)]
    after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// `asc` (oldest first) or `desc`.
    order: Option<String>,
    /// A slug or an id, or `server` for acts on the whole server. Only the operator may name another chain than its tenant's.
    tenant: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct VerifyQuery {
    /// As for the list. Without it the operator has all chains checked.
    tenant: Option<String>,
}

/// Who acted. All three empty: the server itself.
#[derive(Serialize, ToSchema)]
struct ActorView {
    user_id: Option<String>,
    key_id: Option<Uuid>,
    operator: bool,
}

/// An administrative act.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
struct EntryView {
    seq: i64,
    #[schema(value_type = String, format = DateTime)]
    at: Iso,
    actor: ActorView,
    /// Where the request came from; null inside the server's process.
    address: Option<String>,
    /// Such as `key.create`, `approval.decide` or `person.erase`.
    action: String,
    /// What was acted on: an id, a name, a path.
    subject: String,
    /// The value before the act; null where there was none, or an erasure blanked it.
    #[schema(value_type = Option<serde_json::Value>)]
    before: Option<Box<RawValue>>,
    #[schema(value_type = Option<serde_json::Value>)]
    after: Option<Box<RawValue>>,
    hash: String,
}

impl EntryView {
    fn new(row: AuditRow) -> Result<Self, ApiError> {
        let value = |text: Option<String>| text.map(RawValue::from_string).transpose().map_err(|error| page::serialize_error(&error));
        Ok(Self {
            seq: row.seq,
            at: Iso(row.at),
            actor: ActorView { user_id: row.actor.user_id, key_id: row.actor.key_id, operator: row.actor.operator },
            address: row.address,
            action: row.action,
            subject: row.subject,
            before: value(row.before)?,
            after: value(row.after)?,
            hash: row.hash,
        })
    }
}

#[derive(Serialize, ToSchema)]
struct AuditList {
    audit: Vec<EntryView>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<i64>,
}

/// The administrative acts of a tenant.
#[routing::path(get, path = "/api/audit", tag = "admin", params(AuditQuery),
    responses((status = 200, body = AuditList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn list_audit(ApiCaller { api, identity }: ApiCaller, Params(query): Params<AuditQuery>) -> Result<Json<AuditList>, ApiError> {
    let chain = chain(&api, &identity, query.tenant.as_deref()).await?;
    let after = match query.after.as_deref().map(str::parse::<i64>) {
        None => None,
        Some(Ok(after)) if after >= 0 => Some(after),
        Some(_) => return Err(ApiError::invalid("after takes the last seq of the page before.")),
    };
    let limit = page::limit(query.limit.as_deref())?;
    let (rows, next_after) = match query.order.as_deref() {
        None | Some("asc") => oldest_first(&api, chain, after.unwrap_or(0), limit).await?,
        Some("desc") => newest_first(&api, chain, after, limit).await?,
        Some(_) => return Err(ApiError::invalid("order takes asc or desc.")),
    };
    let audit = rows.into_iter().map(EntryView::new).collect::<Result<_, _>>()?;
    Ok(Json(AuditList { audit, next_after }))
}

async fn oldest_first(api: &ApiState, chain: Uuid, after: i64, limit: u32) -> Result<(Vec<AuditRow>, Option<i64>), ApiError> {
    let rows = api.app.administration_store.audit_entries(chain, after, limit).await?;
    let next_after = rows.last().filter(|_| u32::try_from(rows.len()).is_ok_and(|found| found >= limit)).map(|row| row.seq);
    Ok((rows, next_after))
}

/// The entries of a chain have no holes, so a page from its end is read by its numbers.
async fn newest_first(api: &ApiState, chain: Uuid, after: Option<i64>, limit: u32) -> Result<(Vec<AuditRow>, Option<i64>), ApiError> {
    let last = match after {
        Some(after) => after - 1,
        None => api.app.administration_store.audit_head(chain).await?.map_or(0, |head| head.seq),
    };
    let before = (last - i64::from(limit)).max(0);
    let mut rows = api.app.administration_store.audit_entries(chain, before, limit).await?;
    rows.retain(|row| row.seq <= last);
    rows.reverse();
    let next_after = rows.last().map(|row| row.seq).filter(|seq| *seq > 1);
    Ok((rows, next_after))
}

/// The first break of a chain.
#[derive(Serialize, ToSchema)]
struct BreakView {
    /// `changed`, `missing`, `cut_off` or `head`.
    kind: &'static str,
    /// The entry.
    seq: i64,
    message: String,
}

/// The check of a chain.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditChain)]
struct ChainView {
    /// Null for the chain of the server.
    tenant_id: Option<Uuid>,
    /// Entries up to the end of the chain, or up to the break.
    entries: i64,
    /// The hash of the last of them. Keep it outside the server: a later check must pass through it.
    hash: String,
    /// Whether the end of the chain is signed with the secret key.
    signed: bool,
    /// Entries whose values an erasure blanked.
    blanked: u64,
    #[serde(rename = "break")]
    found: Option<BreakView>,
}

impl From<AuditReport> for ChainView {
    fn from(report: AuditReport) -> Self {
        Self {
            tenant_id: Some(report.tenant_id).filter(|id| *id != SERVER_CHAIN),
            entries: report.entries,
            hash: report.hash,
            signed: report.signed,
            blanked: report.blanked,
            found: report.found.map(|found| BreakView { kind: found.kind, seq: found.seq, message: found.message }),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct Verified {
    /// Whether no chain has a break.
    intact: bool,
    chains: Vec<ChainView>,
}

/// Checks that no entry of the log was changed, removed or cut off.
#[routing::path(get, path = "/api/audit/verify", tag = "admin", params(VerifyQuery),
    responses((status = 200, body = Verified), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn verify_audit(ApiCaller { api, identity }: ApiCaller, Params(query): Params<VerifyQuery>) -> Result<Json<Verified>, ApiError> {
    let chains = match query.tenant.as_deref() {
        None if identity.is_operator() => api.app.administration_store.audit_chains().await?,
        named => vec![chain(&api, &identity, named).await?],
    };
    let mut checked = Vec::with_capacity(chains.len());
    for chain in chains {
        checked.push(ChainView::from(verify_chain(api.app.administration_store.as_ref(), chain).await?));
    }
    Ok(Json(Verified { intact: checked.iter().all(|chain| chain.found.is_none()), chains: checked }))
}

/// The tenant or the server that a request names; its own tenant by default.
pub(super) async fn chain(api: &ApiState, identity: &Identity, named: Option<&str>) -> Result<Uuid, ApiError> {
    let Some(named) = named else { return Ok(identity.tenant_id) };
    if named == SERVER {
        let refused = || ApiError::forbidden("forbidden", "What is about the whole server is for the operator.");
        return if identity.is_operator() { Ok(SERVER_CHAIN) } else { Err(refused()) };
    }
    let tenant = tenant_id(&api.app, named).await;
    if identity.is_operator() {
        return tenant;
    }
    // Whether another tenant exists is nothing for a key of this one.
    match tenant {
        Ok(tenant) if tenant == identity.tenant_id => Ok(tenant),
        _ => Err(ApiError::not_found("tenant")),
    }
}
