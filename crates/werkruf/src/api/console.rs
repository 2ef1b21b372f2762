//! Sign-in to the console: by a link that works once, or by a key. A session is a cookie that stands for the credential.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use werkruf_contract::Uuid;
use werkruf_store::KeyRow;

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::view::Iso;
use super::{ApiState, body, pages};
use crate::app::App;
use crate::identity::console_session::{COOKIE_NAME, SESSION, SignedIn, make_link, sign_in, use_link};
use crate::identity::origin::{RequestHead, check_sender};
use crate::listen::client_address;
use crate::routing::{self, ApiRouter, ToSchema, routes};

/// A token in a link has 43 characters.
const MAX_TOKEN: usize = 100;

/// The routes that need no credential, because they ask for one.
pub(crate) fn open_routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(routes!(create_session))
}

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::Any.on(routes!(show_session)))
        .routes(Policy::Any.on(routes!(delete_session)))
        .routes(Policy::Admin.on(routes!(create_link)))
}

#[derive(Deserialize, ToSchema)]
struct SignInRequest {
    /// An API key, or the operator's key.
    key: String,
}

/// Signs in to the console with a key. The cookie of the session counts for pages of this server only.
#[routing::path(post, path = "/api/console/sessions", operation_id = "create_console_session", tag = "console", security(()),
    request_body = SignInRequest,
    responses((status = 204, description = "Signed in; the cookie is in `Set-Cookie`."),
        (status = 401, body = ref("#/components/schemas/Error")), (status = 403, body = ref("#/components/schemas/Error"), description = "`foreign_origin`"),
        (status = 429, body = ref("#/components/schemas/Error"))))]
async fn create_session(State(api): State<Arc<ApiState>>, request: Request) -> Result<Response, ApiError> {
    check_sender(&api.app.config, &RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() })?;
    let address = client_address(request.extensions(), request.headers(), &api.proxies);
    let Ok(body) = body::RequestBody::from_request(request, &api).await;
    let raw = body::bytes(body).await?;
    if raw.is_empty() {
        return Err(ApiError::unauthorized("Send a key: `{\"key\": \"wk_…\"}`."));
    }
    let SignInRequest { key } = body::json(&raw)?;
    let signed_in = sign_in(&api.app, address, key.trim()).await?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie(&api.app, &signed_in)?), no_store()]).into_response())
}

/// `GET /console/signin`: a link signs in and leads to the console. Without a token it is a page of the console.
pub(crate) async fn follow_link(State(api): State<Arc<ApiState>>, request: Request) -> Response {
    let token = request.uri().query().into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("token="));
    let Some(token) = token.filter(|token| !token.is_empty()) else { return pages::console_page(&request, StatusCode::OK) };
    // A program that looks at a link, or a page that embeds it, must not use it up.
    let opens_page = request.headers().get("sec-fetch-dest").is_none_or(|kind| kind == "document");
    if *request.method() == Method::HEAD || !opens_page {
        return pages::console_page(&request, StatusCode::OK);
    }
    let address = client_address(request.extensions(), request.headers(), &api.proxies);
    let signed_in = match token.len() <= MAX_TOKEN {
        true => use_link(&api.app, address, token).await,
        false => Err(ApiError::unauthorized("This is no link of this server.")),
    };
    match signed_in.and_then(|signed_in| cookie(&api.app, &signed_in)) {
        Ok(cookie) => {
            let headers = [(SET_COOKIE, cookie), (LOCATION, HeaderValue::from_static("/console/")), no_store()];
            pages::guarded((StatusCode::SEE_OTHER, headers).into_response())
        }
        // The page says that the link does not work any more, and takes a key.
        Err(error) if error.status() == StatusCode::UNAUTHORIZED => pages::console_page(&request, StatusCode::UNAUTHORIZED),
        Err(error) => error.into_response(),
    }
}

fn no_store() -> (http::HeaderName, HeaderValue) {
    (CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

fn cookie(app: &App, SignedIn { token }: &SignedIn) -> Result<HeaderValue, ApiError> {
    set_cookie(app, token, SESSION.as_secs())
}

fn set_cookie(app: &App, value: &str, max_age: i64) -> Result<HeaderValue, ApiError> {
    let encrypted = app.config.tls.is_some() || app.config.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    let secure = if encrypted { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(|_| ApiError::internal())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Who is signed in, and as whom requests count.
#[derive(Serialize, ToSchema)]
struct ConsoleSession {
    /// The operator sees everything, and acts for the person that `X-User-Id` names.
    operator: bool,
    tenant_id: Uuid,
    /// The user that the key belongs to.
    user_id: Option<String>,
    /// The name of the user, or of the key.
    name: Option<String>,
    scopes: Vec<&'static str>,
    /// The user that this request acts for, where it is not the key's own.
    acting_user_id: Option<String>,
    /// When the session ends at the latest; null where no end is known.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Iso>,
}

/// Who is signed in. Every credential may ask.
#[routing::path(get, path = "/api/console/session", operation_id = "get_console_session", tag = "console",
    responses((status = 200, body = ConsoleSession), (status = 401, body = ref("#/components/schemas/Error"))))]
async fn show_session(ApiCaller { api, identity }: ApiCaller) -> Result<Response, ApiError> {
    let key: Option<KeyRow> = match identity.key_id {
        Some(id) => api.app.store.keys_by_id(vec![id]).await?.pop(),
        None => None,
    };
    let person = identity.principal.as_ref();
    let acting = person.map(|person| person.user_id.clone());
    let is_token = !identity.is_operator() && identity.key_id.is_none();
    let user_id = if is_token { acting.clone() } else { key.as_ref().and_then(|key| key.user_id.clone()) };
    let session = ConsoleSession {
        operator: identity.is_operator(),
        tenant_id: identity.tenant_id,
        name: person.map(|person| person.name.clone()).or_else(|| key.and_then(|key| key.name)),
        scopes: identity.scopes.names(),
        acting_user_id: acting.filter(|acting| user_id.as_ref() != Some(acting)),
        user_id,
        expires_at: identity.until.map(Iso),
    };
    Ok(([no_store()], Json(session)).into_response())
}

/// Signs out: the session and its open streams end.
#[routing::path(delete, path = "/api/console/session", operation_id = "delete_console_session", tag = "console",
    responses((status = 204), (status = 401, body = ref("#/components/schemas/Error"))))]
async fn delete_session(ApiCaller { api, identity }: ApiCaller) -> Result<Response, ApiError> {
    if let Some(id) = identity.session_id {
        // Another request of the same page may have signed out already.
        api.app.console_store.delete_console_session(id).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, set_cookie(&api.app, "", 0)?)]).into_response())
}

/// A link to sign in.
#[derive(Serialize, ToSchema)]
struct ConsoleLink {
    /// It works once, within 15 minutes, and signs in as the credential that asked for it.
    url: String,
}

/// Makes a link that signs in to the console as the caller's credential.
#[routing::path(post, path = "/api/console/links", operation_id = "create_console_link", tag = "console",
    responses((status = 200, body = ConsoleLink), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn create_link(ApiCaller { api, identity }: ApiCaller, request: Request) -> Result<Response, ApiError> {
    let head = RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() };
    let base = match (&api.app.config.public_url, head.host()) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(host)) => format!("{}://{host}", if api.app.config.tls.is_some() { "https" } else { "http" }),
        (None, None) => String::new(),
    };
    let path = make_link(&api.app, &identity).await?;
    Ok(([no_store()], Json(ConsoleLink { url: format!("{base}{path}") })).into_response())
}
