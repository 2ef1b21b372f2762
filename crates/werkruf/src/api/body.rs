//! Reads requests: bodies, query and path parameters, and the idempotency key.

use std::any::Any;
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use werkruf_contract::{MAX_JSON_VALUES, count_json_values};
use werkruf_runtime::Idempotency;

use super::ApiState;
use super::byte_budget::Reservation;
use super::error::ApiError;
use super::gzip::{self, Coding, GzipReader, GzipRefusal};
use super::json_values::RawFields;
use crate::listen::SlowBody;

/// The largest body of most routes.
pub(crate) const BODY_LIMIT: usize = 1024 * 1024;
/// How much of a body beyond the limit is read and dropped: a client that is still writing cannot read the error response.
const DRAIN_LIMIT: usize = 16 * 1024 * 1024;
pub(crate) const KEY_LIMIT: usize = 255;

/// The body of a request that was not read yet, with the request's reservation of memory.
pub(crate) struct RequestBody {
    body: Body,
    coding: Coding,
    reservation: Arc<Reservation>,
}

impl FromRequest<Arc<ApiState>> for RequestBody {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, api: &Arc<ApiState>) -> Result<Self, Infallible> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let reservation = reservation.unwrap_or_else(|| Arc::new(Reservation::of_request(api, &request)));
        Ok(Self { coding: Coding::of(request.headers()), body: request.into_body(), reservation })
    }
}

/// The bytes of a body, with the request's reservation of memory.
#[derive(Clone)]
pub(crate) struct RawBody {
    bytes: Bytes,
    reservation: Arc<Reservation>,
}

impl RawBody {
    pub(super) const fn new(bytes: Bytes, reservation: Arc<Reservation>) -> Self {
        Self { bytes, reservation }
    }

    /// The bytes, which share their memory with this body.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The reservation, for work that keeps the content longer than the request lasts.
    pub(crate) fn held(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.reservation) as _
    }

    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let budget = Arc::new(super::byte_budget::ByteBudget::new(0));
        let owner = super::byte_budget::Owner::Operator;
        Self { bytes: Bytes::new(), reservation: Arc::new(Reservation::new(budget, owner)) }
    }

    /// Reserves the memory of all values of this body, however many they are, once it is known whom the body is from.
    pub(crate) fn reserve_all_values(&self) -> Result<(), ApiError> {
        self.reservation.trusted(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX))?;
        self.reservation.values(count_json_values(&self.bytes))
    }

    /// Reserves the memory of the values that the Model Context Protocol parses from this body.
    pub(crate) fn reserve_json(&self) -> Result<(), ApiError> {
        self.reserve_values(count_json_values(&self.bytes))
    }

    /// Reserves the memory of an answer of this many bytes.
    pub(crate) fn reserve_answer(&self, bytes: usize) -> Result<(), ApiError> {
        self.reservation.answer(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Counts the memory of an answer that cannot be refused any more; false if it is too small to count.
    pub(crate) fn hold_answer(&self, bytes: usize) -> bool {
        self.reservation.finished_answer(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Reserves the memory of values that are parsed from this body.
    fn reserve_values(&self, count: u64) -> Result<(), ApiError> {
        if count > MAX_JSON_VALUES {
            return Err(ApiError::invalid(format!("The body has more than {MAX_JSON_VALUES} values; send it in parts.")));
        }
        self.reservation.values(count)
    }
}

impl Deref for RawBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the whole body, up to 1 MiB.
pub(crate) async fn bytes(body: RequestBody) -> Result<RawBody, ApiError> {
    read_up_to(body, BODY_LIMIT).await?.ok_or_else(|| ApiError::invalid("The body is larger than 1 MiB; send less."))
}

/// Reads the whole body, up to this many bytes.
pub(crate) async fn bytes_up_to(body: RequestBody, limit: usize) -> Result<RawBody, ApiError> {
    let too_large = || {
        let message = format!("The body is larger than {} MiB; send less.", limit >> 20);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    read_up_to(body, limit).await?.ok_or_else(too_large)
}

/// Reads the body; `None` if it is larger than the limit. What it takes is reserved as it arrives: a declared length is only a word.
/// A body that is refused is read on and dropped, without a reservation, so that the client can read the error response.
async fn read_up_to(RequestBody { body, coding, reservation }: RequestBody, limit: usize) -> Result<Option<RawBody>, ApiError> {
    match coding {
        Coding::Plain => read_plain(body, reservation, limit).await,
        Coding::Gzip => read_gzip(body, reservation, limit).await,
        Coding::Unknown => Err(gzip::unsupported()),
    }
}

/// Reads a compressed body. The limit holds for what arrives and for what it becomes.
async fn read_gzip(body: Body, reservation: Arc<Reservation>, limit: usize) -> Result<Option<RawBody>, ApiError> {
    let mut reader = Ok(GzipReader::new(limit, Arc::clone(&reservation)));
    let mut chunks = body.into_data_stream();
    let mut received = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| read_error(&error))?;
        received += chunk.len();
        if received > limit.saturating_add(DRAIN_LIMIT) {
            break;
        }
        let Ok(inflater) = &mut reader else { continue };
        let pushed = if received > limit { Err(GzipRefusal::TooLarge) } else { inflater.push(&chunk) };
        if let Err(refusal) = pushed {
            reader = Err(refusal);
            reservation.release();
        }
    }
    match reader.and_then(GzipReader::finish) {
        Ok(bytes) => Ok(Some(RawBody { bytes, reservation })),
        Err(GzipRefusal::TooLarge) => Ok(None),
        Err(GzipRefusal::Refused(error)) => Err(error),
    }
}

async fn read_plain(body: Body, reservation: Arc<Reservation>, limit: usize) -> Result<Option<RawBody>, ApiError> {
    let mut reserved = Ok(());
    let mut chunks = body.into_data_stream();
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut received = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| read_error(&error))?;
        received += chunk.len();
        if received > limit.saturating_add(DRAIN_LIMIT) {
            break;
        }
        if reserved.is_ok() && received <= limit {
            reserved = reservation.body(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        }
        if received > limit || reserved.is_err() {
            (first, rest) = (None, BytesMut::new());
            reservation.release();
            continue;
        }
        match &first {
            None => first = Some(chunk),
            Some(start) => {
                if rest.is_empty() {
                    rest.extend_from_slice(start);
                }
                rest.extend_from_slice(&chunk);
            }
        }
    }
    if received > limit {
        return Ok(None);
    }
    reserved?;
    let bytes = if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() };
    Ok(Some(RawBody { bytes, reservation }))
}

