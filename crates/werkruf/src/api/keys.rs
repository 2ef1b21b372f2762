//! API keys: create, list, delete. A key is returned once; the server stores only its digest.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use werkruf_contract::Uuid;
use werkruf_store::{KeyDigest, KeyRow, NewKey, Scopes};

use super::body::{Params, PathParam};
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::identity::{Identity, new_secret};

pub(crate) fn routes() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::default()
        .routes(Policy::Admin.on(routes!(create)))
        .routes(Policy::Admin.on(routes!(list)))
        .routes(Policy::Admin.on(routes!(delete)))
}

/// A user id as a number or as text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum UserId {
    Number(i64),
    Text(String),
}

#[derive(Debug, Deserialize, ToSchema)]
struct KeyRequest {
    /// Slug or id; the caller's own tenant by default.
    #[serde(default)]
    tenant: Option<String>,
    /// The user that the key belongs to.
    #[serde(default)]
    user_id: Option<UserId>,
    /// `admin`, `chat`, `tools`, `read`, `act_as`.
    scopes: Vec<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct CreatedKey {
    id: Uuid,
    /// The key. It is returned only in this response.
    key: String,
    tenant_id: Uuid,
    user_id: Option<String>,
    scopes: Vec<&'static str>,
    name: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Iso>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
struct KeyView<'a> {
    id: Uuid,
    tenant_id: Uuid,
    user_id: Option<&'a str>,
    scopes: Vec<&'static str>,
    name: Option<&'a str>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Iso>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
}

impl<'a> From<&'a KeyRow> for KeyView<'a> {
    fn from(row: &'a KeyRow) -> Self {
        Self {
            id: row.id,
            tenant_id: row.tenant_id,
            user_id: row.user_id.as_deref(),
            scopes: row.scopes.names(),
            name: row.name.as_deref(),
            expires_at: row.expires_at.map(Iso),
            created_at: Iso(row.created_at),
        }
    }
}

/// Creates a key. The key is returned only in this response.
#[utoipa::path(post, path = "/api/keys", operation_id = "create_key", tag = "keys", request_body = KeyRequest,
    responses((status = 201, body = CreatedKey), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn create(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Response, ApiError> {
    let request: KeyRequest = body::json(&body::bytes(body).await?)?;
    let tenant_id = tenant_of(&api, &identity, request.tenant.as_deref()).await?;
    let scopes = scopes(&request.scopes)?;
    let user_id = match &request.user_id {
        Some(user) => Some(known_user(&api, tenant_id, user).await?),
        None => None,
    };
    let now = api.app.clock.now();
    let expires_at = request.expires_at.as_deref().map(|text| expiry(text, now)).transpose()?;
    let secret = new_secret(rand::random());
    let key = NewKey {
        id: api.app.clock.new_id(),
        tenant_id,
        digest: KeyDigest::of(&secret),
        user_id,
        scopes,
        name: request.name,
        expires_at,
        created_at: now,
    };
    let row = api.app.people().create_key(key).await?;
    let answer = CreatedKey {
        id: row.id,
        key: secret,
        tenant_id: row.tenant_id,
        user_id: row.user_id,
        scopes: row.scopes.names(),
        name: row.name,
        expires_at: row.expires_at.map(Iso),
    };
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(answer)).into_response())
}

/// The tenant of a new key. The operator may create keys for any tenant, a key with scope admin only for its own.
async fn tenant_of(api: &ApiState, identity: &Identity, named: Option<&str>) -> Result<Uuid, ApiError> {
    let Some(named) = named else { return Ok(identity.tenant_id) };
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; tenant takes a slug or an id.");
    match api.app.people().tenant(named.to_owned()).await? {
        Some(tenant) if identity.is_operator() || tenant.id == identity.tenant_id => Ok(tenant.id),
        Some(_) | None => Err(unknown()),
    }
}

fn scopes(names: &[String]) -> Result<Scopes, ApiError> {
    if names.is_empty() {
        return Err(ApiError::invalid("scopes is empty; name at least one of admin, chat, tools, read, act_as."));
    }
    Scopes::parse(names.iter().map(String::as_str))
        .map_err(|name| ApiError::invalid(format!("There is no scope {name}; take admin, chat, tools, read, act_as.")))
}

async fn known_user(api: &ApiState, tenant_id: Uuid, user: &UserId) -> Result<String, ApiError> {
    let number = match user {
        UserId::Number(number) => *number,
        UserId::Text(text) => text.parse().map_err(|_| ApiError::invalid("user_id takes the number of a user."))?,
    };
    let user_id = number.to_string();
    match api.app.people().principal(tenant_id, user_id.clone()).await? {
        Some(_) => Ok(user_id),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_user", "There is no such user in this tenant.")),
    }
}

fn expiry(text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    let wanted = || ApiError::invalid("expires_at takes a time in the future with an offset, such as 2030-01-31T12:00:00Z.");
    text.parse().map_err(|_| wanted()).and_then(|end: Timestamp| if end > now { Ok(end) } else { Err(wanted()) })
}

#[derive(Serialize, ToSchema)]
struct KeyList<'a> {
    keys: Vec<KeyView<'a>>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<Uuid>,
}

/// The tenant's keys, without their secrets.
#[utoipa::path(get, path = "/api/keys", operation_id = "list_keys", tag = "keys", params(PageQuery),
    responses((status = 200, body = KeyList)))]
async fn list(ApiCaller { api, identity }: ApiCaller, Params(query): Params<PageQuery>) -> Result<Response, ApiError> {
    let page = query.page()?;
    let rows = api.app.people().keys(identity.tenant_id, page).await?;
    let keys = rows.iter().map(KeyView::from).collect();
    Ok(Json(KeyList { keys, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// Deletes a key. The next request with it is rejected.
#[utoipa::path(delete, path = "/api/keys/{id}", operation_id = "delete_key", tag = "keys", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    let id = Uuid::parse_str(&id).map_err(|_| ApiError::not_found("key"))?;
    if api.app.people().delete_key(identity.tenant_id, id).await? { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("key")) }
}
