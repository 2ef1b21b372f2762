//! `/api/people`: users, roles and branches, one by one. A change counts from the next request or call on, on every server.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use werkruf_store::{EditRefusal, NumberPage, PeopleEdit, PeopleKind, PeopleRow, Uses};

use super::ApiState;
use super::body::{self, Params, PathParam, RequestBody};
use super::erasure::resolve_user_id;
use super::error::ApiError;
use super::page;
use super::people_schemas::{
    BranchChangeSchema, BranchSchema, NewBranchSchema, NewRoleSchema, NewUserSchema, PermissionSchema, RoleChangeSchema, RoleSchema,
    UserChangeSchema, UserSchema,
};
use super::policy::{ApiCaller, Policy};
use crate::config::UnknownUsers;
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Admin.on(routes!(list_users, create_user)))
        .routes(Policy::Admin.on(routes!(get_user, change_user, deactivate_user)))
        .routes(Policy::Admin.on(routes!(put_user_roles)))
        .routes(Policy::Admin.on(routes!(list_roles, create_role)))
        .routes(Policy::Admin.on(routes!(get_role, change_role, delete_role)))
        .routes(Policy::Admin.on(routes!(put_role_permissions)))
        .routes(Policy::Admin.on(routes!(list_branches, create_branch)))
        .routes(Policy::Admin.on(routes!(get_branch, change_branch, delete_branch)))
}

/// All roles of a user.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UserRoles<'a> {
    #[serde(borrow)]
    #[schema(value_type = Vec<i64>)]
    role_ids: &'a RawValue,
}

/// Selects a page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct NumberQuery {
    /// The last id of the page before.
    #[param(value_type = Option<i64>)]
    after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
    /// `asc` (smallest id first) or `desc`.
    order: Option<String>,
}

impl NumberQuery {
    fn page(&self) -> Result<NumberPage, ApiError> {
        let wrong = || ApiError::invalid("after takes the last id of the page before (a number).");
        let after = self.after.as_deref().map(|text| text.parse().map_err(|_| wrong())).transpose()?;
        let page = page::page(None, self.limit.as_deref(), self.order.as_deref())?;
        Ok(NumberPage { after, limit: page.limit, order: page.order, max_bytes: page.max_bytes })
    }
}

#[derive(Serialize, ToSchema)]
struct UserList {
    #[schema(value_type = Vec<UserSchema>)]
    users: Vec<PeopleRow>,
    /// The value of `after` for the next page; null on the last page.
    next_after: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct RoleList {
    #[schema(value_type = Vec<RoleSchema>)]
    roles: Vec<PeopleRow>,
    next_after: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct BranchList {
    #[schema(value_type = Vec<BranchSchema>)]
    branches: Vec<PeopleRow>,
    next_after: Option<i64>,
}

/// The users of the tenant, with those who are not active.
#[routing::path(get, path = "/api/people/users", operation_id = "list_users", tag = "people", params(NumberQuery),
    responses((status = 200, body = UserList)))]
async fn list_users(caller: ApiCaller, Params(query): Params<NumberQuery>) -> Result<Json<UserList>, ApiError> {
    let (users, next_after) = list(&caller, PeopleKind::User, &query).await?;
    Ok(Json(UserList { users, next_after }))
}

