//! Identifies the caller of a request from its headers. The body has no influence.
//!
//! The operator (admin key or local token) may act for any user in any tenant. An API key acts inside its tenant, for its own user
//! or, with scope `act_as`, for the user that the request names. A token acts for the user that its issuer signed it for.

pub(crate) mod access;
mod bearer;
mod claims;
pub(crate) mod console_session;
mod credential;
mod failed_logins;
mod jwks;
mod jwt;
mod key_cache;
mod key_uses;
mod open_streams;
pub(crate) mod origin;
mod secret;
mod tokens;

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use subtle::ConstantTimeEq;
use werkruf_contract::{Principal, Uuid};
use werkruf_runtime::Caller;
use werkruf_store::{Actor, Author, KeyRow, MAX_PERSON_ID, Scopes, StoreError, UserRow};

use crate::api::ApiError;
use crate::app::App;
use crate::config::{TokenIssuer, UnknownRoles, UnknownUsers};

pub use access::watch;
pub use console_session::operator_link;
pub use secret::new_secret;
pub use tokens::Tokens;

use bearer::{Bearer, RequestCount, refused_token};
use claims::TokenUser;
use console_session::SessionEnd;
use jwt::TokenFault;

const DEFAULT_TENANT: &str = "demo";

/// The identity of a caller.
#[derive(Debug, Clone)]
pub struct Identity {
    pub tenant_id: Uuid,
    pub scopes: Scopes,
    /// Whether the caller is the operator, not an API key or a token.
    pub operator: bool,
    /// The id of the API key, if one was used.
    pub key_id: Option<Uuid>,
    /// The first key of a series of rotations.
    pub key_root: Option<Uuid>,
    /// The user. `None` if the request names no user; then only rows that belong to no user are accessible.
    pub principal: Option<Arc<Principal>>,
    /// From this time on the credential no longer counts.
    pub until: Option<Timestamp>,
    /// The safety profile that the key pins.
    pub safety_mode: Option<String>,
    /// The collection that the key pins.
    pub collection: Option<String>,
    /// Where the request came from; `None` inside this process.
    pub address: Option<IpAddr>,
    /// The session of the console that the request has instead of a key.
    pub session_id: Option<Uuid>,
}

/// The users whose rows a request may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    /// All rows of the tenant.
    All,
    /// Only the rows of this user.
    Own(String),
}

impl Visibility {
    /// Whether rows of this user are visible.
    pub fn covers(&self, user_id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Own(own) => own == user_id,
        }
    }
}

impl Identity {
    /// The caller as the audit log names it.
    pub fn author(&self) -> Author {
        let user_id = self.principal.as_ref().map(|user| user.user_id.clone());
        let actor = Actor { user_id, key_id: self.key_id, operator: self.operator };
        Author { actor, address: self.address.map(|address| address.to_string()) }
    }

    /// The same identity in a session, which may end before its credential.
    fn in_session(self, session: Option<SessionEnd>) -> Self {
        let Some(SessionEnd { id, at }) = session else { return self };
        Self { session_id: Some(id), until: Some(self.until.map_or(at, |until| until.min(at))), ..self }
    }

    /// Whether the caller is the operator, not an API key or a token.
    pub const fn is_operator(&self) -> bool {
        self.operator
    }

    /// The user as a caller of the runtime, or 403 if the request names no user.
    pub fn caller(&self) -> Result<Caller, ApiError> {
        let principal = self.principal.clone().ok_or_else(user_required)?;
        Ok(self.caller_for(principal))
    }

    /// The users whose rows the caller may see.
    pub fn visibility(&self) -> Result<Visibility, ApiError> {
        if self.scopes.admin {
            return Ok(Visibility::All);
        }
        self.principal.as_ref().map(|user| Visibility::Own(user.user_id.clone())).ok_or_else(user_required)
    }
}

/// 403: the request must name a user.
pub fn user_required() -> ApiError {
    ApiError::forbidden(
        "user_required",
        "This needs a user: use a key that belongs to a user, or send X-User-Id with the operator's key or scope act_as.",
    )
}

/// Identifies the caller from the owner of the credential and the other headers of a request.
async fn identify(app: &App, headers: &HeaderMap, bearer: &Bearer<'_>, count: &mut RequestCount<'_>) -> Result<Identity, ApiError> {
    let (tenant_id, scopes, key) = match bearer {
        Bearer::Token(token, issuer) => return identify_token_bearer(app, headers, token, issuer).await,
        Bearer::Operator => {
            let name = text(headers, "x-tenant-id")?.unwrap_or(DEFAULT_TENANT);
            (tenant_id(app, name).await?, Scopes::ALL, None)
        }
        Bearer::Key(key) => {
            if let Some(name) = text(headers, "x-tenant-id")?
                && tenant_id(app, name).await? != key.tenant_id
            {
                return Err(unknown_tenant());
            }
            (key.tenant_id, key.scopes, Some(&**key))
        }
    };
    let principal = match user_id(key, text(headers, "x-user-id")?)? {
        Some(user_id) => Some(user_principal(app, tenant_id, user_id, count).await?),
        None => None,
    };
    let until = key.and_then(|key| app.config.auth.key_ends(key));
    let (safety_mode, collection) = key.map_or((None, None), |key| (key.safety_mode.clone(), key.collection.clone()));
    let (operator, key_id, key_root) = (key.is_none(), key.map(|key| key.id), key.map(KeyRow::root));
    Ok(Identity {
        tenant_id,
        scopes,
        operator,
        key_id,
        key_root,
        principal,
        until,
        safety_mode,
        collection,
        address: None,
        session_id: None,
    })
}

