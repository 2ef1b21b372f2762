//! Who a request is, from its headers alone.
//!
//! The operator (admin key or local token) may be anybody in any tenant; an API key stays inside its tenant
//! and is its user, or with scope `act_as` whom it names. Nothing in a body ever decides this.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret;
use subtle::ConstantTimeEq;
use werkruf_contract::{Principal, Uuid};
use werkruf_runtime::Caller;
use werkruf_store::{KeyDigest, KeyRow, Scopes};

use crate::api::ApiError;
use crate::app::App;
use crate::config::UnknownUsers;

const DEFAULT_TENANT: &str = "demo";

/// Who a request is.
#[derive(Debug, Clone)]
pub struct Identity {
    pub tenant_id: Uuid,
    pub scopes: Scopes,
    /// `None` for the operator.
    pub key_id: Option<Uuid>,
    /// `None` where nobody is named; then only what belongs to no person is open.
    pub principal: Option<Arc<Principal>>,
}

/// Whose rows a request may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Everything in the tenant.
    All,
    /// What belongs to this user.
    Own(String),
}

impl Sight {
    /// Whether rows of this user may be seen.
    pub fn covers(&self, user_id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Own(own) => own == user_id,
        }
    }
}

impl Identity {
    /// Whether this is the operator and no key.
    pub const fn is_operator(&self) -> bool {
        self.key_id.is_none()
    }

    /// The person, for work that needs one.
    pub fn caller(&self) -> Result<Caller, ApiError> {
        let principal = self.principal.clone().ok_or_else(user_required)?;
        Ok(Caller { principal, key_id: self.key_id, admin: self.scopes.admin })
    }

    /// Whose rows may be seen.
    pub fn sight(&self) -> Result<Sight, ApiError> {
        if self.scopes.admin {
            return Ok(Sight::All);
        }
        self.principal.as_ref().map(|person| Sight::Own(person.user_id.clone())).ok_or_else(user_required)
    }
}

/// 403: a person must be named.
pub fn user_required() -> ApiError {
    ApiError::forbidden(
        "user_required",
        "This needs a person: use a key that belongs to a user, or send X-User-Id with the operator's key or scope act_as.",
    )
}

/// Reads the headers of a request.
pub async fn identify(app: &App, headers: &HeaderMap) -> Result<Identity, ApiError> {
    let credential = credential(headers)?;
    let (tenant_id, scopes, key) = if is_operator(app, credential) {
        let name = text(headers, "x-tenant-id")?.unwrap_or(DEFAULT_TENANT);
        (tenant_id(app, name).await?, Scopes::ALL, None)
    } else {
        let key = find_key(app, credential).await?;
        if let Some(name) = text(headers, "x-tenant-id")?
            && tenant_id(app, name).await? != key.tenant_id
        {
            return Err(unknown_tenant());
        }
        (key.tenant_id, key.scopes, Some(key))
    };
    let named = text(headers, "x-user-id")?;
    let user_id = match (&key, named) {
        (None, named) => named,
        (Some(key), None) => key.user_id.as_deref(),
        (Some(key), Some(named)) if (key.scopes.act_as && key.user_id.is_none()) || key.user_id.as_deref() == Some(named) => Some(named),
        (Some(_), Some(_)) => {
            return Err(ApiError::forbidden(
                "forbidden",
                "This key may not act for another user; leave X-User-Id out or use scope act_as.",
            ));
        }
    };
    let principal = match user_id {
        Some(user_id) => Some(person(app, tenant_id, user_id).await?),
        None => None,
    };
    Ok(Identity { tenant_id, scopes, key_id: key.map(|key| key.id), principal })
}

/// What a client shows: `Authorization: Bearer`, else `apikey`.
fn credential(headers: &HeaderMap) -> Result<&str, ApiError> {
    let bearer = text(headers, "authorization")?.map(|value| {
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        if scheme.eq_ignore_ascii_case("bearer") { rest.trim() } else { "" }
    });
    let shown = match bearer {
        Some(bearer) => Some(bearer),
        None => text(headers, "apikey")?,
    };
    shown
        .filter(|shown| !shown.is_empty())
        .ok_or_else(|| ApiError::unauthorized("Send a key: `Authorization: Bearer <key>`. `werkruf keys create` makes one."))
}