fn read_error(error: &axum::Error) -> ApiError {
    if SlowBody::caused(error) {
        return ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The body did not arrive in time; send it again.");
    }
    ApiError::invalid("The body ended early; send it again.")
}

/// Parses a body as JSON. Fields that the type does not have are skipped.
pub(crate) fn json<T: DeserializeOwned>(raw: &[u8]) -> Result<T, ApiError> {
    if raw.is_empty() {
        return Err(ApiError::invalid("The body is empty; send a JSON object."));
    }
    // Derived types would take the elements of a list as their fields.
    if raw.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("The body is a list; send a JSON object."));
    }
    serde_json::from_slice(raw).map_err(|error| not_json(&error))
}

/// Parses a body as JSON into a type that keeps values as the client sent them.
pub(crate) fn json_with_values<T: DeserializeOwned>(raw: &RawBody) -> Result<T, ApiError> {
    raw.reserve_values(count_json_values(raw))?;
    json(raw)
}

/// A longer body is parsed on a thread of low priority.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Parses a body that may be long, with the priority of an ingest: searches do not wait for it.
pub(crate) async fn parse_long<T: Send + 'static>(
    raw: RawBody,
    parse: impl FnOnce(&RawBody) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if raw.len() <= MAX_INLINE_BYTES { parse(&raw) } else { werkruf_knowledge::compute(move || parse(&raw)).await? }
}

/// Runs work on a blocking thread: reading a large body would delay other requests.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "the task that reads a body panicked or was aborted");
        ApiError::internal()
    })
}

