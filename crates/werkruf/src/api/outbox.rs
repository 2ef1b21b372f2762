//! The outbox: what the server sends to people and programs, what became of it, and how a dead or held row is sent after all.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use werkruf_contract::Uuid;
use werkruf_store::{OutboxFilter, OutboxRow, OutboxStatus};

use super::body::{Params, PathParam};
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::{Iso, raw};
use super::{ApiState, lookup};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

/// The code of a message that came too late to be answered: sending it again makes it no younger.
const STALE_INBOUND: &str = "stale_inbound";

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Admin.on(routes!(list)))
        .routes(Policy::Admin.on(routes!(release_all)))
        .routes(Policy::Admin.on(routes!(show)))
        .routes(Policy::Admin.on(routes!(retry)))
        .routes(Policy::Admin.on(routes!(release)))
}

/// One row of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = OutboxRow)]
struct RowView<'a> {
    id: Uuid,
    /// `whatsapp` or `webhook`.
    channel: &'a str,
    /// The sending number, or the name of the webhook.
    account: &'a str,
    /// The address at the channel.
    recipient: &'a str,
    /// The user who receives it, or whom it is about.
    user_id: Option<&'a str>,
    conversation_id: Option<Uuid>,
    turn_id: Option<Uuid>,
    approval_id: Option<Uuid>,
    /// The parts of a turn's answer are numbered from 1.
    part: u32,
    /// `pending`, `sending`, `sent`, `delivered`, `read`, `dead` or `held`.
    #[schema(value_type = String)]
    status: &'static str,
    /// It may have arrived twice: an attempt had no answer, and it was sent once more.
    ambiguous: bool,
    attempts: u32,
    error_code: Option<&'a str>,
    error: Option<&'a str>,
    /// The id that the channel gave the message.
    external_id: Option<&'a str>,
    /// When the next attempt is due, or a sending counts as lost.
    #[schema(value_type = String, format = DateTime)]
    next_at: Iso,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    /// What is sent. Only where one row is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    body: Option<&'a RawValue>,
}

impl<'a> RowView<'a> {
    fn new(row: &'a OutboxRow) -> Self {
        let to = &row.recipient;
        Self {
            id: row.id,
            channel: &to.channel,
            account: &to.account,
            recipient: &to.address,
            user_id: to.user_id.as_deref(),
            conversation_id: row.conversation_id,
            turn_id: row.turn_id,
            approval_id: row.approval_id,
            part: row.part,
            status: row.status.as_str(),
            ambiguous: row.ambiguous,
            attempts: row.attempts,
            error_code: row.error_code.as_deref(),
            error: row.error.as_deref(),
            external_id: row.external_id.as_deref(),
            next_at: Iso(row.next_at),
            created_at: Iso(row.created_at),
            body: None,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OutboxQuery {
    /// `pending`, `sending`, `sent`, `delivered`, `read`, `dead` or `held`.
    status: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct OutboxList<'a> {
    outbox: Vec<RowView<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The rows of the tenant's outbox, without what they carry.
#[routing::path(get, path = "/api/outbox", operation_id = "list_outbox", tag = "outbox", params(OutboxQuery, PageQuery),
    responses((status = 200, body = OutboxList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn list(
    ApiCaller { api, identity }: ApiCaller,
    Params(query): Params<OutboxQuery>,
    Params(pages): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let page = pages.page()?;
    let status = query.status.map(|text| {
        let names = OutboxStatus::ALL.map(OutboxStatus::as_str).join(", ");
        OutboxStatus::from_name(&text).ok_or_else(|| ApiError::invalid(format!("status takes one of {names}.")))
    });
    let filter = OutboxFilter { status: status.transpose()?, ..OutboxFilter::default() };
    let rows = api.app.store.outbox(identity.tenant_id, filter, page).await?;
    let outbox = rows.iter().map(RowView::new).collect();
    Ok(Json(OutboxList { outbox, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// One row, with what it carries.
#[routing::path(get, path = "/api/outbox/{id}", operation_id = "get_outbox_row", tag = "outbox",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = RowView), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn show(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::outbox_row(&api, &identity, &id).await?;
    Ok(Json(RowView { body: raw(Some(&row.body)), ..RowView::new(&row) }).into_response())
}

/// Sends a dead row again, with no attempts counted, and the later parts that died with it.
#[routing::path(post, path = "/api/outbox/{id}/retry", operation_id = "retry_outbox_row", tag = "outbox",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = RowView), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`not_dead`, `stale_inbound`")))]
async fn retry(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::outbox_row(&api, &identity, &id).await?;
    if row.error_code.as_deref() == Some(STALE_INBOUND) {
        return Err(ApiError::conflict("stale_inbound", "This message came too late to be answered; write to the person instead."));
    }
    let id = row.id;
    if api.app.administration_store.retry_outbox(identity.tenant_id, id, identity.author(), api.app.clock.now()).await? {
        api.app.runtime.wake_outbox();
    } else {
        let message = format!("This row is {}; only a dead one can be sent again.", row.status.as_str());
        return Err(ApiError::conflict("not_dead", message));
    }
    let row = lookup::outbox_row(&api, &identity, &id.to_string()).await?;
    Ok(Json(RowView::new(&row)).into_response())
}

#[derive(Serialize, ToSchema)]
struct Released {
    /// How many held rows are sent now.
    released: u64,
}

/// Sends one row that a restore holds.
#[routing::path(post, path = "/api/outbox/{id}/release", operation_id = "release_outbox_row", tag = "outbox",
    params(("id" = String, Path, description = "Id, or a unique beginning or end of it.")),
    responses((status = 200, body = Released), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`not_held`")))]
async fn release(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<Response, ApiError> {
    let row = lookup::outbox_row(&api, &identity, &id).await?;
    let released = release_rows(&api, &identity, Some(row.id)).await?;
    if released == 0 {
        return Err(ApiError::conflict("not_held", format!("This row is {}; only a held one can be released.", row.status.as_str())));
    }
    Ok(Json(Released { released }).into_response())
}

/// Sends all rows of the tenant that a restore holds.
#[routing::path(post, path = "/api/outbox/release", operation_id = "release_outbox", tag = "outbox",
    responses((status = 200, body = Released), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn release_all(ApiCaller { api, identity }: ApiCaller) -> Result<Response, ApiError> {
    let released = release_rows(&api, &identity, None).await?;
    Ok(Json(Released { released }).into_response())
}

async fn release_rows(api: &ApiState, identity: &crate::identity::Identity, id: Option<Uuid>) -> Result<u64, ApiError> {
    let released = api.app.administration_store.release_outbox(identity.tenant_id, id, identity.author(), api.app.clock.now()).await?;
    if released > 0 {
        api.app.runtime.wake_outbox();
    }
    Ok(released)
}
