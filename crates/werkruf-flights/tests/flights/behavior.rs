//! How a provider stub responds: normally, or with a fault.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;

/// The behavior of one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    Normal,
    /// Never responds.
    Hangs,
    /// Sends the head and half of the body, then hangs.
    HangsMidBody,
    /// Sends half of the body, then closes the connection.
    Truncated,
    Status(u16),
    /// An HTML maintenance page with status 200.
    Html,
    /// Truncated JSON with a correct length.
    InvalidJson,
    BadGzip,
    /// Valid JSON with other fields.
    OtherShape,
    /// A plain-text refusal of the key.
    BadKey,
    /// Status 429 with `Retry-After` in seconds.
    RateLimited(u32),
    /// Status 429 without `Retry-After`: the daily quota is used up.
    QuotaExhausted,
    /// A normal response after this many milliseconds.
    Delayed(u64),
}

impl Behavior {
    pub const ALL: [Self; 14] = [
        Self::Normal,
        Self::Hangs,
        Self::HangsMidBody,
        Self::Truncated,
        Self::Status(500),
        Self::Status(503),
        Self::Status(404),
        Self::Html,
        Self::InvalidJson,
        Self::BadGzip,
        Self::OtherShape,
        Self::BadKey,
        Self::RateLimited(7),
        Self::Delayed(20),
    ];

    /// The response for this behavior, with this body if the behavior allows it.
    pub async fn answer(self, body: String, headers: &[(&'static str, String)]) -> Response<Body> {
        let builder = |status: u16, kind: &str| {
            let start = Response::builder().status(status).header("content-type", kind);
            headers.iter().fold(start, |builder, (name, value)| builder.header(*name, value))
        };
        let half = body.len() / 2;
        let start = body.as_bytes()[..half].to_vec();
        let json = "application/json";
        match self {
            Self::Normal => return builder(200, json).header("content-encoding", "gzip").body(Body::from(gzipped(&body))).unwrap(),
            Self::Delayed(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                return builder(200, json).header("content-encoding", "gzip").body(Body::from(gzipped(&body))).unwrap();
            }
            Self::Hangs => std::future::pending().await,
            Self::HangsMidBody => {
                use futures_util::StreamExt;
                let chunks = stream::iter([Ok::<_, Infallible>(start)]).chain(stream::pending());
                builder(200, json).body(Body::from_stream(chunks))
            }
            Self::Truncated => {
                let chunks = stream::iter([Ok(start), Err(std::io::Error::other("cut"))]);
                builder(200, json).body(Body::from_stream(chunks))
            }
            Self::Status(status) => {
                builder(status, json).body(Body::from(r#"{"errors":[{"status":500,"code":38189,"title":"Internal error"}]}"#))
            }
            Self::Html => builder(200, "text/html").body(Body::from("<html>maintenance</html>")),
            Self::InvalidJson => builder(200, json).body(Body::from(start)),
            Self::BadGzip => builder(200, json).header("content-encoding", "gzip").body(Body::from("this is no gzip")),
            Self::OtherShape => builder(200, json).body(Body::from(r#"{"success": false, "error": "unsupported"}"#)),
            Self::BadKey => builder(401, "text/plain").body(Body::from("bad_partner_key")),
            Self::RateLimited(seconds) => {
                builder(429, "text/plain").header("retry-after", seconds.to_string()).body(Body::from("rate limited"))
            }
            Self::QuotaExhausted => builder(429, "text/plain").body(Body::from("rate limited")),
        }
        .unwrap()
    }
}

fn gzipped(body: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(body.as_bytes()).unwrap();
    packed.finish().unwrap()
}