/// The fields of a body that have one of these names. `admitted` is asked before values are built.
pub(crate) fn json_fields(
    raw: &RawBody,
    names: &'static [&'static str],
    admitted: impl FnOnce(&RawFields<'_>) -> Result<(), ApiError>,
) -> Result<Map<String, Value>, ApiError> {
    if raw.is_empty() {
        return Err(ApiError::invalid("The body is empty; send a JSON object."));
    }
    let fields = RawFields::read(raw, names).map_err(|error| not_json(&error))?;
    admitted(&fields)?;
    raw.reserve_values(fields.count())?;
    fields.build().map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> ApiError {
    let message = if error.is_data() {
        format!("The body does not have the right fields: {error}.")
    } else {
        format!("The body is not JSON: {error}.")
    };
    ApiError::invalid(message)
}

/// Query parameters. Unlike axum's `Query`, it rejects with an [`ApiError`].
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Query(params) = Query::<T>::try_from_uri(&parts.uri)
            .map_err(|error| ApiError::invalid(format!("The query parameters cannot be read: {}.", error.body_text())))?;
        Ok(Self(params))
    }
}

/// The only parameter of a path: an id or a tool name.
pub(crate) struct PathParam(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::invalid("The path is not UTF-8; encode it again."))?;
        Ok(Self(name))
    }
}

/// Whether the request has an idempotency key, readable or not.
pub(crate) fn has_idempotency_key(headers: &HeaderMap) -> bool {
    headers.contains_key("idempotency-key")
}

/// The header `Idempotency-Key` of a request to this route, with a digest of the body.
pub(crate) fn idempotency(headers: &HeaderMap, route: &str, raw: &[u8]) -> Result<Option<Idempotency>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if key.trim().is_empty() || key.len() > KEY_LIMIT {
        return Err(ApiError::invalid("Idempotency-Key takes 1 to 255 ASCII characters."));
    }
    Ok(Some(Idempotency { route: route.to_owned(), key: key.to_owned(), fingerprint: werkruf_contract::hex(&Sha256::digest(raw)) }))
}

/// Whether the header `Accept` names this media type.
pub(crate) fn accepts(headers: &HeaderMap, mime: &str) -> bool {
    headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(mime)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use http::{HeaderMap, HeaderValue};

    use super::{ApiError, Coding, RawBody, RequestBody, accepts, idempotency};
    use crate::api::byte_budget::{ByteBudget, Owner, Reservation};

    fn unread(body: Body, budget: u64) -> RequestBody {
        let owner = Owner::Key(werkruf_contract::Uuid::nil());
        RequestBody { body, coding: Coding::Plain, reservation: Arc::new(Reservation::new(Arc::new(ByteBudget::new(budget)), owner)) }
    }

    async fn bytes(body: Body) -> Result<RawBody, ApiError> {
        super::bytes(unread(body, u64::MAX)).await
    }

    #[tokio::test]
    async fn a_body_in_chunks_is_joined_and_bounded() {
        let chunked =
            |parts: Vec<&'static str>| Body::from_stream(futures_util::stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>)));
        assert_eq!(bytes(chunked(vec!["one", " ", "two"])).await.ok().as_deref(), Some(&b"one two"[..]));
        assert_eq!(bytes(Body::empty()).await.ok().as_deref(), Some(&b""[..]));
        assert!(bytes(Body::from(vec![b'x'; 1024 * 1024])).await.is_ok());
        assert!(bytes(Body::from(vec![b'x'; 1024 * 1024 + 1])).await.is_err());
    }

    #[tokio::test]
    async fn a_body_without_a_reservation_is_refused() {
        let chunks = || futures_util::stream::iter([b"abc", b"def"].map(|chunk| Ok::<_, std::io::Error>(&chunk[..])));
        for body in [Body::from("abcdef"), Body::from_stream(chunks())] {
            let error = super::bytes(unread(body, 12)).await.err().unwrap();
            assert_eq!((error.status().as_u16(), error.code()), (503, "memory_busy"));
        }
        assert!(super::bytes(unread(Body::from_stream(chunks()), 24)).await.is_ok());
    }

    #[test]
    fn a_key_has_a_limit_and_a_digest_of_the_body() {
        let mut headers = HeaderMap::new();
        assert_eq!(idempotency(&headers, "", b"{}").ok(), Some(None));
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        let found = idempotency(&headers, "", b"{}").ok().flatten().unwrap();
        assert_eq!(found.fingerprint, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        for bad in [String::new(), "x".repeat(256)] {
            headers.insert("idempotency-key", HeaderValue::from_str(&bad).unwrap());
            assert!(idempotency(&headers, "", b"{}").is_err());
        }
    }

    #[test]
    fn accept_lists_several_types() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("text/html, Application/JSON;q=0.9"));
        assert!(accepts(&headers, "application/json"));
        assert!(!accepts(&headers, "text/event-stream"));
    }
}
