//! A server at which each person has an account of their own: one connection per person, opened when a call needs it, never shared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ProtocolVersion};
use rmcp::service::{ClientCacheConfig, ClientLifecycleMode, Peer, RunningService, serve_client_with_lifecycle};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use secrecy::SecretString;
use tokio::sync::Notify;
use werkruf_contract::{ErrorCode, Failure, Invocation, Principal, Uuid};
use werkruf_store::{Author, ConnectionKey, ConnectionRequest, ConnectionRow};

use super::bearer::{Bearer, TokenRefusal};
use super::config::McpServerConfig;
use super::http_client::BoundedHttp;
use super::oauth::{AccountToken, ConnectFault, ConnectionState, Connector, FaultKind, LoginAnswer};
use super::result;
use super::session::Listener;

/// Open connections of a server at most; the one that was used longest ago is closed.
const MOST_OPEN: usize = 256;
/// A connection that was not used for so long is closed.
const IDLE: SignedDuration = SignedDuration::from_mins(5);
/// The time for opening a connection.
const OPEN: Duration = Duration::from_secs(30);

pub(super) type Service = RunningService<RoleClient, Listener>;

/// The connection of one person with one account: a person who connects again gets another one, so that no session has tokens of two accounts.
struct Personal {
    account: Uuid,
    bearer: Arc<Bearer>,
    service: tokio::sync::Mutex<Option<Service>>,
    used_at: Mutex<Timestamp>,
}

/// A server with accounts of people.
pub struct PersonalServer {
    pub(super) connector: Connector,
    config: McpServerConfig,
    url: Url,
    headers: HeaderMap,
    client: reqwest::Client,
    open: Mutex<HashMap<ConnectionKey, Arc<Personal>>>,
    /// Somebody has connected.
    pub(super) connected: Notify,
}

/// A link that connects a person.
#[derive(Debug, Clone)]
pub struct ConnectLink {
    pub url: String,
    pub expires_at: Timestamp,
}

/// Where a browser goes to log in, and the secret of the browser.
pub struct LoginStart {
    pub location: String,
    pub browser: String,
}

/// Why a request has no answer.
enum CallFault {
    Connect(ConnectFault),
    Call(Box<Failure>),
}

impl From<ConnectFault> for CallFault {
    fn from(fault: ConnectFault) -> Self {
        Self::Connect(fault)
    }
}

