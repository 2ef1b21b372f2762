//! Which names and web pages may reach `/mcp`. A page whose name was made to point at this machine (DNS rebinding) sends its own name as `Host`, and
//! every page sends its `Origin`: both must be known here.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};

use crate::api::ApiError;
use crate::config::Config;

/// Refuses a request to a name, or from a page, that the configuration does not know.
pub(super) fn check(config: &Config, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let known = Known { public_url: config.public_url.as_deref(), pages: &config.cors_origins };
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).or_else(|| uri.authority().map(Authority::as_str));
    if !host.is_some_and(|host| known.has_host(host)) {
        return Err(ApiError::forbidden(
            "forbidden",
            "This name of the server is not known; the operator sets public_url (WERKRUF_PUBLIC_URL) to the address that clients use.",
        ));
    }
    match headers.get(ORIGIN) {
        Some(origin) if !origin.to_str().is_ok_and(|origin| known.has_origin(origin)) => Err(ApiError::forbidden(
            "forbidden",
            "Web pages of this origin may not use the server; the operator names them in cors_origins (WERKRUF_CORS_ORIGINS).",
        )),
        _ => Ok(()),
    }
}

/// What the configuration knows.
struct Known<'a> {
    public_url: Option<&'a str>,
    pages: &'a [String],
}

impl Known<'_> {
    /// A loopback name, an address (nobody can make an address point elsewhere), or the host of a configured URL.
    fn has_host(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        is_loopback_name(name) || is_address(name) || self.urls().any(|url| host_of(url).is_some_and(|own| own.eq_ignore_ascii_case(name)))
    }

    /// A page of this machine, a configured origin, or the server itself.
    fn has_origin(&self, origin: &str) -> bool {
        let of_this_machine = host_of(origin).is_some_and(|name| is_loopback_name(&name) || is_loopback_address(&name));
        of_this_machine || self.pages.iter().any(|page| page == "*") || self.urls().any(|url| same_origin(url, origin))
    }

    fn urls(&self) -> impl Iterator<Item = &str> {
        self.public_url.into_iter().chain(self.pages.iter().map(String::as_str))
    }
}

fn host_of(url: &str) -> Option<String> {
    let uri = url.parse::<Uri>().ok()?;
    uri.scheme()?;
    uri.host().map(str::to_owned)
}

fn same_origin(url: &str, origin: &str) -> bool {
    let parts = |text: &str| {
        let uri = text.parse::<Uri>().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = uri.port_u16().or(if scheme == "https" { Some(443) } else { Some(80) });
        Some((scheme, uri.host()?.to_ascii_lowercase(), port))
    };
    parts(url).is_some_and(|own| Some(own) == parts(origin))
}

fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
}

fn address(name: &str) -> Option<IpAddr> {
    name.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_address(name: &str) -> bool {
    address(name).is_some()
}

fn is_loopback_address(name: &str) -> bool {
    address(name).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Known;

    const PAGES: [&str; 2] = ["https://app.example.org", "http://intranet:8000"];

    fn with<'a>(pages: &'a [String], ask: impl Fn(&Known<'a>, &str) -> bool, texts: &[&str]) -> Vec<bool> {
        let known = Known { public_url: Some("https://chat.example.org/base"), pages };
        texts.iter().map(|text| ask(&known, text)).collect()
    }

    #[test]
    fn a_host_is_local_an_address_or_configured() {
        let pages = PAGES.map(str::to_owned);
        let allowed = ["localhost:8080", "127.0.0.1", "[::1]:80", "10.1.2.3:8080", "chat.example.org", "CHAT.example.org:443", "intranet"];
        assert_eq!(with(&pages, Known::has_host, &allowed), [true; 7]);
        let refused = ["evil.example.com", "localhost.evil.example.com", "chat.example.org.evil.com", "", "a b", "127.0.0.1.evil.com"];
        assert_eq!(with(&pages, Known::has_host, &refused), [false; 6]);
    }

    #[test]
    fn a_page_is_local_or_configured_with_scheme_and_port() {
        let pages = PAGES.map(str::to_owned);
        let allowed = [
            "http://localhost:5173",
            "http://127.0.0.1",
            "https://app.example.org:443",
            "https://chat.example.org",
            "http://intranet:8000",
        ];
        assert_eq!(with(&pages, Known::has_origin, &allowed), [true; 5]);
        let refused = ["http://app.example.org", "http://intranet", "https://evil.example.com", "null", "http://10.1.2.3", ""];
        assert_eq!(with(&pages, Known::has_origin, &refused), [false; 6]);
        assert_eq!(with(&["*".to_owned()], Known::has_origin, &["https://evil.example.com"]), [true]);
    }
}
