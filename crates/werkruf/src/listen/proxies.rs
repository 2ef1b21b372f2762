//! Addresses that serve many clients: this machine, and the proxies that the operator trusts. The limit per address does not apply to
//! them, because all clients of a proxy have its address.

use std::net::IpAddr;

use ipnet::IpNet;
use werkruf_llm::network;

/// The addresses without a limit per address.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    loopback: bool,
    networks: Vec<IpNet>,
}

impl Proxies {
    /// This machine and these addresses or networks, such as `10.0.0.0/8`. The configuration has validated them.
    pub fn of(networks: &[String]) -> Self {
        Self { loopback: true, networks: networks.iter().filter_map(|text| network(text)).collect() }
    }

    /// Whether the operator named this address as a proxy.
    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.loopback && address.is_loopback() || self.trusts(address)
    }
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