/// The user of a request: that of the key, or the one that the request names, if the key may act for it.
fn user_id<'a>(key: Option<&'a KeyRow>, named: Option<&'a str>) -> Result<Option<&'a str>, ApiError> {
    match (key, named) {
        (None, named) => Ok(named),
        (Some(key), None) => Ok(key.user_id.as_deref()),
        (Some(key), Some(named)) if (key.scopes.act_as && key.user_id.is_none()) || key.user_id.as_deref() == Some(named) => {
            Ok(Some(named))
        }
        (Some(_), Some(_)) => {
            Err(ApiError::forbidden("forbidden", "This key may not act for another user; leave X-User-Id out or use scope act_as."))
        }
    }
}

/// The scopes of a user who authenticates with a token.
const TOKEN_SCOPES: Scopes = Scopes { admin: false, chat: true, tools: true, read: true, act_as: false, approve: false };

/// Identifies the bearer of a token. Tenant and user come from the token; headers must not contradict it.
async fn identify_token_bearer(app: &App, headers: &HeaderMap, token: &TokenUser, issuer: &TokenIssuer) -> Result<Identity, ApiError> {
    let name = token.tenant.as_deref().unwrap_or(&issuer.tenant);
    let tenant = app.people().tenant(name.to_owned()).await?;
    let tenant_id = tenant.ok_or_else(|| ApiError::forbidden("unknown_tenant", "The tenant this token names does not exist here."))?.id;
    if let Some(name) = text(headers, "x-tenant-id")?
        && self::tenant_id(app, name).await? != tenant_id
    {
        return Err(unknown_tenant());
    }
    let principal = principal_of_token(app, tenant_id, token, issuer.unknown_roles).await?;
    if let Some(named) = text(headers, "x-user-id")?
        && named != principal.user_id
        && named.strip_prefix("ext:") != Some(token.subject.as_str())
    {
        return Err(ApiError::forbidden("forbidden", "A token acts only for its bearer; leave X-User-Id out."));
    }
    Ok(Identity {
        tenant_id,
        scopes: TOKEN_SCOPES,
        operator: false,
        key_id: None,
        key_root: None,
        principal: Some(principal),
        until: Some(token.until),
        safety_mode: None,
        collection: None,
        address: None,
        session_id: None,
    })
}

/// The user with the token's subject. The roles of the token are stored first, because the user's rights are read from the store.
async fn principal_of_token(app: &App, tenant_id: Uuid, token: &TokenUser, unknown: UnknownRoles) -> Result<Arc<Principal>, ApiError> {
    let known = app.identity_store.user_by_external_id(tenant_id, token.subject.clone()).await?;
    let up_to_date = |user: &UserRow| match (&user.token_roles, &token.roles) {
        (Some(stored), Some(named)) => stored.covers(named),
        (stored, named) => stored.is_none() && named.is_none(),
    };
    let up_to_date = known.as_ref().is_some_and(up_to_date);
    // The guest role of an anonymous user is not the issuer's word.
    let named = token.roles.as_ref().filter(|roles| unknown == UnknownRoles::Deny && !roles.only);
    if let Some(roles) = named.filter(|_| !up_to_date)
        && !app.identity_store.unknown_roles(tenant_id, roles.names.clone()).await?.is_empty()
    {
        return Err(unknown_role(tenant_id, &roles.names));
    }
    let user = match known {
        Some(user) => user,
        None => guest(app, tenant_id, None, Some(token.subject.clone())).await?,
    };
    if !up_to_date {
        app.identity_store.put_token_roles(tenant_id, user.id, token.roles.clone()).await?;
    }
    let principal = app.people().principal(tenant_id, user.id.to_string()).await?.ok_or_else(unknown_user)?;
    // A role may have been deleted since the token's roles were stored.
    if let Some(roles) = named.filter(|roles| !roles.names.iter().all(|name| principal.has_role(name))) {
        return Err(unknown_role(tenant_id, &roles.names));
    }
    // Fetching keys takes time. A token that expired meanwhile would get the rights of the stored roles.
    if app.clock.now() >= token.until {
        return Err(refused_token(TokenFault::Expired));
    }
    Ok(principal)
}

fn unknown_role(tenant_id: Uuid, named: &[String]) -> ApiError {
    tracing::info!(%tenant_id, ?named, "a token names a role that its tenant does not have");
    let message = "The token names a role that its tenant does not have; make the role, or set [auth.jwt] unknown_roles = \"ignore\".";
    ApiError::forbidden("unknown_role", message)
}

