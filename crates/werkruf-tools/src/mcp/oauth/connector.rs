//! Connects people with one server: makes links, follows them, finishes logins, and gives calls the token of their person.
//!
//! Invariants: a token is used for its person and sent to its server only. A token is renewed once, over all processes, by whoever has the
//! claim. What a login needs is stored before the browser leaves.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use werkruf_contract::{Deadline, Uuid};
use werkruf_store::{
    Author, ConnectionChange, ConnectionKey, ConnectionRequest, ConnectionRow, KeyDigest, NewConnectionRequest, OpenedLink, ProviderAccount,
};

use super::addresses::Addresses;
use super::discovery::{Discovered, discover};
use super::fault::{ConnectFault, FaultKind};
use super::grant::{Grant, PendingLogin, TokenSource};
use super::http::Http;
use super::registration::{self, Site};
use super::services::{LoginSettings, OAuthServices};
use super::token;

/// How long a link, and the login that it begins, may take.
const LINK: SignedDuration = SignedDuration::from_mins(10);
/// How long a process may take to renew a token, and how often others look.
const CLAIM: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(25);

/// Connects people with one server.
pub(in crate::mcp) struct Connector {
    pub(in crate::mcp) name: String,
    url: Url,
    settings: LoginSettings,
    services: OAuthServices,
    http: Http,
    addresses: Addresses,
}

/// Whether a person has a connection that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    Connected,
    /// The token has ended, and cannot be renewed.
    Expired,
    NeedsConnection,
}

impl ConnectionState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Expired => "expired",
            Self::NeedsConnection => "needs_connection",
        }
    }
}

/// A link that connects a person.
pub(in crate::mcp) struct Link {
    pub(in crate::mcp) url: String,
    pub(in crate::mcp) expires_at: Timestamp,
}

/// Where the browser goes, and what it must bring back.
pub(in crate::mcp) struct Opened {
    pub(in crate::mcp) location: String,
    pub(in crate::mcp) browser: String,
}

/// The parameters with which a browser comes back.
#[derive(Debug, Clone, Default)]
pub struct LoginAnswer {
    pub code: Option<String>,
    pub error: Option<String>,
    pub issuer: Option<String>,
}

impl Connector {
    pub(in crate::mcp) fn new(name: String, url: Url, settings: LoginSettings, client: reqwest::Client, services: OAuthServices) -> Self {
        let addresses = Addresses::new(services.egress.clone(), url.clone());
        Self { name, url, settings, services, http: Http::new(client), addresses }
    }

    pub(in crate::mcp) fn key(&self, tenant_id: Uuid, user_id: &str) -> ConnectionKey {
        ConnectionKey { tenant_id, user_id: user_id.to_owned(), server: self.name.clone() }
    }

