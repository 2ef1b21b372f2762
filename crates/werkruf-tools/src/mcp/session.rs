//! Keeps the connection to one server: opens it, lists its tools, and opens it again when it was lost.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion, Tool};
use rmcp::service::{ClientCacheConfig, ClientLifecycleMode, NotificationContext, Peer, RunningService, serve_client_with_lifecycle};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use werkruf_contract::Deadline;

use super::child::{self, OwnedChild};
use super::config::Reach;
use super::http_client::BoundedHttp;
use super::lines;
use super::link::{Connection, Link};
use super::offer::Offer;

/// The time for opening a connection. A program may take long to start, and an address of the older protocol that does not answer the first question
/// takes ten seconds of it.
const CONNECT: Duration = Duration::from_secs(60);
const LIST: Duration = Duration::from_secs(30);
/// Pins are compared this often, so that an acceptance counts on all servers of a cluster.
const COMPARE: Duration = Duration::from_secs(3);
/// A list is asked for at most this often because the server says that it changed.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// The time for ending a session.
const CLOSE: Duration = Duration::from_millis(500);
/// A connection that lasted longer was a good one.
const STABLE: Duration = Duration::from_secs(60);
/// A list is at most so many answers long.
const MOST_PAGES: usize = 16;
/// The pipe between the program's output and the client.
const PIPE_BYTES: usize = 64 * 1024;
/// What surrounds a result in its line.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Everything that one connection needs.
pub(super) struct Session {
    pub(super) reach: Reach,
    pub(super) link: Arc<Link>,
    pub(super) offer: Offer,
    pub(super) client: reqwest::Client,
    pub(super) tasks: TaskTracker,
    /// The offer is another one.
    pub(super) changed: Arc<Notify>,
    /// The pins have changed.
    pub(super) compare: Notify,
}

/// Hears that the list of tools changed. It offers the server nothing: no sampling, no input, no folders.
#[derive(Default)]
pub(super) struct Listener {
    listed: Arc<Notify>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("werkruf", env!("CARGO_PKG_VERSION")))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.listed.notify_one();
    }
}

/// An open connection. The tasks end when it is dropped.
struct Opened {
    service: RunningService<RoleClient, Listener>,
    child: Option<OwnedChild>,
    _pumps: Vec<AbortOnDropHandle<()>>,
    listed: Arc<Notify>,
}

/// Why there is no connection.
enum NotOpened {
    /// The server answered with an error or with something else, or closed the connection.
    Refused(String),
    Failed(String),
}

impl NotOpened {
    fn into_reason(self) -> String {
        match self {
            Self::Refused(why) | Self::Failed(why) => why,
        }
    }
}

/// A connection whose protocol is agreed.
async fn opened<T, E, A>(
    listener: Listener,
    transport: T,
    lifecycle: ClientLifecycleMode,
) -> Result<RunningService<RoleClient, Listener>, NotOpened>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let opening = serve_client_with_lifecycle(listener, transport, lifecycle);
    let opened = tokio::time::timeout(CONNECT, opening).await.map_err(|_| NotOpened::Failed("it did not answer in time".to_owned()))?;
    opened.map_err(|error| NotOpened::Refused(error.to_string()))
}

impl Session {
    /// Keeps the connection until `stop`.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let server = self.offer.config.name.clone();
        let mut backoff = FIRST_BACKOFF;
        loop {
            let stable = Deadline::after(STABLE);
            let Err(why) = self.connect_and_follow(&stop).await else { return };
            if stable.passed() {
                backoff = FIRST_BACKOFF;
            }
            tracing::warn!(server, "no connection to an MCP server: {why}; the next attempt is in {} ms", backoff.as_millis());
            self.link.set(Connection::Down(why));
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(backoff) => {}
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    /// Ok when it was stopped, else why the connection ended.
    async fn connect_and_follow(&self, stop: &CancellationToken) -> Result<(), String> {
        let opened = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            opened = self.open() => opened?,
        };
        let Opened { service, child, _pumps, listed } = opened;
        let (peer, cancel) = (service.peer().clone(), service.cancellation_token());
        // The SDK would keep lists for as long as the server says.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let mut closed = std::pin::pin!(service.waiting());
        let (ended, is_open) = tokio::select! {
            () = stop.cancelled() => (Ok(()), true),
            _ = &mut closed => (Err("the server closed the connection".to_owned()), false),
            why = self.follow(&peer, &listed) => (Err(why), true),
        };
        self.link.set(Connection::Down("the connection is closed".to_owned()));
        // Closes the input of a program and ends a session.
        cancel.cancel();
        if is_open {
            let _ = tokio::time::timeout(CLOSE, closed).await;
        }
        if let Some(child) = child {
            child.end().await;
        }
        ended
    }

