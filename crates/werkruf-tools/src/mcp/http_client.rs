//! The requests of the streamable HTTP transport, with bounds: the SDK's own client reads a JSON answer of any length.
//!
//! Every answer and every event has a largest size, and a stream that sends faster than any honest server ends.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::common::http_header::{EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use werkruf_contract::Deadline;

use super::bearer::Bearer;

/// What surrounds a result in its answer.
const ENVELOPE_BYTES: usize = 64 * 1024;
/// Most bytes of an error answer that are read.
const ERROR_BYTES: usize = 16 * 1024;
/// More events in a second are a flood.
const EVENTS_PER_SECOND: u32 = 2_000;

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFault {
    #[error("the answer is longer than allowed")]
    TooLarge,
    #[error("the server sends too many events")]
    Flood,
    /// Nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    #[error("the connection was lost: {0}")]
    Lost(String),
}

type Fault = StreamableHttpError<HttpFault>;

/// A client for one server.
#[derive(Clone)]
pub(super) struct BoundedHttp {
    client: Client,
    headers: HeaderMap,
    /// The credential of one person.
    bearer: Option<Arc<Bearer>>,
    max_bytes: usize,
}

impl BoundedHttp {
    pub(super) fn new(client: Client, headers: HeaderMap, max_response_bytes: u64) -> Self {
        let max_bytes = usize::try_from(max_response_bytes).unwrap_or(usize::MAX).saturating_add(ENVELOPE_BYTES);
        Self { client, headers, bearer: None, max_bytes }
    }

    /// The same client with the credential of a person.
    pub(super) fn with_bearer(self, bearer: Arc<Bearer>) -> Self {
        Self { bearer: Some(bearer), ..self }
    }

    async fn send(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, Fault> {
        let mut request = request.header(ACCEPT, format!("{JSON_MIME_TYPE}, {EVENT_STREAM_MIME_TYPE}")).headers(self.headers.clone());
        request = request.headers(headers.into_iter().collect());
        if let Some(token) = token.or_else(|| self.bearer.as_ref().map(|bearer| bearer.token())) {
            request = request.bearer_auth(token);
        }
        if let Some(session) = session {
            request = request.header(HEADER_SESSION_ID, session);
        }
        let response = request.send().await.map_err(|error| Fault::Client(sending_fault(&error)))?;
        let refused = refused(&response);
        if let (Some(Fault::AuthRequired(_) | Fault::InsufficientScope(_)), Some(bearer)) = (&refused, &self.bearer) {
            bearer.note_refusal(&response);
        }
        refused.map_or(Ok(response), Err)
    }

    async fn body(&self, mut response: Response, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        if response.content_length().is_some_and(|length| length > max_bytes as u64) {
            return Err(Fault::Client(HttpFault::TooLarge));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| Fault::Client(HttpFault::Lost(werkruf_llm::cause(&error))))? {
            if body.len() + chunk.len() > max_bytes {
                return Err(Fault::Client(HttpFault::TooLarge));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        SseStream::from_bytes_stream(bounded(response.bytes_stream(), self.max_bytes)).boxed()
    }

    async fn answer(
        &self,
        message: &ClientJsonRpcMessage,
        response: Response,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(Fault::SessionExpired);
        }
        let awaits_answer = matches!(message, JsonRpcMessage::Request(_));
        let kind = content_type(&response);
        let session = response.headers().get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            let body = self.body(response, ERROR_BYTES).await.unwrap_or_default();
            return error_answer(message, in_session, status, &body)
                .ok_or_else(|| Fault::UnexpectedServerResponse(Cow::Owned(format!("status {status}"))));
        }
        if kind.starts_with(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let body = self.body(response, self.max_bytes).await?;
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(parsed) => Ok(StreamableHttpPostResponse::Json(known_protocol(message, parsed), session)),
            Err(_) if !awaits_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(_) if !kind.starts_with(JSON_MIME_TYPE) => Err(Fault::UnexpectedContentType(Some(kind))),
            Err(error) => Err(Fault::Deserialize(error)),
        }
    }
}

impl StreamableHttpClient for BoundedHttp {
    type Error = HttpFault;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let request = self.client.post(uri.as_ref()).json(&message);
        let response = self.send(request, session_id.as_deref(), auth_header, custom_headers).await?;
        self.answer(&message, response, session_id.is_some()).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Fault> {
        // A server need not support it; the session then ends by itself.
        self.send(self.client.delete(uri.as_ref()), Some(&session_id), auth_header, custom_headers).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Fault> {
        let mut request = self.client.get(uri.as_ref());
        if let Some(last) = last_event_id {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let response = self.send(request, session_id.as_deref(), auth_header, custom_headers).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Err(Fault::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(Fault::UnexpectedServerResponse(Cow::Owned(format!("status {status}")))),
            _ if !content_type(&response).starts_with(EVENT_STREAM_MIME_TYPE) => {
                Err(Fault::UnexpectedContentType(Some(content_type(&response))))
            }
            _ => Ok(self.events(response)),
        }
    }
}

fn content_type(response: &Response) -> String {
    response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase()
}

fn sending_fault(error: &reqwest::Error) -> HttpFault {
    let cause = werkruf_llm::cause(error);
    if error.is_connect() || error.is_builder() { HttpFault::Connect(cause) } else { HttpFault::Lost(cause) }
}

/// A refusal that is known from the head alone.
fn refused(response: &Response) -> Option<Fault> {
    let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    match response.status() {
        StatusCode::UNAUTHORIZED => Some(Fault::AuthRequired(AuthRequiredError::new(header(WWW_AUTHENTICATE).unwrap_or_default()))),
        StatusCode::FORBIDDEN => {
            Some(Fault::InsufficientScope(InsufficientScopeError::new(header(WWW_AUTHENTICATE).unwrap_or_default(), None)))
        }
        status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            Some(Fault::HttpStatus(HttpStatusError::new(status.as_u16(), header(RETRY_AFTER))))
        }
        _ => None,
    }
}

/// The JSON-RPC error in an answer with a status of 4xx. A server of the older protocol refuses the question for its protocol that way, with or
/// without a body of its own, and with an id that need not be ours.
fn error_answer(message: &ClientJsonRpcMessage, in_session: bool, status: StatusCode, body: &[u8]) -> Option<StreamableHttpPostResponse> {
    let parsed = serde_json::from_slice::<ServerJsonRpcMessage>(body).ok();
    let JsonRpcMessage::Request(request) = message else { return None };
    let discovers = matches!(request.request, ClientRequest::DiscoverRequest(_)) && !in_session;
    let error = match parsed {
        Some(JsonRpcMessage::Error(error)) if discovers => error.error,
        Some(whole @ JsonRpcMessage::Error(_)) => return Some(StreamableHttpPostResponse::Json(whole, None)),
        _ if discovers && status.is_client_error() => ErrorData::invalid_request(format!("refused with status {status}"), None),
        _ => return None,
    };
    Some(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, Some(request.id.clone())), None))
}

