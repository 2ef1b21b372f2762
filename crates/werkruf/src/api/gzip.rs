//! gzip: JSON answers of more than 1 KiB are compressed for clients that accept it, and request bodies may be compressed.
//!
//! Invariants: event streams are never compressed, because an event must not wait in a compressor. What a compressed body becomes is
//! bounded while it is decompressed.

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use futures_util::stream::once;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use hyper::body::{Frame, SizeHint};

use super::byte_budget::Reservation;
use super::error::ApiError;

/// Smaller answers are sent as they are.
const MIN_BYTES: u64 = 1024;
/// Larger answers are compressed on a thread for blocking work, so that other requests go on meanwhile.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// The layer that compresses answers. It is outside of `envelope`, which writes the bodies of errors.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let wanted = request.method() != Method::HEAD && accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    if !is_compressible(&response) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    if !wanted {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    match compressed(&mut body).await {
        Ok(bytes) => {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, Body::new(CompressedBody { bytes: Some(bytes), _plain: body }))
        }
        // The head promises a body, and there is none: the connection ends, as it would without compression.
        Err(error) => Response::from_parts(parts, Body::from_stream(once(async { Err::<Bytes, _>(error) }))),
    }
}

fn is_compressible(response: &Response) -> bool {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    is_json
        && !response.headers().contains_key(CONTENT_ENCODING)
        && response.body().size_hint().exact().is_some_and(|size| size > MIN_BYTES)
}

/// Whether the header `Accept-Encoding` allows gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = false;
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for coding in values.flat_map(|value| value.split(',')) {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
        let allowed = weight.is_none_or(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0));
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => return allowed,
            "*" => any = allowed,
            _ => {}
        }
    }
    any
}

/// Reads a body to its end and compresses it.
async fn compressed(body: &mut Body) -> Result<Bytes, axum::Error> {
    let mut plain = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            plain.extend_from_slice(&data);
        }
    }
    if plain.len() <= MAX_INLINE_BYTES {
        return gzip(&plain).map_err(axum::Error::new);
    }
    let work = tokio::task::spawn_blocking(move || gzip(&plain));
    work.await.map_err(axum::Error::new)?.map_err(axum::Error::new)
}

fn gzip(plain: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish().map(Bytes::from)
}

/// A compressed body. It keeps the body that it was made of, because that one holds the request's reservation of memory.
struct CompressedBody {
    bytes: Option<Bytes>,
    _plain: Body,
}

impl HttpBody for CompressedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// How the body of a request is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
    Unknown,
}

impl Coding {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Plain,
            (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Self::Plain,
            (Some(value), None) if [&b"gzip"[..], b"x-gzip"].iter().any(|name| value.as_bytes().eq_ignore_ascii_case(name)) => Self::Gzip,
            _ => Self::Unknown,
        }
    }
}

/// 415: the body is coded in a way that the server does not read.
pub(super) fn unsupported() -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_encoding",
        "The server reads bodies that are plain or gzip; send one of these.",
    )
}

/// A compressed body while it arrives. It never holds more than its limit, and every byte is reserved before it is kept.
pub(super) struct GzipReader(GzDecoder<BoundedBytes>);

struct BoundedBytes {
    bytes: BytesMut,
    limit: usize,
    reservation: Arc<Reservation>,
    refusal: Option<GzipRefusal>,
}

/// Why a compressed body is not read on.
pub(super) enum GzipRefusal {
    TooLarge,
    Refused(ApiError),
}

impl GzipReader {
    pub(super) fn new(limit: usize, reservation: Arc<Reservation>) -> Self {
        Self(GzDecoder::new(BoundedBytes { bytes: BytesMut::new(), limit, reservation, refusal: None }))
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), GzipRefusal> {
        self.0.write_all(chunk).map_err(|_| self.refusal())
    }

    pub(super) fn finish(mut self) -> Result<Bytes, GzipRefusal> {
        self.0.try_finish().map_err(|_| self.refusal())?;
        Ok(std::mem::take(&mut self.0.get_mut().bytes).freeze())
    }

    fn refusal(&mut self) -> GzipRefusal {
        let invalid = || GzipRefusal::Refused(ApiError::invalid("The body is not valid gzip; compress it again."));
        self.0.get_mut().refusal.take().unwrap_or_else(invalid)
    }
}

impl Write for BoundedBytes {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let refusal = if self.bytes.len() + part.len() > self.limit {
            GzipRefusal::TooLarge
        } else if let Err(error) = self.reservation.body(u64::try_from(part.len()).unwrap_or(u64::MAX)) {
            GzipRefusal::Refused(error)
        } else {
            self.bytes.extend_from_slice(part);
            return Ok(part.len());
        };
        self.refusal = Some(refusal);
        Err(io::ErrorKind::OutOfMemory.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

    use super::{Coding, accepts_gzip};

    #[test]
    fn gzip_is_used_only_where_it_is_accepted() {
        let accepts = |value: &'static str| accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]));
        assert!(!accepts_gzip(&HeaderMap::new()));
        for yes in ["gzip", "br, GZip;q=0.5", "*", "identity;q=0, x-gzip", "deflate, gzip, zstd"] {
            assert!(accepts(yes), "{yes}");
        }
        for no in ["", "identity", "br", "gzip;q=0", "gzip; q=0.000, *", "*;q=0"] {
            assert!(!accepts(no), "{no}");
        }
    }

    #[test]
    fn other_codings_are_recognized() {
        let coding = |value: &'static str| Coding::of(&HeaderMap::from_iter([(CONTENT_ENCODING, value.parse().unwrap())]));
        assert_eq!(Coding::of(&HeaderMap::new()), Coding::Plain);
        assert_eq!(
            [coding("identity"), coding("GZIP"), coding("gzip, gzip"), coding("br")],
            [Coding::Plain, Coding::Gzip, Coding::Unknown, Coding::Unknown]
        );
    }
}