impl PersonalServer {
    pub(super) fn new(connector: Connector, config: McpServerConfig, url: Url, headers: HeaderMap, client: reqwest::Client) -> Self {
        Self { connector, config, url, headers, client, open: Mutex::default(), connected: Notify::new() }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The host of the server, for people.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether people of this tenant have the server.
    pub fn serves(&self, person: &Principal) -> bool {
        let names = [person.tenant_slug.clone(), person.tenant_id.to_string()];
        self.config.tenants.is_empty() || self.config.tenants.iter().any(|tenant| names.contains(tenant))
    }

    /// Makes a link that connects this person. It works once, for ten minutes.
    pub async fn link(&self, person: &Principal) -> Result<ConnectLink, ConnectFault> {
        self.link_for(person, None).await
    }

    async fn link_for(&self, person: &Principal, scope: Option<String>) -> Result<ConnectLink, ConnectFault> {
        let made = self.connector.link(self.connector.key(person.tenant_id, &person.user_id), scope).await?;
        Ok(ConnectLink { url: made.url, expires_at: made.expires_at })
    }

    /// Opens a link.
    pub async fn open_link(&self, link: &str) -> Result<LoginStart, ConnectFault> {
        let opened = self.connector.open(link).await?;
        Ok(LoginStart { location: opened.location, browser: opened.browser })
    }

    /// Finishes the login of a request that was taken, for the person of the request.
    pub async fn finish(&self, request: ConnectionRequest, answer: LoginAnswer, by: Author) -> Result<(), ConnectFault> {
        let key = request.key.clone();
        self.connector.finish(request, answer, by).await?;
        // A connection that is open has the token of the account before.
        self.lock().remove(&key);
        self.connected.notify_one();
        Ok(())
    }

    /// What a stored connection is worth.
    pub fn state(&self, row: &ConnectionRow) -> ConnectionState {
        self.connector.state(row)
    }

    /// Deletes the connection of a person; false where there is none.
    pub async fn forget(&self, person: &Principal, by: Author) -> Result<bool, ConnectFault> {
        let key = self.connector.key(person.tenant_id, &person.user_id);
        self.lock().remove(&key);
        self.connector.forget(key, by).await
    }

    pub(super) fn close_person(&self, tenant_id: Uuid, user_id: &str) {
        self.lock().remove(&self.connector.key(tenant_id, user_id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionKey, Arc<Personal>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a tool with the account of the caller.
    pub(super) async fn call(&self, params: CallToolRequestParams, invocation: &Invocation) -> Result<CallToolResponse, Failure> {
        let person = &invocation.principal;
        match self.call_as(&self.connector.key(person.tenant_id, &person.user_id), params).await {
            Ok(response) => Ok(response),
            Err(CallFault::Call(failure)) => Err(*failure),
            Err(CallFault::Connect(fault)) => Err(self.failure(fault, invocation).await),
        }
    }

    /// A token that the server refuses is renewed once. A refusal means that nothing has happened, so the call is sent again.
    async fn call_as(&self, key: &ConnectionKey, params: CallToolRequestParams) -> Result<CallToolResponse, CallFault> {
        let mut bad: Option<SecretString> = None;
        for _ in 0..2 {
            let AccountToken { account, token } = self.connector.token(key, bad.as_ref()).await?;
            let personal = self.personal(key, account);
            let refusal = match self.peer(&personal, &token).await? {
                Err(refusal) => refusal,
                Ok(peer) => match peer.call_tool_once(params.clone()).await {
                    Ok(response) => return Ok(response),
                    Err(error) => result::refusal_of(&error).ok_or_else(|| CallFault::Call(Box::new(result::failure(&error))))?,
                },
            };
            if refusal.lacks_scope {
                return Err(lacking(&refusal));
            }
            bad = Some(token);
        }
        Err(ConnectFault::needs_connection("The server does not accept the token of the person.").into())
    }

    /// The failure of a call whose person cannot be served, with a link where a login helps.
    async fn failure(&self, fault: ConnectFault, invocation: &Invocation) -> Failure {
        let texts = invocation.texts();
        let cause = fault.to_string();
        let failure = match fault.kind {
            FaultKind::NeedsConnection => {
                let made = self.link_for(&invocation.principal, fault.scope).await;
                let server = self.name();
                let message = match &made {
                    Ok(link) => texts.text("connect-link", &[("server", server.into()), ("url", link.url.as_str().into())]),
                    Err(_) => texts.text("call-needs_connection", &[]),
                };
                Failure::fatal(ErrorCode::NeedsConnection, message)
            }
            FaultKind::Installation => Failure::fatal(ErrorCode::UpstreamRefused, "This server lacks a setting that the login needs."),
            FaultKind::Gone | FaultKind::Busy | FaultKind::Declined | FaultKind::Refused | FaultKind::Store => result::unreachable(),
        };
        failure.nothing_happened().because(cause)
    }

    /// The connection of a person with this account. One with an earlier account is let go of, also where another process has stored the new one.
    fn personal(&self, key: &ConnectionKey, account: Uuid) -> Arc<Personal> {
        let now = self.connector.now();
        let mut open = self.lock();
        if open.get(key).is_some_and(|personal| personal.account != account) {
            open.remove(key);
        }
        if !open.contains_key(key) && open.len() >= MOST_OPEN {
            let oldest = open.iter().min_by_key(|(_, personal)| *stamp(personal)).map(|(key, _)| key.clone());
            oldest.map(|oldest| open.remove(&oldest));
        }
        let personal = open.entry(key.clone()).or_insert_with(|| {
            let service = tokio::sync::Mutex::default();
            Arc::new(Personal { account, bearer: Arc::default(), service, used_at: Mutex::new(now) })
        });
        *stamp(personal) = now;
        Arc::clone(personal)
    }

    /// Closes what nobody has used for a while.
    pub(super) fn close_idle(&self) {
        let now = self.connector.now();
        // A call in progress has its own copy.
        self.lock().retain(|_, personal| Arc::strong_count(personal) > 1 || now.duration_since(*stamp(personal)) < IDLE);
    }

    /// The open connection of a person with this token, or how the server refused the token.
    async fn peer(&self, personal: &Personal, token: &SecretString) -> Result<Result<Peer<RoleClient>, TokenRefusal>, CallFault> {
        let mut service = personal.service.lock().await;
        personal.bearer.set(token.clone());
        if let Some(open) = service.as_ref().filter(|open| !open.is_transport_closed()) {
            return Ok(Ok(open.peer().clone()));
        }
        *service = None;
        match self.open(&personal.bearer).await {
            Ok(opened) => {
                let peer = opened.peer().clone();
                *service = Some(opened);
                Ok(Ok(peer))
            }
            Err(why) => match personal.bearer.take_refusal() {
                Some(refusal) => Ok(Err(refusal)),
                None => Err(CallFault::Call(Box::new(result::unreachable().because(why)))),
            },
        }
    }

    /// Opens a connection with this credential.
    pub(super) async fn open(&self, bearer: &Arc<Bearer>) -> Result<Service, String> {
        let http = BoundedHttp::new(self.client.clone(), self.headers.clone(), self.config.max_response_bytes);
        let options = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .max_concurrent_requests(self.config.concurrency.saturating_add(2));
        let transport = StreamableHttpClientTransport::with_client(http.with_bearer(Arc::clone(bearer)), options);
        let lifecycle = ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
        let opening = serve_client_with_lifecycle(Listener::default(), transport, lifecycle);
        let service = tokio::time::timeout(OPEN, opening).await.map_err(|_| "it did not answer in time".to_owned())?;
        let service = service.map_err(|error| error.to_string())?;
        // The SDK would keep lists for as long as the server says.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(service)
    }
}

/// A good token that lacks a right needs a new login; any other refusal is the server's last word.
fn lacking(refusal: &TokenRefusal) -> CallFault {
    if refusal.challenge.error.as_deref() == Some("insufficient_scope") || refusal.challenge.scope.is_some() {
        let fault = ConnectFault::needs_connection("The token of the person lacks a right.");
        return fault.for_scope(refusal.challenge.scope.clone()).into();
    }
    let message = "The server behind this tool does not permit this to the person.";
    CallFault::Call(Box::new(Failure::fatal(ErrorCode::UpstreamRefused, message).nothing_happened()))
}

fn stamp(personal: &Personal) -> MutexGuard<'_, Timestamp> {
    personal.used_at.lock().unwrap_or_else(PoisonError::into_inner)
}
