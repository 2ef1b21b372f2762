//! Reads requests: bodies, query and path parameters, and the idempotency key.

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use werkruf_runtime::Idempotency;

use super::error::ApiError;
use crate::listen::SlowBody;

const BODY_LIMIT: usize = 1024 * 1024;
/// How much of a body beyond the limit is read and dropped: a client that is still writing cannot read the error response.
const DRAIN_LIMIT: usize = 16 * 1024 * 1024;
const KEY_LIMIT: usize = 255;

/// Reads the whole body, up to 1 MiB.
pub(crate) async fn bytes(body: Body) -> Result<Bytes, ApiError> {
    read_up_to(body, BODY_LIMIT).await?.ok_or_else(|| ApiError::invalid("The body is larger than 1 MiB; send less."))
}

/// Reads the whole body, up to this many bytes.
pub(crate) async fn bytes_up_to(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("The body is larger than {} MiB; send less.", limit >> 20);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    read_up_to(body, limit).await?.ok_or_else(too_large)
}

/// Reads the body; `None` if it is larger than the limit.
async fn read_up_to(body: Body, limit: usize) -> Result<Option<Bytes>, ApiError> {
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
        if received > limit {
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
    Ok(Some(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() }))
}

fn read_error(error: &axum::Error) -> ApiError {
    if SlowBody::caused(error) {
        return ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The body did not arrive in time; send it again.");
    }
    ApiError::invalid("The body ended early; send it again.")
}

/// Parses a body as JSON.
pub(crate) fn json<T: DeserializeOwned>(raw: &[u8]) -> Result<T, ApiError> {
    if raw.is_empty() {
        return Err(ApiError::invalid("The body is empty; send a JSON object."));
    }
    serde_json::from_slice(raw).map_err(|error| {
        let message = if error.is_data() {
            format!("The body does not have the right fields: {error}.")
        } else {
            format!("The body is not JSON: {error}.")
        };
        ApiError::invalid(message)
    })
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

/// The header `Idempotency-Key` with a digest of the request. The digest contains `route`, so the same key may be used on two routes.
pub(crate) fn idempotency(headers: &HeaderMap, route: &str, raw: &[u8]) -> Result<Option<Idempotency>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if key.trim().is_empty() || key.len() > KEY_LIMIT {
        return Err(ApiError::invalid("Idempotency-Key takes 1 to 255 ASCII characters."));
    }
    let mut digest = Sha256::new();
    digest.update(route.as_bytes());
    digest.update(raw);
    Ok(Some(Idempotency { key: key.to_owned(), fingerprint: werkruf_contract::hex(&digest.finalize()) }))
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
    use axum::body::Body;
    use http::{HeaderMap, HeaderValue};

    use super::{accepts, bytes, idempotency};

    #[tokio::test]
    async fn a_body_in_chunks_is_joined_and_bounded() {
        let chunked =
            |parts: Vec<&'static str>| Body::from_stream(futures_util::stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>)));
        assert_eq!(bytes(chunked(vec!["one", " ", "two"])).await.ok().as_deref(), Some(&b"one two"[..]));
        assert_eq!(bytes(Body::empty()).await.ok().as_deref(), Some(&b""[..]));
        assert!(bytes(Body::from(vec![b'x'; 1024 * 1024])).await.is_ok());
        assert!(bytes(Body::from(vec![b'x'; 1024 * 1024 + 1])).await.is_err());
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