fn is_operator(app: &App, shown: &str) -> bool {
    let same = |secret: &str| bool::from(secret.as_bytes().ct_eq(shown.as_bytes()));
    let admin = app.config.admin_key.as_ref().is_some_and(|key| same(key.expose_secret()));
    admin | same(app.operator_token.expose_secret())
}

async fn find_key(app: &App, shown: &str) -> Result<KeyRow, ApiError> {
    let refused = || ApiError::unauthorized("This key is unknown, deleted or expired.");
    if !shown.starts_with(KEY_PREFIX) {
        return Err(refused());
    }
    let key = app.people().key_by_digest(KeyDigest::of(shown)).await?.ok_or_else(refused)?;
    match key.expires_at {
        Some(end) if end <= app.clock.now() => Err(refused()),
        Some(_) | None => Ok(key),
    }
}

/// A tenant by slug or id.
pub async fn tenant_id(app: &App, name: &str) -> Result<Uuid, ApiError> {
    Ok(app.people().tenant(name.to_owned()).await?.ok_or_else(unknown_tenant)?.id)
}

fn unknown_tenant() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "unknown_tenant", "There is no such tenant; X-Tenant-Id takes a slug or an id.")
}

/// The person behind `3` or `ext:<external id>`, made as a guest where the house allows it.
async fn person(app: &App, tenant_id: Uuid, named: &str) -> Result<Arc<Principal>, ApiError> {
    let external = named.strip_prefix("ext:").filter(|id| !id.is_empty());
    let number = match external {
        Some(external) => app.people().user_by_external_id(tenant_id, external.to_owned()).await?.map(|user| user.id),
        None => Some(named.parse::<i64>().map_err(|_| ApiError::invalid("X-User-Id takes a number or ext:<external id>."))?),
    };
    if let Some(number) = number
        && let Some(principal) = app.people().principal(tenant_id, number.to_string()).await?
    {
        return Ok(principal);
    }
    let unknown = || ApiError::forbidden("unknown_user", "There is no such user in this tenant.");
    match app.config.auth.unknown_users {
        UnknownUsers::Refuse => Err(unknown()),
        UnknownUsers::Guest => {
            let role = app.config.auth.guest_role.clone();
            let guest = app.people().make_guest(tenant_id, number, external.map(str::to_owned), role).await?;
            app.people().principal(tenant_id, guest.id.to_string()).await?.ok_or_else(unknown)
        }
    }
}

/// A header as trimmed text; an empty one counts as absent.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().map_err(|_| ApiError::invalid(format!("The header {name} must be plain ASCII.")))?.trim();
    Ok((!value.is_empty()).then_some(value))
}

const KEY_PREFIX: &str = "wk_";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A key as it is shown once: `wk_` and 43 URL-safe characters of base64 over 256 random bits.
pub fn new_secret(random: [u8; 32]) -> String {
    let mut secret = String::with_capacity(KEY_PREFIX.len() + 43);
    secret.push_str(KEY_PREFIX);
    for group in random.chunks(3) {
        let bits = group.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | (u32::from(*byte) << (16 - 8 * at)));
        for at in 0..=group.len() {
            let index = (bits >> (18 - 6 * at)) & 63;
            secret.push(char::from(URL_SAFE[index as usize]));
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{credential, new_secret};

    #[test]
    fn a_secret_is_url_safe_base64_without_padding() {
        let zeros = new_secret([0; 32]);
        assert_eq!(zeros, format!("wk_{}", "A".repeat(43)));
        assert_eq!(new_secret([255; 32]), format!("wk_{}8", "_".repeat(42)));
        let mut counting = [0_u8; 32];
        for (at, byte) in (0_u8..).zip(counting.iter_mut()) {
            *byte = at;
        }
        assert_eq!(new_secret(counting), "wk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
    }

    #[test]
    fn the_bearer_wins_over_the_apikey() {
        let mut headers = HeaderMap::new();
        assert!(credential(&headers).is_err());
        headers.insert("apikey", HeaderValue::from_static("one"));
        assert_eq!(credential(&headers).ok(), Some("one"));
        headers.insert("authorization", HeaderValue::from_static("bearer  two "));
        assert_eq!(credential(&headers).ok(), Some("two"));
        headers.insert("authorization", HeaderValue::from_static("Basic abc"));
        assert!(credential(&headers).is_err(), "a wrong scheme is no reason to look elsewhere");
    }
}
