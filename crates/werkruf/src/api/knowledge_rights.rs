//! The rights of collections: who may read and write them. The other routes of the knowledge base ask here.

use std::sync::Arc;

use axum::Json;
use serde::{Deserialize, Serialize};
use werkruf_knowledge::{CollectionRights, DEFAULT_COLLECTION, EVERYBODY, Grantee, NewRights, Trust};

use super::ApiState;
use super::body::{self, PathParam};
use super::error::ApiError;
use super::knowledge::MAX_NAME_BYTES;
use super::policy::{ApiCaller, Policy};
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, ToSchema, routes};

const MAX_ROLES: usize = 100;
const ADMIN_ROLE: &str = "admin";

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(show_rights, put_rights)))
}

/// Whose rights count for a request. Scope admin reads everything, but the operator who acts for a user reads what this user may read, unless
/// the user is an administrator too.
pub(crate) fn grantee(identity: &Identity) -> Grantee {
    match &identity.principal {
        Some(person) if !identity.scopes.admin || (identity.operator && !person.has_role(ADMIN_ROLE)) => Grantee::person(person),
        None if !identity.scopes.admin => Grantee::nobody(identity.tenant_id),
        _ => Grantee::everything(identity.tenant_id),
    }
}

/// 403 if the caller may read but not write a collection, 404 if the caller may not even read it. Only scope `admin` makes new collections.
pub(super) async fn check_write(api: &ApiState, identity: &Identity, collection: &str) -> Result<(), ApiError> {
    let grantee = grantee(identity);
    if grantee.reads_everything() {
        return Ok(());
    }
    let rights = api.app.database.knowledge().rights(identity.tenant_id, collection.to_owned()).await?;
    // Everybody knows the name of the default collection, so whether it exists is no secret.
    let rights = rights.or_else(|| (collection == DEFAULT_COLLECTION).then(CollectionRights::default));
    match rights {
        Some(rights) if rights.may_write(&grantee) => Ok(()),
        Some(rights) if rights.may_read(&grantee) => {
            Err(ApiError::forbidden("forbidden", "Only scope admin and the roles in the collection's `write` may change its documents."))
        }
        _ => Err(ApiError::not_found("collection")),
    }
}

/// For a collection that was not found: 404, whether it does not exist or the caller may not read it. Administrators, and everybody in a
/// default collection that has no document yet, get an empty result instead.
pub(super) async fn check_missing(api: &ApiState, grantee: &Grantee, collection: &str) -> Result<(), ApiError> {
    let is_new = async || api.app.database.knowledge().rights(grantee.tenant_id(), collection.to_owned()).await.map(|row| row.is_none());
    if grantee.reads_everything() || (collection == DEFAULT_COLLECTION && is_new().await?) {
        return Ok(());
    }
    Err(ApiError::not_found("collection"))
}

/// The rights of a collection.
#[derive(Serialize, ToSchema)]
struct RightsView {
    collection: String,
    /// Names of roles; `*` is everybody of the tenant.
    read: Vec<String>,
    /// Names of roles. Scope admin may always write.
    write: Vec<String>,
    /// `trusted` or `untrusted`.
    #[schema(value_type = String)]
    trust: Trust,
}

/// New rights of a collection.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRights)]
struct RightsRequest {
    /// Names of roles; `*` is everybody of the tenant.
    read: Vec<String>,
    /// Names of roles.
    write: Vec<String>,
    /// `trusted` or `untrusted`; unchanged without it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    trust: Option<Trust>,
}

/// The rights of a collection.
#[routing::path(get, path = "/api/knowledge/collections/{name}/rights", operation_id = "knowledge_rights", tag = "knowledge",
    params(("name" = String, Path)),
    responses((status = 200, body = RightsView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn show_rights(ApiCaller { api, identity }: ApiCaller, PathParam(name): PathParam) -> Result<Json<RightsView>, ApiError> {
    identity.collection_for(Some(name.clone()))?;
    let rights = api.app.database.knowledge().rights(identity.tenant_id, name.clone()).await?;
    let rights = rights.ok_or_else(|| ApiError::not_found("collection"))?;
    Ok(Json(view(name, rights)))
}

/// Sets the rights of a collection; the next request of everybody is compared with them. A collection that does not exist is created.
#[routing::path(put, path = "/api/knowledge/collections/{name}/rights", operation_id = "knowledge_put_rights", tag = "knowledge",
    params(("name" = String, Path)), request_body = RightsRequest,
    responses((status = 200, body = RightsView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn put_rights(
    ApiCaller { api, identity }: ApiCaller,
    PathParam(name): PathParam,
    body: body::RequestBody,
) -> Result<Json<RightsView>, ApiError> {
    identity.collection_for(Some(name.clone()))?;
    let RightsRequest { read, write, trust } = body::json(&body::bytes(body).await?)?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(ApiError::invalid(format!("The name of a collection has 1 to {MAX_NAME_BYTES} bytes.")));
    }
    let is_bad = |role: &String| role.is_empty() || role.len() > MAX_NAME_BYTES || role.contains('\0');
    if read.len() > MAX_ROLES || write.len() > MAX_ROLES || read.iter().chain(&write).any(is_bad) {
        return Err(ApiError::invalid(format!("A list has at most {MAX_ROLES} roles, each of 1 to {MAX_NAME_BYTES} bytes.")));
    }
    if write.iter().any(|role| role == EVERYBODY) {
        return Err(ApiError::invalid("`write` needs the names of roles; `*` is only for `read`."));
    }
    let store = api.app.database.knowledge();
    let rights = NewRights { read: read.clone(), write: write.clone(), trust };
    let trust = store.put_rights(identity.tenant_id, name.clone(), rights, identity.author(), api.app.clock.now()).await?;
    Ok(Json(view(name, CollectionRights { read, write, trust })))
}

fn view(collection: String, rights: CollectionRights) -> RightsView {
    RightsView { collection, read: rights.read, write: rights.write, trust: rights.trust }
}
