//! API keys: create, list, rotate, delete. A key is returned once; the server stores only its digest.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use werkruf_contract::Uuid;
use werkruf_llm::network;
use werkruf_store::{KeyDigest, KeyRow, NewKey, Scopes};

use super::body::{Params, PathParam};
use super::error::ApiError;
use super::page::{self, PageQuery};
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::config::AuthConfig;
use crate::identity::{Identity, new_secret};
use crate::routing::{self, ApiRouter, ToSchema, routes};

const DEFAULT_OVERLAP_S: u32 = 3600;
/// Thirty days.
const MAX_OVERLAP_S: u32 = 2_592_000;
const MAX_NETWORKS: usize = 64;
const MAX_COLLECTION_BYTES: usize = 256;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Admin.on(routes!(create)))
        .routes(Policy::Admin.on(routes!(list)))
        .routes(Policy::Admin.on(routes!(rotate)))
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
    /// `admin`, `chat`, `tools`, `read`, `act_as`, `approve`.
    scopes: Vec<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<String>,
    /// The networks from which the key may be used, such as `10.0.0.0/8`; without them, from every address.
    #[serde(default)]
    allow_ips: Vec<String>,
    /// The safety profile of every request with this key.
    #[serde(default)]
    safety_mode: Option<String>,
    /// The collection of every request with this key.
    #[serde(default)]
    collection: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct RotateRequest {
    /// For how many seconds the old key still counts; 3600 by default, 0 ends it at once.
    #[serde(default)]
    overlap_s: Option<u32>,
}

#[derive(Serialize, ToSchema)]
struct CreatedKey<'a> {
    /// The key. It is returned only in this response.
    key: String,
    #[serde(flatten)]
    row: KeyView<'a>,
}

#[derive(Serialize, ToSchema)]
struct RotatedKey<'a> {
    #[serde(flatten)]
    created: CreatedKey<'a>,
    /// The key that was replaced.
    replaces: Uuid,
    /// When the replaced key stops working.
    #[schema(value_type = String, format = DateTime)]
    replaced_until: Iso,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
struct KeyView<'a> {
    id: Uuid,
    tenant_id: Uuid,
    user_id: Option<&'a str>,
    scopes: Vec<&'static str>,
    name: Option<&'a str>,
    /// When the key stops working: its own time, or its maximum age by `[auth] key_max_age_days`.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Iso>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    /// The last request with the key, up to a minute late.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Iso>,
    allow_ips: &'a [String],
    safety_mode: Option<&'a str>,
    collection: Option<&'a str>,
    /// The key that replaced this one.
    replaced_by: Option<Uuid>,
}

impl<'a> KeyView<'a> {
    fn of(row: &'a KeyRow, auth: &AuthConfig) -> Self {
        Self {
            id: row.id,
            tenant_id: row.tenant_id,
            user_id: row.user_id.as_deref(),
            scopes: row.scopes.names(),
            name: row.name.as_deref(),
            expires_at: auth.key_ends(row).map(Iso),
            created_at: Iso(row.created_at),
            last_used_at: row.last_used_at.map(Iso),
            allow_ips: &row.allow_ips,
            safety_mode: row.safety_mode.as_deref(),
            collection: row.collection.as_deref(),
            replaced_by: row.replaced_by,
        }
    }
}

/// What a new key pins. A key that pins a value cannot make one that pins another or none.
fn pinned(own: &Option<String>, requested: Option<String>) -> Result<Option<String>, ApiError> {
    match (own, requested) {
        (Some(own), Some(other)) if *own != other => {
            Err(ApiError::forbidden("forbidden", format!("Your key is limited to `{own}`, so its new keys are too.")))
        }
        (own, requested) => Ok(requested.or_else(|| own.clone())),
    }
}

/// Creates a key. The key is returned only in this response.
#[routing::path(post, path = "/api/keys", operation_id = "create_key", tag = "keys", request_body = KeyRequest,
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
        allow_ips: networks(&request.allow_ips)?,
        safety_mode: pinned(&identity.safety_mode, request.safety_mode)?.map(|mode| safety_mode(&api, mode)).transpose()?,
        collection: pinned(&identity.collection, request.collection)?.map(collection).transpose()?,
        root_id: None,
    };
    let row = api.app.administration_store.create_key(key, identity.author()).await?;
    Ok(created(&CreatedKey { key: secret, row: KeyView::of(&row, &api.app.config.auth) }))
}