/// Some servers of the older protocol answer every question that they do not know with an empty result. That is a refusal of the question for the
/// protocol, and the client then speaks the older one.
fn known_protocol(message: &ClientJsonRpcMessage, answer: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    let JsonRpcMessage::Request(request) = message else { return answer };
    let says_nothing = matches!(&answer, JsonRpcMessage::Response(response) if !matches!(response.result, ServerResult::DiscoverResult(_)));
    if says_nothing && matches!(request.request, ClientRequest::DiscoverRequest(_)) {
        let error = ErrorData::invalid_request("the answer names no protocol version", None);
        return ServerJsonRpcMessage::error(error, Some(request.id.clone()));
    }
    answer
}

/// The bytes of a stream, until an event is too long or too many events come.
fn bounded(
    bytes: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static,
    max_bytes: usize,
) -> impl Stream<Item = Result<Bytes, HttpFault>> + Send + 'static {
    let mut meter = EventMeter::new(max_bytes);
    let mut failed = false;
    bytes
        .map(move |chunk| match chunk {
            Ok(chunk) => meter.take(&chunk).map(|()| chunk),
            Err(error) => Err(HttpFault::Lost(werkruf_llm::cause(&error))),
        })
        .take_while(move |item| {
            // The error itself is passed on, and nothing after it.
            let goes_on = !failed;
            failed |= item.is_err();
            std::future::ready(goes_on)
        })
}

/// Measures the events in a stream of bytes. An empty line ends an event.
struct EventMeter {
    max_bytes: usize,
    bytes: usize,
    at_line_start: bool,
    events: u32,
    second: Deadline,
}

impl EventMeter {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: 0, at_line_start: true, events: 0, second: Deadline::after(Duration::from_secs(1)) }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), HttpFault> {
        for byte in chunk {
            self.bytes += 1;
            match byte {
                b'\n' if self.at_line_start => {
                    self.bytes = 0;
                    self.events += 1;
                }
                b'\n' => self.at_line_start = true,
                b'\r' => {}
                _ => self.at_line_start = false,
            }
            if self.bytes > self.max_bytes {
                return Err(HttpFault::TooLarge);
            }
        }
        if self.second.passed() {
            self.second = Deadline::after(Duration::from_secs(1));
            self.events = 0;
        }
        if self.events > EVENTS_PER_SECOND { Err(HttpFault::Flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS_PER_SECOND, EventMeter, HttpFault};

    #[test]
    fn an_event_and_a_second_have_bounds() {
        let mut meter = EventMeter::new(16);
        for chunk in [&b"data: 12345\r\n\r\n"[..], b"data: 6", b"7\n\ndata: 8\n\n"] {
            meter.take(chunk).unwrap();
        }
        assert!(matches!(meter.take(&[b'x'; 17]), Err(HttpFault::TooLarge)));
        let flood = b"data: 1\n\n".repeat(EVENTS_PER_SECOND as usize + 1);
        assert!(matches!(EventMeter::new(16).take(&flood), Err(HttpFault::Flood)));
    }
}
