//! `GET /api/stream`: hints about what has moved, one stream for all views of a page.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Interval;
use werkruf_contract::{Principal, Uuid};
use werkruf_store::{HintKind, HintRow, SERVER_CHAIN, StoreError};

use super::ApiState;
use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::sse::{KEEP_ALIVE, RETRY_HINT, keep_alive_timer, response};
use crate::app::App;
use crate::hint_feed::{HintBatch, HintFeeds};
use crate::identity::{Identity, Visibility};
use crate::routing::{self, ApiRouter, ToSchema, routes};

const OPENED: &[u8] = b": open\n\n";
const RESET: &[u8] = b"event: reset\ndata: {\"kind\":\"reset\"}\n\n";

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Read.on(routes!(follow)))
}

/// One hint. The page asks for the row that it names.
#[derive(Serialize, ToSchema)]
#[schema(as = Hint)]
struct HintView<'a> {
    /// `call`, `turn`, `approval`, `outbox` or `alert`.
    #[schema(value_type = String)]
    kind: &'static str,
    id: Uuid,
    status: &'a str,
}

/// Hints about what the caller may see. A hint has no number and is not repeated. After `event: reset`, and after a new connection, the page asks
/// for everything again.
#[routing::path(get, path = "/api/stream", operation_id = "stream_hints", tag = "console",
    responses((status = 200, body = HintView, content_type = "text/event-stream", description = "One event without a name for each hint; `reset` after a gap."),
        (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn follow(ApiCaller { api, identity }: ApiCaller) -> Result<Response, ApiError> {
    let of_tenant = HintFeeds::subscribe(&api.app, identity.tenant_id).await;
    let of_server = match identity.is_operator() {
        true => Some(HintFeeds::subscribe(&api.app, SERVER_CHAIN).await),
        false => None,
    };
    let hints = HintStream {
        viewer: Viewer::of(&api.app, &identity)?,
        of_tenant,
        of_server,
        keep_alive: keep_alive_timer(),
        opened: false,
        ended: false,
    };
    let chunks = stream::unfold(hints, |mut hints| async move { hints.next().await.map(|chunk| (Ok::<_, Infallible>(chunk), hints)) });
    Ok(response(Body::from_stream(chunks)))
}

/// The hints of one page.
struct HintStream {
    viewer: Viewer,
    of_tenant: Receiver<HintBatch>,
    /// Alerts of the server, for the operator.
    of_server: Option<Receiver<HintBatch>>,
    keep_alive: Interval,
    opened: bool,
    ended: bool,
}

impl HintStream {
    /// The next chunk of the body. hyper polls for it only after the client took the one before.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.opened, true) {
            return Some(Bytes::from_static(OPENED));
        }
        while !self.ended {
            let received = tokio::select! {
                received = self.of_tenant.recv() => received,
                received = receive(self.of_server.as_mut()) => received,
                _ = self.keep_alive.tick() => return Some(Bytes::from_static(KEEP_ALIVE)),
            };
            match received {
                Ok(HintBatch::Moved(rows)) => match self.viewer.chunk(&rows).await {
                    Ok(chunk) if chunk.is_empty() => {}
                    Ok(chunk) => return Some(chunk),
                    Err(error) => {
                        tracing::warn!(%error, "the rights of a page could not be read; the page is told to ask again");
                        return Some(Bytes::from_static(RESET));
                    }
                },
                Ok(HintBatch::Reset) | Err(RecvError::Lagged(_)) => return Some(Bytes::from_static(RESET)),
                // The server drains.
                Err(RecvError::Closed) => {
                    self.ended = true;
                    return Some(Bytes::from_static(RETRY_HINT));
                }
            }
        }
        None
    }
}

/// Waits forever where there is nothing to receive.
async fn receive(receiver: Option<&mut Receiver<HintBatch>>) -> Result<HintBatch, RecvError> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// Who reads the hints, and what of them.
struct Viewer {
    app: Arc<App>,
    visibility: Visibility,
    person: Option<Arc<Principal>>,
}

impl Viewer {
    fn of(app: &Arc<App>, identity: &Identity) -> Result<Self, ApiError> {
        Ok(Self { app: Arc::clone(app), visibility: identity.visibility()?, person: identity.principal.clone() })
    }

    async fn chunk(&mut self, rows: &[HintRow]) -> Result<Bytes, StoreError> {
        if rows.iter().any(|row| row.kind == HintKind::Approval) {
            self.read_roles().await?;
        }
        let mut out = BytesMut::new();
        for row in rows.iter().filter(|row| self.sees(row)) {
            let view = HintView { kind: row.kind.as_str(), id: row.id, status: &row.status };
            out.put_slice(b"data: ");
            out.put_slice(&serde_json::to_vec(&view).map_err(|error| StoreError::Broken(error.to_string()))?);
            out.put_slice(b"\n\n");
        }
        Ok(out.freeze())
    }

    /// Roles decide who sees an approval, and may change while the stream is open.
    async fn read_roles(&mut self) -> Result<(), StoreError> {
        if let (Visibility::Own(user_id), Some(person)) = (&self.visibility, &self.person) {
            self.person = self.app.people().principal(person.tenant_id, user_id.clone()).await?;
        }
        Ok(())
    }

    fn sees(&self, row: &HintRow) -> bool {
        let Visibility::Own(own) = &self.visibility else { return true };
        match row.kind {
            HintKind::Call | HintKind::Turn => row.user_id.as_ref() == Some(own),
            HintKind::Approval => self.person.as_ref().is_some_and(|person| row.approver_roles.iter().any(|role| person.has_role(role))),
            HintKind::Outbox | HintKind::Alert => false,
        }
    }
}
