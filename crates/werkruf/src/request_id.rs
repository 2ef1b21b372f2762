//! The id of a request, in the header `X-Request-Id`.

use http::{HeaderMap, HeaderName};
use uuid::Builder;

/// Echoed if [`sane`] accepts it, otherwise generated.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// A request id a client may choose: short, printable, harmless in a log line.
pub(crate) fn sane(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(&HEADER)?.to_str().ok()?;
    let harmless = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/=+".contains(&byte));
    (harmless && (1..=128).contains(&text.len())).then_some(text)
}

/// The id that the client chose, or a new one.
pub(crate) fn of(headers: &HeaderMap) -> String {
    sane(headers).map_or_else(|| Builder::from_random_bytes(rand::random()).into_uuid().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_harmless_request_ids_are_echoed() {
        let mut headers = HeaderMap::new();
        assert_eq!(sane(&headers), None);
        headers.insert(HEADER, HeaderValue::from_static("req-1.a"));
        assert_eq!(sane(&headers), Some("req-1.a"));
        for bad in ["", "a b", "<x>", &"x".repeat(129)] {
            headers.insert(HEADER, HeaderValue::from_str(bad).unwrap());
            assert_eq!(sane(&headers), None, "{bad}");
        }
    }
}