    async fn open(&self) -> Result<Opened, String> {
        match &self.reach {
            Reach::Http { url, headers } => self.open_http(url.as_str(), headers).await,
            Reach::Child { command, args, env } => match self.start_program(command, args, env, ClientLifecycleMode::Initialize).await {
                Err(NotOpened::Refused(why)) => {
                    let newer = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
                    let opened = self.start_program(command, args, env, newer).await;
                    opened.map_err(|second| format!("{why}; in the newer protocol: {}", second.into_reason()))
                }
                opened => opened.map_err(NotOpened::into_reason),
            },
        }
    }

    async fn open_http(&self, url: &str, headers: &HeaderMap) -> Result<Opened, String> {
        let config = &self.offer.config;
        let http = BoundedHttp::new(self.client.clone(), headers.clone(), config.max_response_bytes);
        let mut options = StreamableHttpClientTransportConfig::with_uri(url).max_concurrent_requests(config.concurrency.saturating_add(2));
        let mut retries = ExponentialBackoff::default();
        retries.max_times = Some(8);
        retries.max_delay = Some(LONGEST_BACKOFF);
        options.retry_config = Arc::new(retries);
        let transport = StreamableHttpClientTransport::with_client(http, options);
        let lifecycle = ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
        let listed = Arc::new(Notify::new());
        let service = opened(Listener { listed: Arc::clone(&listed) }, transport, lifecycle).await.map_err(NotOpened::into_reason)?;
        Ok(Opened { service, child: None, _pumps: Vec::new(), listed })
    }

    /// A program is asked in the older protocol first. Nearly all programs know it, and none is judged by the time that it takes to start: the SDK
    /// would give it ten seconds for the newer one. A program that refuses is started again for the newer protocol.
    async fn start_program(
        &self,
        command: &str,
        args: &[String],
        env: &[(String, String)],
        lifecycle: ClientLifecycleMode,
    ) -> Result<Opened, NotOpened> {
        let (child, pipes) =
            OwnedChild::start(command, args, env).map_err(|error| NotOpened::Failed(format!("`{command}` cannot be started: {error}")))?;
        // The end of the copy closes this pipe, and so the connection.
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let limit = usize::try_from(self.offer.config.max_response_bytes).unwrap_or(usize::MAX).saturating_add(ENVELOPE_BYTES);
        let server = self.offer.config.name.clone();
        let copying = async move {
            if let Err(error) = lines::copy(pipes.output, theirs, limit).await {
                tracing::warn!(server, "the output of an MCP server is given up: {error}");
            }
        };
        let pumps = vec![
            AbortOnDropHandle::new(self.tasks.spawn(copying)),
            AbortOnDropHandle::new(self.tasks.spawn(child::log_errors(self.offer.config.name.clone(), pipes.errors))),
        ];
        let transport = AsyncRwTransport::new_client(ours, pipes.input).with_max_line_length(limit);
        let listed = Arc::new(Notify::new());
        let service = opened(Listener { listed: Arc::clone(&listed) }, transport, lifecycle).await?;
        Ok(Opened { service, child: Some(child), _pumps: pumps, listed })
    }

    /// Follows the list of tools until a list fails, and returns why.
    async fn follow(&self, peer: &Peer<RoleClient>, listed: &Notify) -> String {
        let mut list = match Self::list(peer).await {
            Ok(list) => list,
            Err(why) => return why,
        };
        self.compare(&list).await;
        self.link.set(Connection::Up(peer.clone()));
        let mut refresh = tokio::time::interval(Duration::from_secs(self.offer.config.refresh_s));
        refresh.tick().await;
        let mut compare = tokio::time::interval(COMPARE);
        loop {
            let again = tokio::select! {
                () = listed.notified() => {
                    tokio::time::sleep(BETWEEN_LISTS).await;
                    true
                }
                _ = refresh.tick() => true,
                () = self.compare.notified() => false,
                // A change that was accepted elsewhere may be newer than the list.
                _ = compare.tick() => !self.offer.offered().changed.is_empty(),
            };
            if again {
                list = match Self::list(peer).await {
                    Ok(list) => list,
                    Err(why) => return why,
                };
            }
            self.compare(&list).await;
        }
    }

    pub(super) async fn compare(&self, list: &[Tool]) {
        match self.offer.compare(list).await {
            Ok(true) => self.changed.notify_one(),
            Ok(false) => {}
            // The offer stays as it is, and is compared again soon.
            Err(error) => {
                tracing::warn!(server = self.offer.config.name, %error, "the definitions of an MCP server's tools cannot be compared")
            }
        }
    }

    /// The whole list, within bounds.
    pub(super) async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
        let all = async {
            let (mut tools, mut cursor) = (Vec::new(), None);
            for _ in 0..MOST_PAGES {
                let page = peer
                    .list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)))
                    .await
                    .map_err(|error| error.to_string())?;
                tools.extend(page.tools);
                cursor = page.next_cursor;
                if cursor.is_none() {
                    return Ok(tools);
                }
            }
            Err(format!("its list of tools has more than {MOST_PAGES} pages"))
        };
        tokio::time::timeout(LIST, all).await.unwrap_or_else(|_| Err("it did not list its tools in time".to_owned()))
    }
}
