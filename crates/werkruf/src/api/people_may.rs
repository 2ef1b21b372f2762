//! `GET /api/people/users/{id}/may/{tool}`: whether a user may use a tool, and which role decides.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::{Deserialize, Serialize};
use werkruf_contract::{HeldPermission, Need, Principal, Scope, ToolSpec};
use werkruf_store::{NewUser, PeopleKind, PeopleRow};

use super::ApiState;
use super::body::Params;
use super::error::ApiError;
use super::people::user_number;
use super::policy::{ApiCaller, Policy};
use super::tools::tool_of_tenant;
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Admin.on(routes!(may)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MayQuery {
    /// Another user: whether the first one may read their rows.
    user_id: Option<String>,
}

/// Whether a user may use a tool. Role, permission and scope are those that decide, as in the row of a call.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
struct May {
    allowed: bool,
    /// What the tool needs, as `entity:entity_type:access`; null: no permission.
    needs: Option<String>,
    role: Option<String>,
    /// The permission of that role, as `entity:entity_type:access`.
    permission: Option<String>,
    #[schema(value_type = Option<String>)]
    scope: Option<Scope>,
    /// One sentence.
    reason: String,
}

/// The two parameters of the path.
struct UserAndTool(String, String);

impl<S: Send + Sync> FromRequestParts<S> for UserAndTool {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path((user, tool)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::invalid("The path is not UTF-8; encode it again."))?;
        Ok(Self(user, tool))
    }
}

/// Whether a user may use a tool, by all roles, those of a token included; with `user_id`, whether the rows of that other user too.
#[routing::path(get, path = "/api/people/users/{id}/may/{tool}", operation_id = "user_may", tag = "people",
    params(("id" = String, Path, description = "The user's number, or `ext:` and the external id."), ("tool" = String, Path), MayQuery),
    responses((status = 200, body = May), (status = 404, body = ref("#/components/schemas/Error"))))]
async fn may(caller: ApiCaller, UserAndTool(user, tool): UserAndTool, Params(query): Params<MayQuery>) -> Result<Json<May>, ApiError> {
    let (app, tenant_id) = (&caller.api.app, caller.identity.tenant_id);
    let id = user_number(&caller, user).await?;
    let user = user_row(&caller, id).await?;
    let other = match query.user_id {
        Some(other) => {
            let other = user_number(&caller, other).await?;
            Some(user_row(&caller, other).await?).filter(|other| other.id != id)
        }
        None => None,
    };
    let entry = tool_of_tenant(&caller, &tool).await?;
    let principal = app.people().principal(tenant_id, id.to_string()).await?;
    Ok(Json(decide(&user, principal.as_deref(), entry.spec(), other.as_ref())))
}

async fn user_row(caller: &ApiCaller, id: i64) -> Result<NewUser, ApiError> {
    match caller.api.app.administration_store.people_row(caller.identity.tenant_id, PeopleKind::User, id).await? {
        Some(PeopleRow::User(user)) => Ok(user),
        _ => Err(ApiError::not_found("user")),
    }
}

fn decide(user: &NewUser, principal: Option<&Principal>, spec: &ToolSpec, other: Option<&NewUser>) -> May {
    let need = other.and(spec.permission_for_others.as_ref()).map(|others| &others.need).or(spec.permission.as_ref());
    let held = need.zip(principal).and_then(|(need, principal)| principal.decisive(need));
    let (allowed, reason) = match (principal, need, held, other) {
        (None, ..) => (false, format!("User {} is not active, so nothing runs for them.", user.id)),
        (Some(_), None, _, None) => (true, format!("{} needs no permission{}.", spec.name, approval(spec))),
        (Some(_), None, _, Some(_)) => (false, format!("{} needs no permission, and it shows no rows of other users.", spec.name)),
        (Some(principal), Some(need), None, _) => (false, no_permission(principal, need)),
        (Some(principal), Some(_), Some(held), None) => (true, format!("{}{}.", granted(user, principal, held), approval(spec))),
        (Some(principal), Some(_), Some(held), Some(other)) => {
            let (allowed, why) = reach(principal, held.permission.scope, other);
            (allowed, format!("{}, {why}.", granted(user, principal, held)))
        }
    };
    May {
        allowed,
        needs: need.map(ToString::to_string),
        role: held.map(|held| held.role.clone()),
        permission: held.map(|held| held.permission.to_string()),
        scope: held.map(|held| held.permission.scope),
        reason,
    }
}

fn no_permission(principal: &Principal, need: &Need) -> String {
    let names: Vec<&str> = principal.roles.iter().map(|role| role.name.as_str()).collect();
    match names[..] {
        [] => format!("User {} has no role, and {need} is needed.", principal.user_id),
        [name] => format!("The role {name} does not have {need}."),
        _ => format!("None of the roles {} has {need}.", names.join(", ")),
    }
}

fn granted(user: &NewUser, principal: &Principal, held: &HeldPermission) -> String {
    let of_token = !principal.roles.iter().any(|role| role.name == held.role && user.role_ids.contains(&role.id));
    let from = if of_token { " of the user's token" } else { "" };
    format!("The role {}{from} has {} with scope {}", held.role, held.permission, held.permission.scope)
}

fn reach(principal: &Principal, scope: Scope, other: &NewUser) -> (bool, String) {
    let why = match scope {
        Scope::Own => "which covers the user's own rows only".to_owned(),
        Scope::All => "which covers the rows of every user".to_owned(),
        Scope::Branch if principal.branch_id.is_none() => format!("but user {} has no branch", principal.user_id),
        Scope::Branch if principal.branch_id == other.branch_id => format!("and user {} is in the same branch", other.id),
        Scope::Branch => format!("and user {} is not in the same branch", other.id),
    };
    (principal.reaches(scope, other.id, other.branch_id), why)
}

/// The part of a sentence about the approval of each call.
fn approval(spec: &ToolSpec) -> String {
    if spec.approval.is_empty() { String::new() } else { format!("; each call needs approval by {}", spec.approval.join(" or ")) }
}
