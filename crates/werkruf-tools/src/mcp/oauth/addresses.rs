//! Which addresses a server may name in its metadata. The configuration names the server; everything else is named by strangers.

use std::net::IpAddr;

use reqwest::Url;
use werkruf_llm::Egress;

use super::fault::ConnectFault;

pub(super) const LONGEST_URL: usize = 2_048;

/// The rule for the addresses that one server names.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Addresses {
    egress: Egress,
    server: Url,
}

impl Addresses {
    pub(in crate::mcp) const fn new(egress: Egress, server: Url) -> Self {
        Self { egress, server }
    }

    /// An address that a stranger named, if a request may go there: HTTPS, or the plain HTTP of a loopback server to another one. The resolver
    /// of the client checks what a name resolves to.
    pub(super) fn check(&self, text: &str) -> Result<Url, ConnectFault> {
        let refused = |why: &str| ConnectFault::refused(format!("The server names an address that is not used: {why}."));
        if text.len() > LONGEST_URL {
            return Err(refused("it is too long"));
        }
        let url = Url::parse(text).map_err(|_| refused("it is no URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("it has a user name"));
        }
        if url.fragment().is_some() {
            return Err(refused("it has a fragment"));
        }
        let is_named = url.host_str() == self.server.host_str();
        match url.scheme() {
            "https" => {}
            // Only the operator can say that a plain connection is good enough, by the address of the server.
            "http" if self.server.scheme() == "http" && (is_named || (is_loopback(&url) && is_loopback(&self.server))) => {}
            _ => return Err(refused("it is not https")),
        }
        if is_loopback(&url) && !is_loopback(&self.server) {
            return Err(refused("it is an address of this machine"));
        }
        if let Some(address) = literal(&url)
            && !is_named
            && !(address.is_loopback() && is_loopback(&self.server))
            && !self.egress.permits_address(address)
        {
            return Err(refused("it is a private address that the configuration does not name"));
        }
        Ok(url)
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse().ok())
}

fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default().trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost") || literal(url).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Addresses, Egress};

    #[test]
    fn a_stranger_names_no_private_and_no_plain_address() {
        let rule = |server: &str| Addresses::new(Egress::default(), server.parse().unwrap());
        let (public, local) = (rule("https://mcp.example/mcp"), rule("http://127.0.0.1:9000/mcp"));
        assert!(public.check("https://login.example/authorize?x=1").is_ok());
        for refused in [
            "http://login.example/",
            "http://mcp.example/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://localhost./",
            "https://a.localhost/",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://169.254.169.254/latest",
            "http://127.0.0.1:9001/",
            "https://user:password@login.example/",
            "https://login.example/authorize#x",
            "file:///etc/passwd",
            "login",
        ] {
            assert!(public.check(refused).is_err(), "{refused}");
        }
        assert!(local.check("http://localhost:9001/token").is_ok() && local.check("http://127.0.0.1:9000/token").is_ok());
        for refused in ["http://10.0.0.1/", "https://169.254.169.254/", "http://login.example/"] {
            assert!(local.check(refused).is_err(), "{refused}");
        }
    }
}