fn created(answer: &impl Serialize) -> Response {
    (StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

/// Replaces a key: a new one with the same rights, and the old one counts for `overlap_s` more. A key with a time of expiry lasts as
/// long again.
#[routing::path(post, path = "/api/keys/{id}/rotate", operation_id = "rotate_key", tag = "keys", params(("id" = String, Path)),
    request_body = RotateRequest,
    responses((status = 201, body = RotatedKey), (status = 409, body = ref("#/components/schemas/Error"), description = "`already_rotated`"),
        (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn rotate(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam, body: body::RequestBody) -> Result<Response, ApiError> {
    let unknown = || ApiError::not_found("key");
    let raw = body::bytes(body).await?;
    let request: RotateRequest = if raw.is_empty() { RotateRequest::default() } else { body::json(&raw)? };
    let overlap_s = request.overlap_s.unwrap_or(DEFAULT_OVERLAP_S);
    if overlap_s > MAX_OVERLAP_S {
        return Err(ApiError::invalid(format!("overlap_s takes 0 to {MAX_OVERLAP_S} seconds.")));
    }
    let id = Uuid::parse_str(&id).map_err(|_| unknown())?;
    let old = own_key(&api, &identity, id).await?;
    if let Some(successor) = old.replaced_by {
        return Err(already_rotated(successor));
    }
    let now = api.app.clock.now();
    let until = now + SignedDuration::from_secs(i64::from(overlap_s));
    let until = api.app.config.auth.key_ends(&old).map_or(until, |end| end.min(until));
    let lifetime = old.expires_at.map(|end| end.duration_since(old.created_at));
    let (secret, root_id) = (new_secret(rand::random()), Some(old.root()));
    let key = NewKey {
        id: api.app.clock.new_id(),
        tenant_id: old.tenant_id,
        digest: KeyDigest::of(&secret),
        user_id: old.user_id,
        scopes: old.scopes,
        name: old.name,
        expires_at: lifetime.and_then(|lifetime| now.checked_add(lifetime).ok()),
        created_at: now,
        allow_ips: old.allow_ips,
        safety_mode: old.safety_mode,
        collection: old.collection,
        root_id,
    };
    let Some(row) = api.app.administration_store.rotate_key(id, until, key, identity.author()).await? else {
        // Another request deleted or replaced it meanwhile.
        return Err(own_key(&api, &identity, id).await?.replaced_by.map_or_else(unknown, already_rotated));
    };
    let answer = CreatedKey { key: secret, row: KeyView::of(&row, &api.app.config.auth) };
    Ok(created(&RotatedKey { created: answer, replaces: id, replaced_until: Iso(until) }))
}

async fn own_key(api: &ApiState, identity: &Identity, id: Uuid) -> Result<KeyRow, ApiError> {
    let found = api.app.store.keys_by_id(vec![id]).await?;
    found.into_iter().find(|key| key.tenant_id == identity.tenant_id).ok_or_else(|| ApiError::not_found("key"))
}

fn already_rotated(successor: Uuid) -> ApiError {
    ApiError::conflict("already_rotated", format!("This key was replaced by {successor}; rotate that one."))
        .details(json!({"replaced_by": successor}))
}

fn networks(named: &[String]) -> Result<Vec<String>, ApiError> {
    if named.len() > MAX_NETWORKS {
        return Err(ApiError::invalid(format!("allow_ips takes at most {MAX_NETWORKS} networks.")));
    }
    match named.iter().find(|text| network(text).is_none()) {
        Some(text) => Err(ApiError::invalid(format!("`{text}` in allow_ips is not an address or network; write one such as 10.0.0.0/8."))),
        None => Ok(named.iter().filter_map(|text| network(text)).map(|network| network.to_string()).collect()),
    }
}

fn safety_mode(api: &ApiState, mode: String) -> Result<String, ApiError> {
    let known = api.app.runtime.setup().safety.contains_key(&mode);
    if known { Ok(mode) } else { Err(ApiError::invalid(format!("There is no safety profile `{mode}`."))) }
}

fn collection(name: String) -> Result<String, ApiError> {
    let fits = !name.trim().is_empty() && name.len() <= MAX_COLLECTION_BYTES;
    if fits { Ok(name) } else { Err(ApiError::invalid(format!("collection takes a name of 1 to {MAX_COLLECTION_BYTES} bytes."))) }
}

/// The tenant that a request names. The operator may name any tenant, a key with scope admin only its own.
pub(super) async fn tenant_of(api: &ApiState, identity: &Identity, named: Option<&str>) -> Result<Uuid, ApiError> {
    let Some(named) = named else { return Ok(identity.tenant_id) };
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; tenant takes a slug or an id.");
    match api.app.people().tenant(named.to_owned()).await? {
        Some(tenant) if identity.is_operator() || tenant.id == identity.tenant_id => Ok(tenant.id),
        Some(_) | None => Err(unknown()),
    }
}

fn scopes(names: &[String]) -> Result<Scopes, ApiError> {
    if names.is_empty() {
        return Err(ApiError::invalid(format!("scopes is empty; name at least one of {}.", Scopes::NAMES.join(", "))));
    }
    Scopes::parse(names.iter().map(String::as_str))
        .map_err(|name| ApiError::invalid(format!("There is no scope {name}; take {}.", Scopes::NAMES.join(", "))))
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
#[routing::path(get, path = "/api/keys", operation_id = "list_keys", tag = "keys", params(PageQuery),
    responses((status = 200, body = KeyList)))]
async fn list(ApiCaller { api, identity }: ApiCaller, Params(query): Params<PageQuery>) -> Result<Response, ApiError> {
    let page = query.page()?;
    api.app.access.key_uses.store(api.app.store.as_ref()).await?;
    let rows = api.app.administration_store.keys(identity.tenant_id, page).await?;
    let keys = rows.iter().map(|row| KeyView::of(row, &api.app.config.auth)).collect();
    Ok(Json(KeyList { keys, next_after: page::next_after(&rows, &page, |row| row.id) }).into_response())
}

/// Deletes a key. The next request with it is rejected, and its open event streams end within five seconds.
#[routing::path(delete, path = "/api/keys/{id}", operation_id = "delete_key", tag = "keys", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    let id = Uuid::parse_str(&id).map_err(|_| ApiError::not_found("key"))?;
    let deleted = api.app.administration_store.delete_key(identity.tenant_id, id, identity.author()).await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("key")) }
}
