//! Connects people with one server: makes links, follows them, finishes logins, and gives calls the token of their person.
//!
//! Invariants: a token is used for its person and sent to its server only. What a login needs is stored before the browser leaves. A login is stored
//! only while its request is there.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use werkruf_contract::Uuid;
use werkruf_store::{Author, ConnectionKey, ConnectionRequest, ConnectionRow, KeyDigest, NewConnectionRequest, OpenedLink};

use super::addresses::Addresses;
use super::discovery::{Discovered, discover};
use super::fault::{ConnectFault, FaultKind};
use super::grant::{PendingLogin, TokenSource};
use super::http::Http;
use super::registration;
use super::renewal::{AccountToken, Renewals, ended, not_connected, usable};
use super::services::{LoginSettings, OAuthServices};
use super::site::Site;
use super::token;

/// How long a link, and the login that it begins, may take.
const LINK: SignedDuration = SignedDuration::from_mins(10);
/// How long a try to open a link may take, and how much later another one may begin at the earliest if this process ends meanwhile.
const OPENING: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(5);

/// Connects people with one server.
pub(in crate::mcp) struct Connector {
    site: Arc<Site>,
    renewals: Renewals,
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

/// A login that can begin.
struct Prepared {
    location: String,
    state: String,
    login: PendingLogin,
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
        let site = Site { name, url, settings, services, http: Http::new(client), addresses };
        Self { site: Arc::new(site), renewals: Renewals::default() }
    }

    pub(in crate::mcp) fn key(&self, tenant_id: Uuid, user_id: &str) -> ConnectionKey {
        ConnectionKey { tenant_id, user_id: user_id.to_owned(), server: self.site.name.clone() }
    }

    pub(in crate::mcp) fn now(&self) -> Timestamp {
        self.site.now()
    }

    fn secret(&self) -> String {
        URL_SAFE_NO_PAD.encode((self.site.services.random)())
    }

    /// Makes a link for this person. It works once.
    pub(in crate::mcp) async fn link(&self, key: ConnectionKey, scope: Option<String>) -> Result<Link, ConnectFault> {
        let (services, token, now) = (&self.site.services, self.secret(), self.now());
        let expires_at = now.checked_add(LINK).unwrap_or(now);
        let digest = KeyDigest::of(&token);
        let request = NewConnectionRequest { id: services.clock.new_id(), key, digest, scope, created_at: now, expires_at };
        services.store.put_connection_request(request).await?;
        Ok(Link { url: format!("{}/connect/{token}", (services.base_url)()), expires_at })
    }

    /// Opens a link: finds out where its person logs in, and stores what the answer needs. A link stays usable if the other server fails, but one
    /// try runs at a time, and the store counts them: nobody can make this server send many requests with a link.
    pub(in crate::mcp) async fn open(&self, link: &str) -> Result<Opened, ConnectFault> {
        let (store, now) = (&self.site.services.store, self.now());
        let until = now.checked_add(OPENING + MARGIN).unwrap_or(now);
        let request = store.begin_connection_link(KeyDigest::of(link), until, now).await?;
        let request = request.ok_or_else(|| ConnectFault::new(FaultKind::Busy, "Somebody is opening this link, or has opened it."))?;
        let late = || ConnectFault::refused("The other servers did not answer in time.");
        let prepared = tokio::time::timeout(OPENING, self.prepare(&request)).await.unwrap_or_else(|_| Err(late()));
        let opened = match prepared {
            Ok(prepared) => self.store_login(link, request.id, prepared).await,
            Err(fault) => Err(fault),
        };
        if opened.is_err() {
            store.release_connection_link(KeyDigest::of(link)).await?;
        }
        opened
    }

    /// Asks the other servers what a login needs.
    async fn prepare(&self, request: &ConnectionRequest) -> Result<Prepared, ConnectFault> {
        let site = &*self.site;
        let found = discover(&site.http, &site.addresses, &site.url, site.settings.issuer.as_deref()).await?;
        let redirect = format!("{}/oauth/callback", (site.services.base_url)());
        let client = registration::client(site, &found, &redirect).await?;
        let scope = self.scope(&found, request).await?;
        let (state, verifier) = (self.secret(), self.secret());
        let location = location(&found, &client.id, &redirect, scope.as_deref(), &state, &verifier);
        let source = TokenSource {
            server: site.url.to_string(),
            resource: found.resource,
            issuer: found.server.issuer,
            token: found.server.token.to_string(),
            revoke: found.server.revoke.map(String::from),
            client,
        };
        let login = PendingLogin { source, verifier, redirect, scope, names_issuer: found.server.names_issuer };
        Ok(Prepared { location, state, login })
    }

    async fn store_login(&self, link: &str, id: Uuid, prepared: Prepared) -> Result<Opened, ConnectFault> {
        let Prepared { location, state, login } = prepared;
        let (browser, sealed) = (self.secret(), self.site.close(&ConnectionRequest::purpose(id), &login)?);
        let opened = OpenedLink { state: KeyDigest::of(&state), browser: KeyDigest::of(&browser), sealed };
        match self.site.services.store.open_connection_link(KeyDigest::of(link), opened, self.now()).await? {
            Some(_) => Ok(Opened { location, browser }),
            None => Err(ConnectFault::new(FaultKind::Gone, "This link was used already, or has expired.")),
        }
    }

