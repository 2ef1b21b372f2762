//! Sessions of protocol versions up to 2025-11-25. A session belongs to the credential and the user that opened it: for anybody else it does not
//! exist. They are in memory of this process; a client whose session is unknown here opens another one, as the protocol says.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use http::HeaderMap;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use werkruf_contract::Uuid;

use crate::api::ApiError;
use crate::identity::Identity;

pub(super) const SESSION_ID: &str = "mcp-session-id";

/// Sessions of one owner at the same time.
const MOST_OF_OWNER: usize = 1024;
/// Sessions of all owners at the same time.
const MOST: usize = 4096;
/// A session without messages is closed after this long.
const IDLE: Duration = Duration::from_secs(300);
/// How long the answer to a request can be fetched again by a client whose stream was cut. `call` counts its memory that long.
pub(super) const RESUME_WINDOW: Duration = Duration::from_secs(10);

/// Who opened a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionOwner {
    tenant_id: Uuid,
    /// The first key of a series of rotations, so that a rotation keeps the sessions.
    key: Option<Uuid>,
    user_id: Option<String>,
    operator: bool,
}

impl SessionOwner {
    pub(super) fn of(identity: &Identity) -> Self {
        Self {
            tenant_id: identity.tenant_id,
            key: identity.key_root.or(identity.key_id),
            user_id: identity.principal.as_ref().map(|user| user.user_id.clone()),
            operator: identity.is_operator(),
        }
    }
}

tokio::task_local! {
    /// The owner of the request that the SDK handles in this task.
    static OWNER: SessionOwner;
}

/// The sessions of this process and their owners.
pub(super) struct OwnedSessions {
    local: LocalSessionManager,
    owners: Mutex<HashMap<SessionId, SessionOwner>>,
}

impl Default for OwnedSessions {
    fn default() -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(IDLE);
        local.session_config.completed_cache_ttl = RESUME_WINDOW;
        Self { local, owners: Mutex::default() }
    }
}

impl OwnedSessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionOwner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// 404 for a session that does not exist or belongs to somebody else.
    pub(super) fn check_owner(&self, headers: &HeaderMap, owner: &SessionOwner) -> Result<(), ApiError> {
        let named = headers.get(SESSION_ID).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let owned = self.lock().get(named).is_some_and(|known| known == owner);
        if owned { Ok(()) } else { Err(ApiError::not_found("session")) }
    }

    /// 503 if there are too many sessions for another one.
    pub(super) fn check_room(&self, owner: &SessionOwner) -> Result<(), ApiError> {
        let owners = self.lock();
        let own = owners.values().filter(|known| *known == owner).count();
        if owners.len() < MOST && own < MOST_OF_OWNER {
            return Ok(());
        }
        let message = "There are too many open sessions; end some of them (DELETE /mcp) or try again later.";
        Err(ApiError::new(http::StatusCode::SERVICE_UNAVAILABLE, "server_busy", message).retry_after_ms(5000))
    }

    /// Handles a request of this owner.
    pub(super) async fn for_owner<T>(&self, owner: SessionOwner, work: impl Future<Output = T>) -> T {
        OWNER.scope(owner, work).await
    }
}

impl SessionManager for OwnedSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        if let Ok(owner) = OWNER.try_with(Clone::clone) {
            self.lock().insert(id.clone(), owner);
        }
        Ok((id, transport))
    }

    async fn initialize_session(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.lock().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.resume(id, last_event_id).await
    }
}