/// Makes a user. Without an id the user gets the next free one.
#[routing::path(post, path = "/api/people/users", operation_id = "create_user", tag = "people", request_body = NewUserSchema,
    responses((status = 201, body = UserSchema), (status = 409, body = ref("#/components/schemas/Error"), description = "`id_taken`"),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn create_user(caller: ApiCaller, body: RequestBody) -> Result<Response, ApiError> {
    create(&caller, PeopleKind::User, body).await
}

/// One user.
#[routing::path(get, path = "/api/people/users/{id}", operation_id = "get_user", tag = "people",
    params(("id" = String, Path, description = "The user's number, or `ext:` and the external id.")),
    responses((status = 200, body = UserSchema), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn get_user(caller: ApiCaller, PathParam(id): PathParam) -> Result<Json<PeopleRow>, ApiError> {
    let id = user_number(&caller, id).await?;
    show(&caller, PeopleKind::User, id).await
}

/// Changes a user: fields that are not named stay. `active: true` brings a deactivated user back.
#[routing::path(patch, path = "/api/people/users/{id}", operation_id = "change_user", tag = "people", params(("id" = String, Path)),
    request_body = UserChangeSchema, responses((status = 200, body = UserSchema), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn change_user(caller: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    let id = user_number(&caller, id).await?;
    change(&caller, PeopleKind::User, id, body).await
}

/// Deactivates a user: their keys and tokens stop working, and their open event streams end within five seconds. Everything stored stays;
/// `POST …/erase` erases it.
#[routing::path(delete, path = "/api/people/users/{id}", operation_id = "deactivate_user", tag = "people", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn deactivate_user(caller: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    let id = user_number(&caller, id).await?;
    delete(&caller, PeopleKind::User, id).await
}

/// Sets all roles of a user.
#[routing::path(put, path = "/api/people/users/{id}/roles", operation_id = "put_user_roles", tag = "people", params(("id" = String, Path)),
    request_body = UserRoles, responses((status = 200, body = UserSchema), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn put_user_roles(caller: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    let id = user_number(&caller, id).await?;
    let raw = body::bytes(body).await?;
    body::json_with_values::<IgnoredAny>(&raw)?;
    let roles: UserRoles<'_> = serde_json::from_slice(&raw).map_err(|_| invalid_field("", "takes {\"role_ids\": […]} and nothing else"))?;
    let fields = list_field("role_ids", roles.role_ids, "/role_ids")?;
    edit(&caller, PeopleKind::User, PeopleEdit::Change { id, fields }).await.map(Json)
}

/// The roles of the tenant.
#[routing::path(get, path = "/api/people/roles", operation_id = "list_roles", tag = "people", params(NumberQuery),
    responses((status = 200, body = RoleList)))]
async fn list_roles(caller: ApiCaller, Params(query): Params<NumberQuery>) -> Result<Json<RoleList>, ApiError> {
    let (roles, next_after) = list(&caller, PeopleKind::Role, &query).await?;
    Ok(Json(RoleList { roles, next_after }))
}

/// Makes a role.
#[routing::path(post, path = "/api/people/roles", operation_id = "create_role", tag = "people", request_body = NewRoleSchema,
    responses((status = 201, body = RoleSchema), (status = 409, body = ref("#/components/schemas/Error"), description = "`id_taken` or `name_taken`"),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn create_role(caller: ApiCaller, body: RequestBody) -> Result<Response, ApiError> {
    create(&caller, PeopleKind::Role, body).await
}

/// One role.
#[routing::path(get, path = "/api/people/roles/{id}", operation_id = "get_role", tag = "people", params(("id" = i64, Path)),
    responses((status = 200, body = RoleSchema), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn get_role(caller: ApiCaller, PathParam(id): PathParam) -> Result<Json<PeopleRow>, ApiError> {
    show(&caller, PeopleKind::Role, number(PeopleKind::Role, &id)?).await
}

/// Changes a role: fields that are not named stay.
#[routing::path(patch, path = "/api/people/roles/{id}", operation_id = "change_role", tag = "people", params(("id" = i64, Path)),
    request_body = RoleChangeSchema, responses((status = 200, body = RoleSchema), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`in_use` or `name_taken`"),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn change_role(caller: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    change(&caller, PeopleKind::Role, number(PeopleKind::Role, &id)?, body).await
}

/// Deletes a role that nobody has and nothing names.
#[routing::path(delete, path = "/api/people/roles/{id}", operation_id = "delete_role", tag = "people", params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`in_use`")))]
async fn delete_role(caller: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    delete(&caller, PeopleKind::Role, number(PeopleKind::Role, &id)?).await
}

/// Sets all permissions of a role.
#[routing::path(put, path = "/api/people/roles/{id}/permissions", operation_id = "put_role_permissions", tag = "people",
    params(("id" = i64, Path)), request_body = Vec<PermissionSchema>,
    responses((status = 200, body = RoleSchema), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn put_role_permissions(caller: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    let id = number(PeopleKind::Role, &id)?;
    let raw = body::bytes(body).await?;
    raw.reserve_all_values()?;
    let list = serde_json::from_slice(&raw).map_err(|error| ApiError::invalid(format!("The body is not JSON: {error}.")))?;
    let fields = list_field("permissions", list, "")?;
    // The body is the list itself, and so are the paths of its faults.
    edit_with_paths(&caller, PeopleKind::Role, PeopleEdit::Change { id, fields }, "/permissions").await.map(Json)
}

/// The branches of the tenant.
#[routing::path(get, path = "/api/people/branches", operation_id = "list_branches", tag = "people", params(NumberQuery),
    responses((status = 200, body = BranchList)))]
async fn list_branches(caller: ApiCaller, Params(query): Params<NumberQuery>) -> Result<Json<BranchList>, ApiError> {
    let (branches, next_after) = list(&caller, PeopleKind::Branch, &query).await?;
    Ok(Json(BranchList { branches, next_after }))
}

/// Makes a branch.
#[routing::path(post, path = "/api/people/branches", operation_id = "create_branch", tag = "people", request_body = NewBranchSchema,
    responses((status = 201, body = BranchSchema), (status = 409, body = ref("#/components/schemas/Error"), description = "`id_taken`"),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn create_branch(caller: ApiCaller, body: RequestBody) -> Result<Response, ApiError> {
    create(&caller, PeopleKind::Branch, body).await
}

/// One branch.
#[routing::path(get, path = "/api/people/branches/{id}", operation_id = "get_branch", tag = "people", params(("id" = i64, Path)),
    responses((status = 200, body = BranchSchema), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn get_branch(caller: ApiCaller, PathParam(id): PathParam) -> Result<Json<PeopleRow>, ApiError> {
    show(&caller, PeopleKind::Branch, number(PeopleKind::Branch, &id)?).await
}

/// Changes a branch: fields that are not named stay.
#[routing::path(patch, path = "/api/people/branches/{id}", operation_id = "change_branch", tag = "people", params(("id" = i64, Path)),
    request_body = BranchChangeSchema, responses((status = 200, body = BranchSchema), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 422, body = ref("#/components/schemas/Error"), description = "`people_invalid`")))]
async fn change_branch(caller: ApiCaller, PathParam(id): PathParam, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    change(&caller, PeopleKind::Branch, number(PeopleKind::Branch, &id)?, body).await
}

/// Deletes a branch that no user and no row has.
#[routing::path(delete, path = "/api/people/branches/{id}", operation_id = "delete_branch", tag = "people", params(("id" = i64, Path)),
    responses((status = 204), (status = 404, body = ref("#/components/schemas/Error")),
        (status = 409, body = ref("#/components/schemas/Error"), description = "`in_use`")))]
