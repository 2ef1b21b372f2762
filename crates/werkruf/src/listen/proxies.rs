//! Addresses that serve many clients: this machine, and the proxies that the operator trusts. The limit per address does not apply to
//! them, because all clients of a proxy have its address.

use std::net::{IpAddr, Ipv6Addr};

/// The addresses without a limit per address.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    loopback: bool,
    /// Networks as IPv6 bits with their prefix lengths.
    networks: Vec<(u128, u8)>,
}

impl Proxies {
    /// This machine and these addresses or networks, such as `10.0.0.0/8`. The configuration has validated them.
    pub fn of(networks: &[String]) -> Self {
        Self { loopback: true, networks: networks.iter().filter_map(|text| network(text)).collect() }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        let within = |&(network, length): &(u128, u8)| length == 0 || (bits ^ network) >> (128 - u32::from(length)) == 0;
        self.loopback && address.to_canonical().is_loopback() || self.networks.iter().any(within)
    }
}

fn network(text: &str) -> Option<(u128, u8)> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.parse().ok()?;
    // An IPv4 address is mapped to the last 32 of 128 bits.
    let (before, widest) = if address.is_ipv4() { (96, 32) } else { (0, 128) };
    let length: u8 = length.map_or(Some(widest), |length| length.parse().ok()).filter(|length| *length <= widest)?;
    Some((bits(address), before + length))
}

fn bits(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.to_bits()
}

#[cfg(test)]
mod tests {
    use super::Proxies;

    #[test]
    fn this_machine_and_the_configured_networks_are_proxies() {
        let proxies = Proxies::of(&["10.0.0.0/8".to_owned(), "192.0.2.7".to_owned(), "2001:db8::/32".to_owned()]);
        let contains = |address: &str| proxies.contains(address.parse().unwrap());
        for address in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1", "10.255.0.1", "::ffff:10.1.2.3", "192.0.2.7", "2001:db8:9::1"]
        {
            assert!(contains(address), "{address}");
        }
        for address in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::2", "::ffff:192.0.2.8"] {
            assert!(!contains(address), "{address}");
        }
        assert!(!Proxies::default().contains("127.0.0.1".parse().unwrap()));
        assert!(Proxies::of(&["0.0.0.0/0".to_owned()]).contains("203.0.113.1".parse().unwrap()));
        assert!(!Proxies::of(&["0.0.0.0/0".to_owned()]).contains("2001:db8::1".parse().unwrap()));
        assert!(Proxies::of(&["::/0".to_owned()]).contains("2001:db8::1".parse().unwrap()));
    }
}
