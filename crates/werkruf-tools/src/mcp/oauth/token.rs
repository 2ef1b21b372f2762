//! Requests to the token endpoint: with a code, and with the token that renews another one.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use werkruf_contract::Uuid;

use super::addresses::Addresses;
use super::fault::{ConnectFault, FaultKind};
use super::grant::{Grant, PendingLogin, TokenSource};
use super::http::{Answer, Http};

/// A token is not used shortly before it expires, because it could expire before the request arrives.
const MARGIN: SignedDuration = SignedDuration::from_secs(30);
const LONGEST_LIFETIME: i64 = 366 * 86_400;
const LONGEST_TOKEN: usize = 16 * 1024;

/// New tokens, and until when they are used.
pub(super) struct Issued {
    pub(super) grant: Grant,
    pub(super) until: Option<Timestamp>,
}

/// Exchanges the code of an answer. The login is called `account` from then on.
pub(super) async fn exchange(
    http: &Http,
    addresses: &Addresses,
    login: PendingLogin,
    code: &str,
    account: Uuid,
    now: Timestamp,
) -> Result<Issued, ConnectFault> {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", login.redirect.as_str()),
        ("code_verifier", login.verifier.as_str()),
        ("resource", login.source.resource.as_str()),
    ];
    let answer = send(http, addresses, &login.source, &login.source.token, &fields).await?;
    if !answer.status.is_success() {
        let kind = if answer.text("error") == Some("invalid_client") { FaultKind::Installation } else { FaultKind::Refused };
        return Err(ConnectFault::new(kind, refusal(&answer)));
    }
    let before = Grant { account, source: login.source, access: None, refresh: None, scope: login.scope };
    read(&answer, before, now)
}

/// Renews a token. A refusal that repeating does not change is [`FaultKind::NeedsConnection`].
pub(super) async fn renew(http: &Http, addresses: &Addresses, grant: Grant, now: Timestamp) -> Result<Issued, ConnectFault> {
    let refresh = grant.refresh.clone().unwrap_or_default();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str()), ("resource", grant.source.resource.as_str())];
    let answer = send(http, addresses, &grant.source, &grant.source.token, &fields).await?;
    if !answer.status.is_success() {
        // Anything else may be a fault of the server or of the configuration, and the token is still good.
        let kind = match answer.text("error") {
            Some("invalid_grant") => FaultKind::NeedsConnection,
            Some("invalid_client") => FaultKind::Installation,
            _ => FaultKind::Refused,
        };
        return Err(ConnectFault::new(kind, refusal(&answer)));
    }
    read(&answer, grant, now)
}

/// Tells the authorization server that the tokens are not used any more.
pub(super) async fn revoke(http: &Http, addresses: &Addresses, grant: &Grant) -> Result<(), ConnectFault> {
    let (Some(endpoint), Some(token)) = (&grant.source.revoke, grant.refresh.as_ref().or(grant.access.as_ref())) else { return Ok(()) };
    send(http, addresses, &grant.source, endpoint, &[("token", token.as_str())]).await.map(drop)
}

async fn send(
    http: &Http,
    addresses: &Addresses,
    source: &TokenSource,
    endpoint: &str,
    fields: &[(&str, &str)],
) -> Result<Answer, ConnectFault> {
    // The configuration may have changed since the address was stored.
    let endpoint = addresses.check(endpoint)?;
    let client = &source.client;
    let secret = client.secret.as_deref();
    let basic = secret.filter(|_| client.auth_method == "client_secret_basic").map(|secret| (client.id.as_str(), secret));
    let mut fields = fields.to_vec();
    if basic.is_none() {
        fields.push(("client_id", &client.id));
    }
    if let Some(secret) = secret.filter(|_| client.auth_method == "client_secret_post") {
        fields.push(("client_secret", secret));
    }
    http.post_form(endpoint, &fields, basic).await
}

fn refusal(answer: &Answer) -> String {
    // A code of the standard, never the whole text: the text may repeat what was sent.
    let code = answer.text("error").filter(|code| code.len() <= 64 && code.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    format!("The authorization server refused: {}.", code.unwrap_or(answer.status.as_str()))
}

/// Reads an answer with tokens. What the answer does not name stays as it was.
fn read(answer: &Answer, before: Grant, now: Timestamp) -> Result<Issued, ConnectFault> {
    let unreadable = || ConnectFault::refused("The authorization server answered without a token that can be used.");
    let text = |name: &str| answer.text(name).filter(|text| !text.is_empty() && text.len() <= LONGEST_TOKEN).map(str::to_owned);
    if !answer.text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(unreadable());
    }
    let access = text("access_token").filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic())).ok_or_else(unreadable)?;
    let seconds = answer.body.as_ref().and_then(|body| body.get("expires_in")).and_then(|value| match value {
        Value::String(text) => text.parse::<i64>().ok(),
        other => other.as_i64(),
    });
    let lifetime = seconds.map(|seconds| SignedDuration::from_secs(seconds.clamp(0, LONGEST_LIFETIME)));
    // The margin of a short-lived token is smaller.
    let until = lifetime.map(|lifetime| now.checked_add(lifetime - MARGIN.min(lifetime / 4)).unwrap_or(now));
    let grant =
        Grant { access: Some(access), refresh: text("refresh_token").or(before.refresh), scope: text("scope").or(before.scope), ..before };
    Ok(Issued { grant, until })
}
