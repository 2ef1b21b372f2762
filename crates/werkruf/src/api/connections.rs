//! `/api/connections`: the accounts of a person at servers that want a login of each person.

use std::sync::Arc;

use axum::Json;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use werkruf_contract::Principal;
use werkruf_tools::{ConnectFault, FaultKind, PersonalServer};

use super::body::PathParam;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body};
use crate::app::App;
use crate::identity::Identity;
use crate::routing::{self, ApiRouter, ToSchema, routes};

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Connect.on(routes!(list)))
        .routes(Policy::Connect.on(routes!(create)))
        .routes(Policy::Connect.on(routes!(delete)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ConnectionRequest {
    /// The name of the server in the configuration.
    server: String,
}

/// A link that connects an account.
#[derive(Serialize, ToSchema)]
struct ConnectionLink {
    server: String,
    /// It works once, for the person who asked for it, and must be opened in a browser.
    url: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Iso,
}

/// A server that wants a login of each person, and what the caller has there.
#[derive(Serialize, ToSchema)]
#[schema(as = Connection)]
struct ConnectionView {
    server: String,
    /// `connected`, `needs_connection`, or `expired` where the login must be repeated.
    #[schema(value_type = String)]
    state: &'static str,
    /// When the account was connected, or its token renewed.
    #[schema(value_type = Option<String>, format = DateTime)]
    updated_at: Option<Iso>,
}

#[derive(Serialize, ToSchema)]
struct ConnectionList {
    connections: Vec<ConnectionView>,
}

fn person(identity: &Identity) -> Result<Arc<Principal>, ApiError> {
    identity.principal.clone().ok_or_else(|| ApiError::forbidden("user_required", "Say for which user with X-User-Id."))
}

fn server(app: &App, person: &Principal, name: &str) -> Result<Arc<PersonalServer>, ApiError> {
    let found = app.modules.mcp.personal(name).filter(|server| server.serves(person));
    found.ok_or_else(|| ApiError::not_found("server with accounts of people"))
}

/// The servers that want a login of each person, and whether the caller has connected an account.
#[routing::path(get, path = "/api/connections", operation_id = "list_connections", tag = "connections",
    responses((status = 200, body = ConnectionList), (status = 403, body = ref("#/components/schemas/Error"))))]
async fn list(ApiCaller { api, identity }: ApiCaller) -> Result<Json<ConnectionList>, ApiError> {
    let person = person(&identity)?;
    let rows = api.app.database.connections().connections_of_person(person.tenant_id, person.user_id.clone()).await?;
    let view = |server: Arc<PersonalServer>| {
        let row = rows.iter().find(|row| row.key.server == server.name());
        let state = row.map_or("needs_connection", |row| server.state(row).name());
        ConnectionView { server: server.name().to_owned(), state, updated_at: row.map(|row| Iso(row.updated_at)) }
    };
    let servers = api.app.modules.mcp.all_personal().into_iter().filter(|server| server.serves(&person));
    Ok(Json(ConnectionList { connections: servers.map(view).collect() }))
}

/// Makes a link with which the caller connects an account at a server.
#[routing::path(post, path = "/api/connections", operation_id = "create_connection", tag = "connections", request_body = ConnectionRequest,
    responses((status = 201, body = ConnectionLink), (status = 403, body = ref("#/components/schemas/Error")),
        (status = 404, body = ref("#/components/schemas/Error"), description = "No server of this name wants a login of each person."),
        (status = 409, body = ref("#/components/schemas/Error"), description = "The installation has no key that seals secrets."),
        (status = "5XX", body = ref("#/components/schemas/Error"), description = "The other server could not be reached, or refused.")))]
async fn create(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<(StatusCode, Json<ConnectionLink>), ApiError> {
    let raw = body::bytes(body).await?;
    let request: ConnectionRequest = body::json(&raw)?;
    let person = person(&identity)?;
    let server = server(&api.app, &person, &request.server)?;
    let link = server.link(&person).await.map_err(refused)?;
    let view = ConnectionLink { server: server.name().to_owned(), url: link.url, expires_at: Iso(link.expires_at) };
    Ok((StatusCode::CREATED, Json(view)))
}

/// Forgets the caller's account at a server. The server is told, where it can be.
#[routing::path(delete, path = "/api/connections/{server}", operation_id = "delete_connection", tag = "connections",
    params(("server" = String, Path, description = "The name of the server in the configuration.")),
    responses((status = 204), (status = 403, body = ref("#/components/schemas/Error")),
        (status = 404, body = ref("#/components/schemas/Error"), description = "The caller has no account connected there."),
        (status = 409, body = ref("#/components/schemas/Error"), description = "The installation has no key that seals secrets."),
        (status = "5XX", body = ref("#/components/schemas/Error"), description = "The other server could not be reached, or refused.")))]
async fn delete(ApiCaller { api, identity }: ApiCaller, PathParam(name): PathParam) -> Result<StatusCode, ApiError> {
    let person = person(&identity)?;
    let server = server(&api.app, &person, &name)?;
    let author = identity.author();
    let forgotten = api.run_detached(async move { server.forget(&person, author).await }).await?.map_err(refused)?;
    if forgotten { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("connection")) }
}

fn refused(fault: ConnectFault) -> ApiError {
    match fault.kind {
        FaultKind::Installation => ApiError::conflict("secret_key_required", fault.message),
        FaultKind::Store => ApiError::internal(),
        _ => ApiError::new(StatusCode::BAD_GATEWAY, "upstream_error", fault.message),
    }
}
