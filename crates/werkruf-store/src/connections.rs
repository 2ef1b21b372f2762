//! What people may use at other servers, each with an account of their own: connections, and the links that make them.
//!
//! Invariants: a link is opened once, and what it became is finished once and only by the browser that opened it, each in one statement. The
//! person is the one for whom the link was made, whoever opens it. A login is stored only together with the end of its request: an erasure deletes
//! the request, so nothing of the person is stored afterwards.

use jiff::Timestamp;
use serde_json::json;
use werkruf_contract::Uuid;

use crate::{Act, Author, KeyDigest, ProviderTokens, StoreFuture};

/// A person has at most so many links that wait; the oldest are deleted.
pub(crate) const MAX_REQUESTS: u32 = 20;
/// So often somebody can try to open a link: each time makes this server send requests.
pub(crate) const MAX_TRIES: u32 = 10;
/// How many connections of a server are read to find one that works.
pub(crate) const MAX_OF_SERVER: u32 = 256;

/// Connections of people, shared by every process on the database.
pub trait Connections: Send + Sync {
    /// Stores a link. Deletes those that have expired, and the oldest of a person who has too many.
    fn put_connection_request(&self, request: NewConnectionRequest) -> StoreFuture<'_, ()>;
    /// The link with this token that nobody has opened, until it expires or was tried too often.
    fn connection_link(&self, link: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>>;
    /// Begins to open a link: counts the try, and keeps others from trying until `until`. `None` when there is no such link any more, or somebody
    /// else is trying.
    fn begin_connection_link(&self, link: KeyDigest, until: Timestamp, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>>;
    /// Ends a try that failed, so that the link can be tried again.
    fn release_connection_link(&self, link: KeyDigest) -> StoreFuture<'_, ()>;
    /// Opens a link. `None` when there is no such link, or it was opened or has expired.
    fn open_connection_link(&self, link: KeyDigest, opened: OpenedLink, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>>;
    /// Takes the request of an opened link, once. `None` when there is none with this state and this browser, or it has expired. The row stays
    /// until the connection is stored.
    fn take_connection_request(&self, state: KeyDigest, browser: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>>;
    /// Stores the connection that this request became, or replaces the earlier one, and deletes the request. False, and nothing is stored, where the
    /// request is gone: its person was erased meanwhile.
    fn put_connection(&self, row: ConnectionRow, request: Uuid, by: Author) -> StoreFuture<'_, bool>;
    fn connection(&self, key: ConnectionKey) -> StoreFuture<'_, Option<ConnectionRow>>;
    /// The connections of a person.
    fn connections_of_person(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Vec<ConnectionRow>>;
    /// The connections with a server, of all tenants, in an order that does not change.
    fn connections_of_server(&self, server: String) -> StoreFuture<'_, Vec<ConnectionRow>>;
    /// The connections of all people.
    fn all_connections(&self) -> StoreFuture<'_, Vec<ConnectionRow>>;
    /// Changes a connection that still has the old bytes; false where it has others by now, or is gone.
    fn replace_connection(&self, key: ConnectionKey, change: ConnectionChange, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Deletes a connection and returns it.
    fn delete_connection(&self, key: ConnectionKey, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRow>>;
}

/// Connections, and the tokens and claims of accounts: what clients of other servers store.
pub trait ConnectionStore: Connections + ProviderTokens {}

impl<S: Connections + ProviderTokens> ConnectionStore for S {}

/// Whose connection with which server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub tenant_id: Uuid,
    pub user_id: String,
    /// The name of the server in the configuration.
    pub server: String,
}

impl ConnectionKey {
    /// What the tokens are encrypted for.
    pub fn purpose(&self) -> String {
        format!("connection/{}/{}/{}", self.tenant_id, self.user_id, self.server)
    }

    pub(crate) fn act(&self, action: &'static str) -> Act {
        Act::new(action, self.server.clone()).about(self.user_id.clone()).after(json!({"user_id": self.user_id}))
    }
}

/// A row of `connections`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRow {
    pub key: ConnectionKey,
    /// The tokens, encrypted.
    pub sealed: Vec<u8>,
    /// When the token expires; `None` where its server did not say.
    pub expires_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// Other tokens for a connection.
#[derive(Debug, Clone)]
pub struct ConnectionChange {
    pub old: Vec<u8>,
    pub sealed: Vec<u8>,
    pub expires_at: Option<Timestamp>,
}

/// A link to store.
#[derive(Debug, Clone)]
pub struct NewConnectionRequest {
    pub id: Uuid,
    pub key: ConnectionKey,
    /// Of the link's token.
    pub digest: KeyDigest,
    /// The rights at the server that are asked for beside the usual ones.
    pub scope: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// What an opened link becomes.
#[derive(Debug, Clone)]
pub struct OpenedLink {
    pub state: KeyDigest,
    pub browser: KeyDigest,
    pub sealed: Vec<u8>,
}

/// A row of `connection_requests`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRequest {
    pub id: Uuid,
    pub key: ConnectionKey,
    pub scope: Option<String>,
    /// What the answer needs, encrypted; `None` before the link was opened.
    pub sealed: Option<Vec<u8>>,
    pub expires_at: Timestamp,
}

impl ConnectionRequest {
    /// What the secret of a request is encrypted for.
    pub fn purpose(id: Uuid) -> String {
        format!("connection_request/{id}")
    }
}