    pub(in crate::mcp) fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    const fn site(&self) -> Site<'_> {
        Site { url: &self.url, settings: &self.settings, services: &self.services, http: &self.http }
    }

    fn secret(&self) -> String {
        URL_SAFE_NO_PAD.encode((self.services.random)())
    }

    /// Makes a link for this person. It works once.
    pub(in crate::mcp) async fn link(&self, key: ConnectionKey, scope: Option<String>) -> Result<Link, ConnectFault> {
        let (token, now) = (self.secret(), self.now());
        let expires_at = now.checked_add(LINK).unwrap_or(now);
        let digest = KeyDigest::of(&token);
        let request = NewConnectionRequest { id: self.services.clock.new_id(), key, digest, scope, created_at: now, expires_at };
        self.services.store.put_connection_request(request).await?;
        Ok(Link { url: format!("{}/connect/{token}", (self.services.base_url)()), expires_at })
    }

    /// Opens a link: finds out where its person logs in, and stores what the answer needs. A link stays usable if the other server fails.
    pub(in crate::mcp) async fn open(&self, link: &str, request: ConnectionRequest) -> Result<Opened, ConnectFault> {
        let found = discover(&self.http, &self.addresses, &self.url).await?;
        let redirect = format!("{}/oauth/callback", (self.services.base_url)());
        let client = registration::client(&self.site(), &found, &redirect).await?;
        let scope = self.scope(&found, &request).await?;
        let (state, browser, verifier) = (self.secret(), self.secret(), self.secret());
        let location = location(&found, &client.id, &redirect, scope.as_deref(), &state, &verifier);
        let source = TokenSource {
            server: self.url.to_string(),
            resource: found.resource,
            issuer: found.server.issuer,
            token: found.server.token.to_string(),
            revoke: found.server.revoke.map(String::from),
            client,
        };
        let login = PendingLogin { source, verifier, redirect, scope, names_issuer: found.server.names_issuer };
        let sealed = self.close(&ConnectionRequest::purpose(request.id), &login)?;
        let opened = OpenedLink { state: KeyDigest::of(&state), browser: KeyDigest::of(&browser), sealed };
        match self.services.store.open_connection_link(KeyDigest::of(link), opened, self.now()).await? {
            Some(_) => Ok(Opened { location, browser }),
            None => Err(ConnectFault::new(FaultKind::Gone, "This link was used already, or has expired.")),
        }
    }

    /// The rights to ask for: those of the configuration, else those that the server names; and those that a call lacked.
    async fn scope(&self, found: &Discovered, request: &ConnectionRequest) -> Result<Option<String>, ConnectFault> {
        let configured = (!self.settings.scopes.is_empty()).then(|| self.settings.scopes.join(" "));
        let lacked = request.scope.clone();
        let granted = match lacked {
            Some(_) => self.stored(&request.key).await?.and_then(|(_, grant)| grant.scope),
            None => None,
        };
        let usual = configured.or_else(|| found.scope.clone());
        let mut all: Vec<&str> = Vec::new();
        for word in [&granted, &lacked, &usual].into_iter().flatten().flat_map(|scope| scope.split_whitespace()) {
            if !all.contains(&word) {
                all.push(word);
            }
        }
        if found.server.has_offline_access && !all.contains(&"offline_access") {
            all.push("offline_access");
        }
        Ok((!all.is_empty()).then(|| all.join(" ")))
    }

    /// Finishes the login of a request that was taken.
    pub(in crate::mcp) async fn finish(&self, request: ConnectionRequest, answer: LoginAnswer, by: Author) -> Result<(), ConnectFault> {
        let gone = || ConnectFault::new(FaultKind::Gone, "This login cannot be finished any more.");
        let sealed = request.sealed.as_deref().ok_or_else(gone)?;
        let login: PendingLogin = self.open_sealed(&ConnectionRequest::purpose(request.id), sealed).ok_or_else(gone)?;
        if login.source.server != self.url.as_str() {
            return Err(gone());
        }
        let same = answer.issuer.as_ref().map(|issuer| *issuer == login.source.issuer);
        if same == Some(false) || (login.names_issuer && same.is_none()) {
            return Err(ConnectFault::refused("The answer is of another authorization server."));
        }
        if let Some(error) = answer.error {
            let kind = if error == "access_denied" { FaultKind::Declined } else { FaultKind::Refused };
            return Err(ConnectFault::new(kind, "The authorization server did not agree."));
        }
        let code = answer.code.ok_or_else(|| ConnectFault::refused("The answer has no code."))?;
        let (issuer, redirect) = (login.source.issuer.clone(), login.redirect.clone());
        let issued = match token::exchange(&self.http, &self.addresses, login, &code, self.now()).await {
            Err(fault) if fault.kind == FaultKind::Installation => {
                registration::forget(&self.site(), &issuer, &redirect).await?;
                return Err(fault);
            }
            other => other?,
        };
        let sealed = self.close(&request.key.purpose(), &issued.grant)?;
        let row = ConnectionRow { key: request.key, sealed, expires_at: issued.until, updated_at: self.now() };
        Ok(self.services.store.put_connection(row, by).await?)
    }

    /// A token of the person other than `bad`. Renews it where that is needed.
    pub(in crate::mcp) async fn token(&self, key: &ConnectionKey, bad: Option<&SecretString>) -> Result<SecretString, ConnectFault> {
        let waited = Deadline::after(CLAIM);
        let owner = self.services.clock.new_id();
        loop {
            let (row, grant) = self.stored(key).await?.ok_or_else(not_connected)?;
            let is_bad = |token: &String| bad.is_some_and(|bad| bad.expose_secret() == token);
            let lasts = row.expires_at.is_none_or(|until| until > self.now());
            if let Some(access) = grant.access.clone().filter(|token| lasts && !is_bad(token)) {
                return Ok(SecretString::from(access));
            }
            if grant.refresh.is_none() {
                return Err(ended());
            }
            let account = ProviderAccount { provider: "mcp".to_owned(), account: werkruf_contract::hex(&Sha256::digest(key.purpose())) };
            if self.services.store.claim_token(account.clone(), owner, CLAIM, self.now()).await? {
                // Another process may have renewed it between the read and the claim.
                let unchanged = self.stored(key).await?.is_some_and(|(now, _)| now.sealed == row.sealed);
                let renewed = if unchanged { Some(self.renew(&row, grant).await) } else { None };
                self.services.store.release_token(account, owner).await?;
                if let Some(renewed) = renewed {
                    return renewed;
                }
            } else if waited.passed() {
                return Err(ConnectFault::refused("The token of the person is being renewed, and that takes too long."));
            } else {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    async fn renew(&self, row: &ConnectionRow, grant: Grant) -> Result<SecretString, ConnectFault> {
        let (kept, until, result) = match token::renew(&self.http, &self.addresses, grant.clone(), self.now()).await {
            Ok(issued) => {
                let access = issued.grant.access.clone().unwrap_or_default();
                (issued.grant, issued.until, Ok(SecretString::from(access)))
            }
            // Refused for good: the person must connect again, and nobody asks again before that.
            Err(fault) if fault.kind == FaultKind::NeedsConnection => {
                (Grant { access: None, refresh: None, ..grant }, Some(self.now()), Err(fault))
            }
            Err(fault) => return Err(fault),
        };
        let change = ConnectionChange { old: row.sealed.clone(), sealed: self.close(&row.key.purpose(), &kept)?, expires_at: until };
        if self.services.store.replace_connection(row.key.clone(), change, self.now()).await? { result } else { Err(not_connected()) }
    }

    /// The connection of a person with this very server, if there is one that can be read.
    async fn stored(&self, key: &ConnectionKey) -> Result<Option<(ConnectionRow, Grant)>, ConnectFault> {
        let row = self.services.store.connection(key.clone()).await?;
        Ok(row.and_then(|row| self.grant(&row).map(|grant| (row, grant))))
    }

    fn grant(&self, row: &ConnectionRow) -> Option<Grant> {
        self.open_sealed::<Grant>(&row.key.purpose(), &row.sealed).filter(|grant| grant.source.server == self.url.as_str())
    }

    /// What a stored connection is worth.
    pub(in crate::mcp) fn state(&self, row: &ConnectionRow) -> ConnectionState {
        let lasts = row.expires_at.is_none_or(|until| until > self.now());
        match self.grant(row) {
            None => ConnectionState::NeedsConnection,
            Some(grant) if grant.refresh.is_some() || (lasts && grant.access.is_some()) => ConnectionState::Connected,
            Some(_) => ConnectionState::Expired,
        }
    }

    /// The people whose connections work, for questions that are the same for all people. The first one is asked for all: an account that connects
    /// later does not decide what the others get.
    pub(in crate::mcp) async fn people(&self) -> Result<Vec<ConnectionKey>, ConnectFault> {
        let rows = self.services.store.connections_of_server(self.name.clone()).await?;
        Ok(rows.into_iter().filter(|row| self.state(row) == ConnectionState::Connected).map(|row| row.key).collect())
    }

    /// Deletes the connection of a person. False where there is none. The authorization server is told, if it can be.
    pub(in crate::mcp) async fn forget(&self, key: ConnectionKey, by: Author) -> Result<bool, ConnectFault> {
        let Some(row) = self.services.store.delete_connection(key, by, self.now()).await? else { return Ok(false) };
        if let Some(grant) = self.grant(&row)
            && let Err(fault) = token::revoke(&self.http, &self.addresses, &grant).await
        {
            tracing::warn!(server = self.name, "a token was deleted here, and its server could not be told: {fault}");
        }
        Ok(true)
    }

    fn close<T: Serialize>(&self, purpose: &str, value: &T) -> Result<Vec<u8>, ConnectFault> {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.services.seal.close(purpose, &text).ok_or_else(registration::no_key)
    }

    fn open_sealed<T: DeserializeOwned>(&self, purpose: &str, sealed: &[u8]) -> Option<T> {
        self.services.seal.open(purpose, sealed).and_then(|text| serde_json::from_str(&text).ok())
    }
}

fn not_connected() -> ConnectFault {
    ConnectFault::needs_connection("The person has not connected an account.")
}

fn ended() -> ConnectFault {
    ConnectFault::needs_connection("The connection of the person has ended.")
}

/// The address at which a person logs in.
fn location(found: &Discovered, client: &str, redirect: &str, scope: Option<&str>, state: &str, verifier: &str) -> String {
    let mut url = found.server.authorize.clone();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", client)
        .append_pair("redirect_uri", redirect)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", state)
        .append_pair("resource", &found.resource);
    if let Some(scope) = scope {
        url.query_pairs_mut().append_pair("scope", scope);
        if scope.split_whitespace().any(|word| word == "offline_access") {
            // OpenID Connect gives such a token only after asking the person.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
    }
    url.to_string()
}