/// The headers that are read like a bearer, after `Authorization`.
const KEY_HEADERS: [&str; 3] = ["apikey", "api-key", "x-api-key"];

/// The credential of a request: `Authorization: Bearer`, else one of [`KEY_HEADERS`].
fn credential(headers: &HeaderMap) -> Result<&str, ApiError> {
    let bearer = text(headers, "authorization")?.map(|value| {
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        if scheme.eq_ignore_ascii_case("bearer") { rest.trim() } else { "" }
    });
    let credential = match bearer {
        Some(bearer) => Some(bearer),
        None => first_of(headers, &KEY_HEADERS)?,
    };
    credential
        .filter(|credential| !credential.is_empty())
        .ok_or_else(|| ApiError::unauthorized("Send a key: `Authorization: Bearer <key>`. `werkruf keys create` makes one."))
}

fn first_of<'a>(headers: &'a HeaderMap, names: &[&str]) -> Result<Option<&'a str>, ApiError> {
    for name in names {
        if let Some(value) = text(headers, name)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn is_operator(app: &App, credential: &str) -> bool {
    let same = |secret: &str| bool::from(secret.as_bytes().ct_eq(credential.as_bytes()));
    let admin = app.config.admin_key.as_ref().is_some_and(|key| same(key.expose_secret()));
    admin | same(app.operator_token.expose_secret())
}

/// Whether the headers of a request have the operator's credential.
pub fn has_operator_credential(app: &App, headers: &HeaderMap) -> bool {
    credential(headers).is_ok_and(|credential| is_operator(app, credential))
}

/// A tenant by slug or id.
pub async fn tenant_id(app: &App, name: &str) -> Result<Uuid, ApiError> {
    Ok(app.people().tenant(name.to_owned()).await?.ok_or_else(unknown_tenant)?.id)
}

fn unknown_tenant() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; X-Tenant-Id takes a slug or an id.")
}

/// The user with the id `3` or `ext:<external id>`. An unknown user becomes a guest if the configuration allows it.
async fn user_principal(app: &App, tenant_id: Uuid, named: &str, count: &mut RequestCount<'_>) -> Result<Arc<Principal>, ApiError> {
    let external = named.strip_prefix("ext:").filter(|id| !id.is_empty());
    let number = match external {
        Some(external) => app.identity_store.user_by_external_id(tenant_id, external.to_owned()).await?.map(|user| user.id),
        None => Some(named.parse::<i64>().map_err(|_| ApiError::invalid("X-User-Id takes a number or ext:<external id>."))?),
    };
    if let Some(number) = number
        && let Some(principal) = app.people().principal(tenant_id, number.to_string()).await?
    {
        return Ok(principal);
    }
    if app.config.auth.unknown_users == UnknownUsers::Guest {
        // A key over its limit makes no guests.
        count.take().await?;
    }
    let guest = guest(app, tenant_id, number, external.map(str::to_owned)).await?;
    app.people().principal(tenant_id, guest.id.to_string()).await?.ok_or_else(unknown_user)
}

fn unknown_user() -> ApiError {
    ApiError::forbidden("unknown_user", "There is no such user in this tenant.")
}

/// Creates a guest for an unknown user, if the configuration allows it.
async fn guest(app: &App, tenant_id: Uuid, number: Option<i64>, external: Option<String>) -> Result<UserRow, ApiError> {
    match app.config.auth.unknown_users {
        UnknownUsers::Refuse => Err(unknown_user()),
        UnknownUsers::Guest if number.is_some_and(|number| number > MAX_PERSON_ID) => Err(unknown_user()),
        UnknownUsers::Guest => {
            let role = app.config.auth.guest_role.clone();
            match app.identity_store.create_guest(tenant_id, number, external, role).await {
                Err(StoreError::Moved { what: "role", id }) => {
                    tracing::error!(role = id, %tenant_id, "the tenant has no such role for guests");
                    Err(unknown_user())
                }
                made => Ok(made?),
            }
        }
    }
}

/// A header as trimmed text; `None` if it is missing or empty.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().map_err(|_| ApiError::invalid(format!("The header {name} must be plain ASCII.")))?.trim();
    Ok((!value.is_empty()).then_some(value))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::credential;

    #[test]
    fn authorization_takes_precedence_over_apikey() {
        let mut headers = HeaderMap::new();
        assert!(credential(&headers).is_err());
        headers.insert("apikey", HeaderValue::from_static("one"));
        assert_eq!(credential(&headers).ok(), Some("one"));
        for name in ["api-key", "x-api-key"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(" three "));
            assert_eq!(credential(&headers).ok(), Some("three"), "{name}");
        }
        headers.insert("authorization", HeaderValue::from_static("bearer  two "));
        assert_eq!(credential(&headers).ok(), Some("two"));
        headers.insert("authorization", HeaderValue::from_static("Basic abc"));
        assert!(credential(&headers).is_err(), "a wrong scheme does not fall back to apikey");
    }
}
