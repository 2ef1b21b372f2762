//! The HTTP request behind a message: whose it is, and what it holds.

use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use rmcp::model::{ErrorCode, ErrorData, RequestId, RequestMetaObject};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::sessions::RESUME_WINDOW;
use crate::api::body::RawBody;
use crate::api::policy::Authenticated;
use crate::api::{ApiError, ApiState};
use crate::identity::Identity;

/// The body of a request, with its reservation of memory.
#[derive(Clone)]
pub(super) struct HeldBody(pub(super) RawBody);

/// A message and its HTTP request.
pub(super) struct McpRequest {
    pub(super) api: Arc<ApiState>,
    pub(super) identity: Arc<Identity>,
    pub(super) headers: HeaderMap,
    pub(super) body: RawBody,
    pub(super) id: RequestId,
    pub(super) meta: RequestMetaObject,
    pub(super) peer: Peer<RoleServer>,
    /// Raised when the client has canceled the request, has closed its stream or has ended its session.
    pub(super) left: CancellationToken,
    /// Whether the client speaks the extension `tasks`.
    pub(super) speaks_tasks: bool,
    /// Whether the message belongs to a session.
    pub(super) in_session: bool,
}

impl McpRequest {
    pub(super) fn of(mut context: RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        let speaks_tasks = context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks());
        let lost = || ErrorData::internal_error("the request was lost on its way", None);
        let parts = context.extensions.remove::<Parts>().ok_or_else(lost)?;
        let Authenticated(identity) = parts.extensions.get::<Authenticated>().cloned().ok_or_else(lost)?;
        let api = parts.extensions.get::<Arc<ApiState>>().cloned().ok_or_else(lost)?;
        let HeldBody(body) = parts.extensions.get::<HeldBody>().cloned().ok_or_else(lost)?;
        let in_session = parts.headers.contains_key(super::sessions::SESSION_ID);
        let RequestContext { ct: left, id, meta, peer, .. } = context;
        Ok(Self { api, identity, headers: parts.headers, body, id, meta, peer, left, speaks_tasks, in_session })
    }

    /// Counts the answer to a call, which cannot be refused any more, as long as it is kept.
    pub(super) fn count_answer(&self, answer: &impl Serialize) {
        if self.in_session && self.body.hold_answer(size(answer)) {
            self.keep_body();
        }
    }

    /// Reserves the memory of an answer that only reads, as long as it is kept.
    pub(super) fn reserve_answer(&self, answer: &impl Serialize) -> Result<(), ErrorData> {
        self.body.reserve_answer(size(answer)).map_err(|error| protocol_error(&error))?;
        if self.in_session {
            self.keep_body();
        }
        Ok(())
    }

    /// The SDK keeps the answers of a session for a while, for clients whose stream was cut. Their memory is counted that long.
    fn keep_body(&self) {
        let body = self.body.clone();
        self.api.app.tasks.spawn(async move {
            tokio::time::sleep(RESUME_WINDOW).await;
            drop(body);
        });
    }

    /// A text in the `_meta` of the message.
    pub(super) fn meta_text(&self, key: &str) -> Result<Option<&str>, ApiError> {
        match self.meta.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::invalid(format!("_meta[\"{key}\"] takes a text."))),
        }
    }
}

fn size(answer: &impl Serialize) -> usize {
    serde_json::to_vec(answer).map_or(0, |text| text.len())
}

/// An error of the API as an error of the protocol.
pub(super) fn protocol_error(error: &ApiError) -> ErrorData {
    let code = match error.status().as_u16() {
        404 => ErrorCode::RESOURCE_NOT_FOUND,
        500.. => ErrorCode::INTERNAL_ERROR,
        _ => ErrorCode::INVALID_REQUEST,
    };
    ErrorData::new(code, error.message().to_owned(), error_fields(error).get_mut("error").map(Value::take))
}

/// `{"error": {type, code, message, …}}`, as on every other route.
pub(super) fn error_fields(error: &ApiError) -> Value {
    let mut body: Value = serde_json::from_slice(&error.body("")).unwrap_or_default();
    if let Some(fields) = body.get_mut("error").and_then(Value::as_object_mut) {
        // The header of the response has it.
        fields.shift_remove("request_id");
    }
    body
}