    /// The rights to ask for: those of the configuration, else those that the server names; and those that a call lacked.
    async fn scope(&self, found: &Discovered, request: &ConnectionRequest) -> Result<Option<String>, ConnectFault> {
        let scopes = &self.site.settings.scopes;
        let configured = (!scopes.is_empty()).then(|| scopes.join(" "));
        let lacked = request.scope.clone();
        let granted = match lacked {
            Some(_) => self.site.stored(&request.key).await?.and_then(|(_, grant)| grant.scope),
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

    /// Finishes a login with the answer of the browser, and stores the connection.
    pub(in crate::mcp) async fn finish(&self, request: ConnectionRequest, answer: LoginAnswer, by: Author) -> Result<(), ConnectFault> {
        let site = &*self.site;
        let gone = || ConnectFault::new(FaultKind::Gone, "This login cannot be finished any more.");
        let sealed = request.sealed.as_deref().ok_or_else(gone)?;
        let login: PendingLogin = site.open(&ConnectionRequest::purpose(request.id), sealed).ok_or_else(gone)?;
        // The configuration may have changed since the link was opened.
        if !site.trusts(&login.source) {
            return Err(gone());
        }
        let code = code_of(answer, &login)?;
        let (issuer, redirect) = (login.source.issuer.clone(), login.redirect.clone());
        let account = site.services.clock.new_id();
        let issued = match token::exchange(&site.http, &site.addresses, login, &code, account, site.now()).await {
            Err(fault) if fault.kind == FaultKind::Installation => {
                registration::forget(site, &issuer, &redirect).await?;
                return Err(fault);
            }
            other => other?,
        };
        let sealed = site.close(&request.key.purpose(), &issued.grant)?;
        let row = ConnectionRow { key: request.key, sealed, expires_at: issued.until, updated_at: site.now() };
        if !site.services.store.put_connection(row, request.id, by).await? {
            site.revoke(&issued.grant).await;
            return Err(gone());
        }
        Ok(())
    }

    /// A token of the person other than `bad`. Renews it where that is needed.
    pub(in crate::mcp) async fn token(&self, key: &ConnectionKey, bad: Option<&SecretString>) -> Result<AccountToken, ConnectFault> {
        let (row, grant) = self.site.stored(key).await?.ok_or_else(not_connected)?;
        let is_bad = |token: &String| bad.is_some_and(|bad| bad.expose_secret() == token);
        let lasts = row.expires_at.is_none_or(|until| until > self.now());
        if lasts && grant.access.as_ref().is_some_and(|token| !is_bad(token)) {
            return usable(&grant);
        }
        if grant.refresh.is_none() {
            return Err(ended());
        }
        self.renewals.renewed(&self.site, key, grant).await
    }

    /// What a stored connection is worth.
    pub(in crate::mcp) fn state(&self, row: &ConnectionRow) -> ConnectionState {
        let lasts = row.expires_at.is_none_or(|until| until > self.now());
        match self.site.grant(row) {
            None => ConnectionState::NeedsConnection,
            Some(grant) if grant.refresh.is_some() || (lasts && grant.access.is_some()) => ConnectionState::Connected,
            Some(_) => ConnectionState::Expired,
        }
    }

    /// The people whose connections work, for questions that are the same for all people. The first one is asked for all: an account that connects
    /// later does not decide what the others get.
    pub(in crate::mcp) async fn people(&self) -> Result<Vec<ConnectionKey>, ConnectFault> {
        let rows = self.site.services.store.connections_of_server(self.site.name.clone()).await?;
        Ok(rows.into_iter().filter(|row| self.state(row) == ConnectionState::Connected).map(|row| row.key).collect())
    }

    /// Deletes the connection of a person. False where there is none. The authorization server is told, if it can be.
    pub(in crate::mcp) async fn forget(&self, key: ConnectionKey, by: Author) -> Result<bool, ConnectFault> {
        let Some(row) = self.site.services.store.delete_connection(key, by, self.now()).await? else { return Ok(false) };
        self.revoke(&row).await;
        Ok(true)
    }

    /// Tells the authorization server that the tokens of a connection are not used any more, if it can be told.
    pub(in crate::mcp) async fn revoke(&self, row: &ConnectionRow) {
        if let Some(grant) = self.site.grant(row) {
            self.site.revoke(&grant).await;
        }
    }
}

/// The code in an answer, if the answer is one of the authorization server that was asked.
fn code_of(answer: LoginAnswer, login: &PendingLogin) -> Result<String, ConnectFault> {
    let same = answer.issuer.as_ref().map(|issuer| *issuer == login.source.issuer);
    if same == Some(false) || (login.names_issuer && same.is_none()) {
        return Err(ConnectFault::refused("The answer is of another authorization server."));
    }
    if let Some(error) = answer.error {
        let kind = if error == "access_denied" { FaultKind::Declined } else { FaultKind::Refused };
        return Err(ConnectFault::new(kind, "The authorization server did not agree."));
    }
    answer.code.ok_or_else(|| ConnectFault::refused("The answer has no code."))
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
