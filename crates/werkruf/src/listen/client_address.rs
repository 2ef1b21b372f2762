//! The address of the client of a request: the peer of the connection, or what trusted proxies say about it.

use std::net::IpAddr;

use http::{Extensions, HeaderMap, HeaderValue};

use super::Proxies;

/// The peer of the connection, an extension of every request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// The client's address; `None` if it is not known: a proxy wrote something else than an address, or the request came over no
/// connection.
///
/// Every proxy appends the address of its own peer to `X-Forwarded-For`. So the list is read from its end, and the first address
/// that is no trusted proxy is the client. A client cannot forge it: what it sends itself stands further to the left.
pub(crate) fn client_address(extensions: &Extensions, headers: &HeaderMap, proxies: &Proxies) -> Option<IpAddr> {
    let mut client = extensions.get::<Peer>()?.0.to_canonical();
    let lists: Vec<&[u8]> = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes).collect();
    for named in lists.iter().rev().flat_map(|list| list.rsplit(|byte| *byte == b',')) {
        if !proxies.trusts(client) {
            break;
        }
        client = parse(std::str::from_utf8(named).ok()?.trim())?;
    }
    Some(client)
}

/// An address, with or without a port and brackets.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_before_the_trusted_proxies_is_the_client() {
        let proxies = Proxies::of(&["10.0.0.0/8".to_owned()]);
        let client = |peer: &str, lists: &[&str]| {
            let (mut extensions, mut headers) = (Extensions::new(), HeaderMap::new());
            extensions.insert(Peer(peer.parse().unwrap()));
            for list in lists {
                headers.append("x-forwarded-for", HeaderValue::from_bytes(list.as_bytes()).unwrap());
            }
            client_address(&extensions, &headers, &proxies).map_or("unknown".to_owned(), |address| address.to_string())
        };
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "not a proxy");
        assert_eq!(client("127.0.0.1", &["203.0.113.9"]), "127.0.0.1", "this machine is a proxy only where the operator says so");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("::ffff:10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, 203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["198.51.100.1", "203.0.113.9,10.0.0.2"]), "203.0.113.9", "two headers are one list");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, somebody"]), "unknown");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, ä"]), "unknown");
        assert_eq!(client("10.0.0.1", &["ä, 203.0.113.9"]), "203.0.113.9", "what the client wrote itself does not matter");
        assert_eq!(client("10.0.0.1", &["ä", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(client_address(&Extensions::new(), &HeaderMap::new(), &proxies), None);
    }
}