async fn delete_branch(caller: ApiCaller, PathParam(id): PathParam) -> Result<StatusCode, ApiError> {
    delete(&caller, PeopleKind::Branch, number(PeopleKind::Branch, &id)?).await
}

async fn list(caller: &ApiCaller, kind: PeopleKind, query: &NumberQuery) -> Result<(Vec<PeopleRow>, Option<i64>), ApiError> {
    let found = caller.api.app.administration_store.people(caller.identity.tenant_id, kind, query.page()?).await?;
    let next_after = found.rows.last().filter(|_| found.is_full).map(PeopleRow::id);
    Ok((found.rows, next_after))
}

async fn show(caller: &ApiCaller, kind: PeopleKind, id: i64) -> Result<Json<PeopleRow>, ApiError> {
    let row = caller.api.app.administration_store.people_row(caller.identity.tenant_id, kind, id).await?;
    row.map(Json).ok_or_else(|| ApiError::not_found(kind.name()))
}

async fn create(caller: &ApiCaller, kind: PeopleKind, body: RequestBody) -> Result<Response, ApiError> {
    let fields = fields(body).await?;
    let row = edit(caller, kind, PeopleEdit::Create { fields }).await?;
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

async fn change(caller: &ApiCaller, kind: PeopleKind, id: i64, body: RequestBody) -> Result<Json<PeopleRow>, ApiError> {
    let fields = fields(body).await?;
    edit(caller, kind, PeopleEdit::Change { id, fields }).await.map(Json)
}

async fn delete(caller: &ApiCaller, kind: PeopleKind, id: i64) -> Result<StatusCode, ApiError> {
    edit(caller, kind, PeopleEdit::Delete { id }).await.map(|_| StatusCode::NO_CONTENT)
}

async fn edit(caller: &ApiCaller, kind: PeopleKind, edit: PeopleEdit) -> Result<PeopleRow, ApiError> {
    edit_with_paths(caller, kind, edit, "").await
}

/// The paths of faults are those in the value at `below`.
async fn edit_with_paths(caller: &ApiCaller, kind: PeopleKind, edit: PeopleEdit, below: &str) -> Result<PeopleRow, ApiError> {
    if kind == PeopleKind::Role {
        keep_guest_role(caller, &edit).await?;
    }
    let Identity { tenant_id, .. } = *caller.identity;
    let (app, by) = (&caller.api.app, caller.identity.author());
    let edited = app.administration_store.edit_people(tenant_id, kind, edit, by, app.clock.now()).await?;
    edited.map_err(|refusal| match refusal {
        EditRefusal::Unknown => ApiError::not_found(kind.name()),
        EditRefusal::Taken(id) => {
            ApiError::conflict("id_taken", format!("There is a {} {id} already; leave the id out or take another.", kind.name()))
        }
        EditRefusal::NameTaken(id) => {
            ApiError::conflict("name_taken", format!("Role {id} has this name already; tokens and rights name roles, so take another."))
        }
        EditRefusal::InUse(Uses { users, tables }) => {
            let message = match &tables[..] {
                [] => format!("{users} user(s) have this {}, active or not, or by a valid token; give them another first.", kind.name()),
                _ => format!("Rows of {} name this {}; change or remove them first.", tables.join(", "), kind.name()),
            };
            ApiError::conflict("in_use", message).details(json!({"users": users, "tables": tables}))
        }
        EditRefusal::Faults(mut faults) => {
            for fault in &mut faults {
                if let Some(path) = fault.path.strip_prefix(below) {
                    fault.path = path.to_owned();
                }
            }
            let message = format!("The {} has {} error(s), so nothing was changed; details say where.", kind.name(), faults.len());
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "people_invalid", message).details(json!(faults))
        }
    })
}

