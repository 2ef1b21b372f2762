//! Which addresses the requests of a tool may reach.
//!
//! Only the configuration names hosts, but a name may resolve to another address later (DNS rebinding), so the resolved address counts.
//! Link-local and metadata addresses are never reached, because they give out the credentials of the machine. A private address is
//! reached only if the configuration names it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// An address, or a network such as `10.0.0.0/8`.
pub fn network(text: &str) -> Option<IpNet> {
    let network: IpNet = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    // `::ffff:10.0.0.0/104` is `10.0.0.0/8`: addresses are compared in this form.
    let (IpAddr::V4(address), Some(prefix)) = (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) else {
        return Some(network);
    };
    if network.addr().is_ipv4() { Some(network) } else { IpNet::new(IpAddr::V4(address), prefix).ok() }
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
        let address = embedded_v4(address);
        let metadata = METADATA.iter().filter_map(|known| network(known)).any(|known| known.contains(&address));
        metadata
            || match address {
                IpAddr::V4(address) => {
                    address.is_link_local() || address.is_unspecified() || address.is_broadcast() || address.is_multicast()
                }
                IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unspecified() || address.is_multicast(),
            }
    }

    /// Whether a request may go to this address, where no name led to it.
    pub fn permits_address(&self, address: IpAddr) -> bool {
        self.permits("", address)
    }

    fn permits(&self, host: &str, address: IpAddr) -> bool {
        let address = embedded_v4(address);
        if Self::never_reaches(address) {
            return false;
        }
        let named = host.eq_ignore_ascii_case("localhost") && address.is_loopback();
        named || !is_private(address) || self.allow.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Display for Egress {
    /// The networks, which name what is allowed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.allow.iter().try_for_each(|network| write!(f, "{network} "))
    }
}

/// Addresses that give out credentials of the machine: those of cloud providers that are not link-local.
const METADATA: [&str; 6] = ["168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::/32", "fd00:c1::/32", "fd20:ce::254"];

/// The IPv4 address that an IPv6 address leads to, by mapping, NAT64 or 6to4; else the address itself.
fn embedded_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| IpAddr::from(((u32::from(high) << 16) | u32::from(low)).to_be_bytes());
    match [a, b, c, d, e, f] {
        [0x64, 0xff9b, 0, 0, 0, 0] => v4(g, h),
        [0, 0, 0, 0, 0, 0] if g != 0 => v4(g, h),
        [0x2002, high, low, ..] => v4(high, low),
        _ => IpAddr::V6(v6),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        // 100.64.0.0/10 is the shared address space of carriers, which clouds use inside their networks.
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64),
        // fec0::/10 is the old form of private networks.
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0,
    }
}

/// Every address of the host is refused.
#[derive(Debug, thiserror::Error)]
enum RefusedAddress {
    #[error("{host} resolves to {address}, a private address; `[egress] allow` must name it")]
    Private { host: String, address: IpAddr },
    #[error("{host} resolves to {address}, which no tool may reach")]
    Never { host: String, address: IpAddr },
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
                Some(address) if permitted.is_empty() => {
                    let host = host.to_owned();
                    let never = Egress::never_reaches(address);
                    Err(if never { RefusedAddress::Never { host, address } } else { RefusedAddress::Private { host, address } }.into())
                }
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Egress, network};

    #[test]
    fn networks_of_mapped_addresses_are_those_of_ipv4() {
        let written = |text: &str| network(text).unwrap().to_string();
        assert_eq!(written("::ffff:10.0.0.0/104"), "10.0.0.0/8");
        assert_eq!(written("::ffff:192.0.2.7"), "192.0.2.7/32");
        for other in ["10.0.0.0/8", "2001:db8::/32", "::/0"] {
            assert_eq!(written(other), other);
        }
    }

    #[test]
    fn private_addresses_need_a_name_and_metadata_addresses_are_never_reached() {
        let none = Egress::default();
        let some = Egress::new(vec![network("10.1.0.0/16").unwrap(), network("fd12::7").unwrap(), network("169.254.0.0/16").unwrap()]);
        let permits = |egress: &Egress, host: &str, address: &str| egress.permits(host, address.parse().unwrap());
        for public in ["93.184.216.34", "2606:2800:220:1::1", "100.63.0.1"] {
            assert!(permits(&none, "example.org", public), "{public}");
        }
        for private in [
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "127.0.0.1",
            "::1",
            "fd12::7",
            "::ffff:10.1.2.3",
            "100.64.0.1",
            "64:ff9b::a01:203",
            "2002:a01:203::1",
            "fec0::1",
        ] {
            assert!(!permits(&none, "orders.example", private), "{private}");
        }
        for named in ["10.1.2.3", "::ffff:10.1.2.3", "fd12::7"] {
            assert!(permits(&some, "orders.example", named), "{named}");
        }
        assert!(!permits(&some, "orders.example", "10.2.0.1"));
        assert!(permits(&none, "localhost", "127.0.0.1") && !permits(&none, "localhost", "10.1.2.3"));
        for never in [
            "169.254.169.254",
            "fe80::1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "100.100.100.200",
            "0.0.0.0",
            "::",
            "168.63.129.16",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
            "fd00:ec2::23",
        ] {
            assert!(!permits(&some, "localhost", never), "{never}");
        }
    }
}
