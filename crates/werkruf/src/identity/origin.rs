//! Whether a request comes from a page of this server. A browser sends the cookie of a session by itself, so a cookie alone does not show
//! that the person wants the request.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method, Uri};

use crate::api::ApiError;
use crate::config::Config;

/// What of a request decides who sent it.
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
}

impl RequestHead<'_> {
    fn changes_something(&self) -> bool {
        !matches!(*self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    /// The name and port that the client asked for.
    pub(crate) fn host(&self) -> Option<&str> {
        let named = self.headers.get(HOST).and_then(|host| host.to_str().ok());
        named.or_else(|| self.uri.authority().map(http::uri::Authority::as_str))
    }
}

/// Refuses a request with a cookie that does not come from a page of this server. A read without any of the headers is accepted: the
/// browser then gives its answer to pages of this server only. A change needs the origin.
pub(super) fn check(config: &Config, head: &RequestHead<'_>) -> Result<(), ApiError> {
    check_sender(config, head)?;
    if head.changes_something() && !head.headers.contains_key(ORIGIN) {
        return Err(foreign());
    }
    Ok(())
}

/// Refuses a request that names another sender than a page of this server. Programs name none.
pub(crate) fn check_sender(config: &Config, head: &RequestHead<'_>) -> Result<(), ApiError> {
    let named = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let same_site = match named("sec-fetch-site") {
        None | Some("same-origin") => true,
        // The person typed the address.
        Some("none") => !head.changes_something(),
        Some(_) => false,
    };
    let own = named("origin").is_none_or(|origin| is_own(config, head, origin));
    if same_site && own { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> ApiError {
    ApiError::forbidden("foreign_origin", "A session of the console counts only for pages of this server; other programs send a key.")
}

/// Whether an origin is this server's: by its public address, or by the name that the client asked for.
fn is_own(config: &Config, head: &RequestHead<'_>, origin: &str) -> bool {
    let public = config.public_url.as_deref().and_then(origin_of);
    if public.is_some_and(|public| public.eq_ignore_ascii_case(origin)) {
        return true;
    }
    // A proxy may speak HTTPS for a server that does not.
    let schemes: &[&str] = if config.tls.is_some() { &["https://"] } else { &["http://", "https://"] };
    let name = schemes.iter().find_map(|scheme| origin.strip_prefix(scheme));
    name.zip(head.host()).is_some_and(|(name, host)| name.eq_ignore_ascii_case(host))
}

/// Scheme, name and port of an address.
fn origin_of(url: &str) -> Option<&str> {
    let start = url.find("://")? + 3;
    Some(url[start..].find('/').map_or(url, |end| &url[..start + end]))
}

#[cfg(test)]
mod tests {
    use super::origin_of;

    #[test]
    fn an_origin_has_no_path() {
        for url in ["https://a.example:8443", "https://a.example:8443/", "https://a.example:8443/b/c"] {
            assert_eq!(origin_of(url), Some("https://a.example:8443"));
        }
        assert_eq!(origin_of("a.example"), None);
    }
}