/// Refuses to delete or rename the role that guests get.
async fn keep_guest_role(caller: &ApiCaller, edit: &PeopleEdit) -> Result<(), ApiError> {
    let (app, config) = (&caller.api.app, &caller.api.app.config);
    let (id, name) = match edit {
        PeopleEdit::Create { .. } => return Ok(()),
        PeopleEdit::Delete { id } => (*id, None),
        PeopleEdit::Change { id, fields } => match serde_json::from_str::<RoleName>(fields) {
            Ok(RoleName { name: Some(name) }) => (*id, Some(name)),
            // Nothing is renamed; wrong fields are reported by the store.
            Ok(RoleName { name: None }) | Err(_) => return Ok(()),
        },
    };
    let makes_guests = config.auth.unknown_users == UnknownUsers::Guest || !config.tokens.is_empty();
    let role =
        if makes_guests { app.administration_store.people_row(caller.identity.tenant_id, PeopleKind::Role, id).await? } else { None };
    match role {
        Some(PeopleRow::Role(role)) if role.name == config.auth.guest_role && name.as_ref() != Some(&role.name) => {
            let message = format!("[auth] guest_role in the configuration is \"{}\"; name another role there first.", role.name);
            Err(ApiError::conflict("in_use", message).details(json!({"users": 0, "tables": []})))
        }
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
struct RoleName {
    name: Option<String>,
}

/// The JSON object of a body as text; the store reads its fields.
async fn fields(body: RequestBody) -> Result<String, ApiError> {
    let raw = body::bytes(body).await?;
    body::json_with_values::<IgnoredAny>(&raw)?;
    let text = std::str::from_utf8(&raw).map_err(|_| ApiError::invalid("The body is not UTF-8; encode it again."))?;
    let is_object = text.trim_ascii_start().starts_with('{');
    if is_object { Ok(text.to_owned()) } else { Err(ApiError::invalid("The body takes a JSON object.")) }
}

/// An object with this field alone. Its value must be a list: null would mean an empty one.
fn list_field(name: &str, value: &RawValue, path: &str) -> Result<String, ApiError> {
    let text = value.get();
    if text.starts_with('[') { Ok(format!("{{\"{name}\":{text}}}")) } else { Err(invalid_field(path, "takes a list")) }
}

fn invalid_field(path: &str, message: &str) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "people_invalid", "The body has 1 error(s), so nothing was changed; details say where.")
        .details(json!([{"path": path, "message": message}]))
}

/// The number of a user, by the number or by `ext:<external id>`.
pub(super) async fn user_number(caller: &ApiCaller, id: String) -> Result<i64, ApiError> {
    let id = resolve_user_id(&caller.api.app, caller.identity.tenant_id, id).await?;
    number(PeopleKind::User, &id)
}

/// The canonical spelling of a number: `07` does not name row 7.
fn number(kind: PeopleKind, id: &str) -> Result<i64, ApiError> {
    id.parse::<i64>().ok().filter(|number| number.to_string() == id).ok_or_else(|| ApiError::not_found(kind.name()))
}
