//! The address by which limits count clients.

use std::net::{IpAddr, Ipv6Addr};

/// The IPv4 address, or the /64 network, in which an internet subscriber may choose any IPv6 address.
pub(crate) fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}
