//! The client that this installation is at an authorization server: from the configuration, or registered (RFC 7591) once for all people.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_store::{ProviderAccount, SealedToken};

use super::discovery::{AuthorizationServer, Discovered};
use super::fault::{ConnectFault, FaultKind};
use super::grant::RegisteredClient;
use super::services::OAuthServices;
use super::site::Site;

const PROVIDER: &str = "mcp_client";
/// A registration without an end is made again after this time.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 5);
const METHODS: [&str; 3] = ["client_secret_basic", "client_secret_post", "none"];
const LONGEST_FIELD: usize = 4_096;

/// The client at this authorization server.
pub(super) async fn client(site: &Site, found: &Discovered, redirect: &str) -> Result<RegisteredClient, ConnectFault> {
    if let Some(id) = &site.settings.client_id {
        let secret = site.settings.client_secret.clone();
        let auth_method = method(&found.server, secret.is_some(), None);
        return Ok(RegisteredClient { id: id.clone(), secret, auth_method });
    }
    let (services, now) = (&site.services, site.now());
    let account = account(site, &found.server.issuer, redirect);
    if let Some(known) = stored(services, &account, now).await? {
        return Ok(known);
    }
    let (client, until) = register(site, found, redirect, now).await?;
    let text = serde_json::to_string(&client).unwrap_or_default();
    let sealed = services.seal.close(&account.purpose(), &text).ok_or_else(no_key)?;
    services.store.put_provider_token(account, SealedToken { sealed, expires_at: until }, now).await?;
    Ok(client)
}

pub(super) fn no_key() -> ConnectFault {
    ConnectFault::new(FaultKind::Installation, "There is no key for secrets; the operator must set WERKRUF_SECRET_KEY.")
}

/// Forgets a registration that the authorization server does not know any more.
pub(super) async fn forget(site: &Site, issuer: &str, redirect: &str) -> Result<(), ConnectFault> {
    let (services, now) = (&site.services, site.now());
    let account = account(site, issuer, redirect);
    if let Some(known) = services.store.provider_token(account.clone()).await? {
        let ended = SealedToken { sealed: known.sealed.clone(), expires_at: now };
        services.store.replace_provider_token(account, known.sealed, ended, now).await?;
    }
    Ok(())
}

/// One registration for each server, issuer and address that people come back to.
fn account(site: &Site, issuer: &str, redirect: &str) -> ProviderAccount {
    let digest = Sha256::digest(format!("{}\n{issuer}\n{redirect}", site.url));
    ProviderAccount { provider: PROVIDER.to_owned(), account: werkruf_contract::hex(&digest) }
}

async fn stored(services: &OAuthServices, account: &ProviderAccount, now: Timestamp) -> Result<Option<RegisteredClient>, ConnectFault> {
    let row = services.store.provider_token(account.clone()).await?.filter(|row| row.expires_at > now);
    let text = row.and_then(|row| services.seal.open(&account.purpose(), &row.sealed));
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

async fn register(site: &Site, found: &Discovered, redirect: &str, now: Timestamp) -> Result<(RegisteredClient, Timestamp), ConnectFault> {
    let Some(endpoint) = found.server.register.clone() else {
        let message = "The authorization server registers no clients; the operator must set client_id for this server.";
        return Err(ConnectFault::new(FaultKind::Installation, message));
    };
    let wanted = method(&found.server, true, None);
    // A browser on the machine of the server itself is a native client.
    let kind = if redirect.starts_with("https://") { "web" } else { "native" };
    let mut body = json!({
        "client_name": "Werkruf", "redirect_uris": [redirect], "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"], "token_endpoint_auth_method": wanted, "application_type": kind,
    });
    if let Some(scope) = &found.scope {
        body["scope"] = Value::from(scope.as_str());
    }
    let answer = site.http.post_json(endpoint, &body).await?;
    let text = |name: &str| answer.text(name).filter(|text| !text.is_empty() && text.len() <= LONGEST_FIELD).map(str::to_owned);
    let id = text("client_id").filter(|_| answer.status.is_success());
    let id = id.ok_or_else(|| ConnectFault::refused("The authorization server did not register this installation."))?;
    let secret = text("client_secret");
    let auth_method = method(&found.server, secret.is_some(), text("token_endpoint_auth_method").as_deref());
    let end = answer.body.as_ref().and_then(|body| body.get("client_secret_expires_at")).and_then(Value::as_i64).filter(|end| *end > 0);
    let longest = now.checked_add(LIFETIME).unwrap_or(now);
    let until = end.and_then(|end| Timestamp::from_second(end).ok()).map_or(longest, |end| end.min(longest));
    Ok((RegisteredClient { id, secret, auth_method }, until))
}

/// How the client says who it is: as it was registered, else the first way that both know.
fn method(server: &AuthorizationServer, has_secret: bool, registered: Option<&str>) -> String {
    if !has_secret {
        return "none".to_owned();
    }
    let known = |method: &&&str| server.auth_methods.is_empty() || server.auth_methods.iter().any(|other| other == **method);
    let registered = registered.filter(|method| METHODS.contains(method));
    registered.or_else(|| METHODS.iter().find(known).copied()).unwrap_or(METHODS[0]).to_owned()
}
