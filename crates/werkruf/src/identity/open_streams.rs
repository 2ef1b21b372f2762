//! The open event streams of keys and tokens. A stream ends soon after its credential was revoked or has expired, or its user was
//! deactivated; its turn goes on.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use werkruf_contract::Uuid;
use werkruf_store::{KeyRow, StoreError};

use super::Identity;
use crate::app::App;

/// The open streams.
#[derive(Clone, Default)]
pub(crate) struct OpenStreams(Arc<Mutex<Streams>>);

#[derive(Default)]
struct Streams {
    next: u64,
    open: HashMap<u64, OpenStream>,
}

struct OpenStream {
    session_id: Option<Uuid>,
    key_id: Option<Uuid>,
    user: Option<(Uuid, i64)>,
    until: Option<Timestamp>,
    end: CancellationToken,
}

impl OpenStreams {
    /// Ties an event stream to the credential of its caller. Other responses, and those of the operator's own key, stay as they are.
    pub(crate) fn tie(&self, identity: &Identity, response: Response) -> Response {
        let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        if !is_stream || (identity.is_operator() && identity.session_id.is_none()) {
            return response;
        }
        let end = CancellationToken::new();
        let user = identity.principal.as_ref().and_then(|user| Some((user.tenant_id, user.user_id.parse().ok()?)));
        let registered = self.register(OpenStream {
            session_id: identity.session_id,
            key_id: identity.key_id,
            user,
            until: identity.until,
            end: end.clone(),
        });
        response.map(|body| {
            let chunks = body.into_data_stream().take_until(end.cancelled_owned());
            Body::from_stream(chunks.inspect(move |_| {
                let _keep = &registered;
            }))
        })
    }

    fn register(&self, stream: OpenStream) -> Registered {
        let mut streams = self.lock();
        let number = streams.next;
        streams.next += 1;
        streams.open.insert(number, stream);
        Registered { streams: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_ids(&self) -> Vec<Uuid> {
        self.lock().open.values().filter_map(|stream| stream.key_id).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn users(&self) -> Vec<(Uuid, i64)> {
        self.lock().open.values().filter_map(|stream| stream.user).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Ends the streams whose credential has expired. The database is not asked.
    pub(super) fn end_expired(&self, now: Timestamp) {
        for stream in self.lock().open.values().filter(|stream| stream.until.is_some_and(|until| until <= now)) {
            stream.end.cancel();
        }
    }

    /// Ends the streams whose key was deleted, or expires earlier than it did when the stream began.
    pub(super) async fn end_revoked(&self, app: &App) -> Result<(), StoreError> {
        let ids = self.key_ids();
        if ids.is_empty() {
            return Ok(());
        }
        let rows = app.store.keys_by_id(ids.clone()).await?;
        let now = app.clock.now();
        let valid = |row: &&KeyRow| app.config.auth.key_ends(row).is_none_or(|end| now < end);
        let valid: BTreeSet<Uuid> = rows.iter().filter(valid).map(|row| row.id).collect();
        for stream in self.lock().open.values() {
            // A key that was not asked for belongs to a stream that opened meanwhile.
            if stream.key_id.is_some_and(|id| !valid.contains(&id) && ids.binary_search(&id).is_ok()) {
                stream.end.cancel();
            }
        }
        Ok(())
    }

    /// Ends the streams of sessions that were signed out.
    pub(super) async fn end_signed_out(&self, app: &App) -> Result<(), StoreError> {
        let ids: BTreeSet<Uuid> = self.lock().open.values().filter_map(|stream| stream.session_id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let left: BTreeSet<Uuid> = app.console_store.console_sessions_by_id(ids.iter().copied().collect()).await?.into_iter().collect();
        for stream in self.lock().open.values() {
            if stream.session_id.is_some_and(|id| ids.contains(&id) && !left.contains(&id)) {
                stream.end.cancel();
            }
        }
        Ok(())
    }

    /// Ends the streams of users who were deactivated.
    pub(super) async fn end_deactivated(&self, app: &App) -> Result<(), StoreError> {
        let users = self.users();
        if users.is_empty() {
            return Ok(());
        }
        let active: BTreeSet<(Uuid, i64)> = app.identity_store.active_users(users.clone()).await?.into_iter().collect();
        for stream in self.lock().open.values() {
            // A user who was not asked for belongs to a stream that opened meanwhile.
            if stream.user.is_some_and(|user| !active.contains(&user) && users.binary_search(&user).is_ok()) {
                stream.end.cancel();
            }
        }
        Ok(())
    }
}

/// Takes the stream from the list when its body is dropped.
struct Registered {
    streams: OpenStreams,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.streams.lock().open.remove(&self.number);
    }
}
