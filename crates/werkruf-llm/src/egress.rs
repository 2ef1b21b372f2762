//! Which addresses the requests of a tool may reach.
//!
//! Only the configuration names hosts, but a name may resolve to another address later (DNS rebinding), so the resolved address counts.
//! Link-local and metadata addresses are never reached, because they give out the credentials of the machine. A private address is
//! reached only if the configuration names it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// An address, or a network such as `10.0.0.0/8`.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// The private networks that the configuration names.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    allow: Arc<[IpNet]>,
}

impl Egress {
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow: allow.into() }
    }

    /// Whether no configuration can allow this address.
    pub fn never_reaches(address: IpAddr) -> bool {
        let address = address.to_canonical();
        let metadata = ["100.100.100.200", "fd00:ec2::254", "fd20:ce::254"].iter().any(|known| known.parse() == Ok(address));
        metadata
            || match address {
                IpAddr::V4(address) => {
                    address.is_link_local() || address.is_unspecified() || address.is_broadcast() || address.is_multicast()
                }
                IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unspecified() || address.is_multicast(),
            }
    }

    fn permits(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if Self::never_reaches(address) {
            return false;
        }
        let named = host.eq_ignore_ascii_case("localhost") && address.is_loopback();
        named || !is_private(address) || self.allow.iter().any(|network| network.contains(&address))
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        // 100.64.0.0/10 is the shared address space of carriers, which clouds use inside their networks.
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
    }
}

/// Every address of the host is refused.
#[derive(Debug, thiserror::Error)]
#[error("{host} resolves to {address}, which is not reached unless `[egress] allow` names it")]
struct RefusedAddress {
    host: String,
    address: IpAddr,
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let refused = found.first().map(SocketAddr::ip);
            let permitted: Vec<SocketAddr> = found.into_iter().filter(|address| egress.permits(host, address.ip())).collect();
            match refused {
                Some(address) if permitted.is_empty() => Err(RefusedAddress { host: host.to_owned(), address }.into()),
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Egress, network};

    #[test]
    fn private_addresses_need_a_name_and_metadata_addresses_are_never_reached() {
        let none = Egress::default();
        let some = Egress::new(vec![network("10.1.0.0/16").unwrap(), network("fd12::7").unwrap(), network("169.254.0.0/16").unwrap()]);
        let permits = |egress: &Egress, host: &str, address: &str| egress.permits(host, address.parse().unwrap());
        for public in ["93.184.216.34", "2606:2800:220:1::1", "100.63.0.1"] {
            assert!(permits(&none, "example.org", public), "{public}");
        }
        for private in ["10.1.2.3", "192.168.0.1", "172.16.0.1", "127.0.0.1", "::1", "fd12::7", "::ffff:10.1.2.3", "100.64.0.1"] {
            assert!(!permits(&none, "orders.example", private), "{private}");
        }
        for named in ["10.1.2.3", "::ffff:10.1.2.3", "fd12::7"] {
            assert!(permits(&some, "orders.example", named), "{named}");
        }
        assert!(!permits(&some, "orders.example", "10.2.0.1"));
        assert!(permits(&none, "localhost", "127.0.0.1") && !permits(&none, "localhost", "10.1.2.3"));
        for never in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "::"] {
            assert!(!permits(&some, "localhost", never), "{never}");
        }
    }
}
