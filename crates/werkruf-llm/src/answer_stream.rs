//! The deltas of one answer, with the id that the provider gave the request.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt};
use reqwest::header::HeaderMap;

use crate::{Delta, ModelError};

/// The most characters of a request id that are kept.
const MAX_ID_CHARS: usize = 200;

/// The deltas of one answer. The last item is `Delta::Done` or an error.
pub struct AnswerStream {
    request_id: Option<String>,
    deltas: BoxStream<'static, Result<Delta, ModelError>>,
}

impl AnswerStream {
    pub fn new(deltas: impl Stream<Item = Result<Delta, ModelError>> + Send + 'static) -> Self {
        Self { request_id: None, deltas: deltas.boxed() }
    }

    pub(crate) fn with_request_id(self, request_id: Option<String>) -> Self {
        Self { request_id, ..self }
    }

    /// The id of the request, where the head of the response has one.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

impl std::fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerStream").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

impl Stream for AnswerStream {
    type Item = Result<Delta, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deltas.poll_next_unpin(context)
    }
}

/// The id that the provider gave a request, from the head of its response.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?.trim();
    (!id.is_empty()).then(|| id.chars().take(MAX_ID_CHARS).collect())
}
