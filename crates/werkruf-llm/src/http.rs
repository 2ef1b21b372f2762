//! The only place that builds an HTTP client.
//!
//! A client never follows a redirect, because a key must not be sent to another host, and never uses a proxy for loopback.
//! Deadlines belong to the request, because only its caller knows how long a response may take.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, NoProxy, Proxy, redirect};

use crate::egress::Egress;
use crate::pinned;

/// Limits for new and idle connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// The time limit for opening a connection, including TLS.
    pub connect: Duration,
    /// How long an unused connection is kept open.
    pub keep: Duration,
    /// Unused connections kept per host. With fewer than there are concurrent turns, most requests need a new connection.
    pub spare: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), keep: Duration::from_secs(55), spare: 1024 }
    }
}

/// Installs the cryptography provider of rustls. Further calls have no effect.
pub fn install_tls() {
    // Only the first call of a process succeeds; later calls return the installed provider as an error.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client for outgoing requests. Fails if a proxy variable is not an address, or without root certificates.
pub fn http_client(limits: &HttpLimits) -> Result<Client, reqwest::Error> {
    client_with(limits, None, variable)
}

/// A client for the requests of tools. Behind a proxy of the environment, the proxy resolves names, and `egress` has no effect.
pub fn tool_client(limits: &HttpLimits, egress: Egress) -> Result<Client, reqwest::Error> {
    client_with(limits, Some(egress), variable)
}

/// A client for the server that has the certificate with this SHA-256. It uses no proxy.
pub fn pinned_client(limits: &HttpLimits, fingerprint: &str) -> Result<Client, PinnedClientError> {
    Ok(builder(limits).tls_backend_preconfigured(pinned::tls(fingerprint)?).build()?)
}

/// Why a client for one certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum PinnedClientError {
    Tls(#[from] rustls::Error),
    Client(#[from] reqwest::Error),
}

/// The innermost cause of an HTTP error, such as "Connection refused"; the outer messages only say that something failed. Contains no
/// address.
pub fn cause(error: &reqwest::Error) -> String {
    let mut innermost: Option<&dyn Error> = error.source();
    while let Some(inner) = innermost.and_then(Error::source) {
        innermost = Some(inner);
    }
    innermost.map_or_else(
        || if error.is_timeout() { "no answer in time".to_owned() } else { "the request failed".to_owned() },
        ToString::to_string,
    )
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).or_else(|_| std::env::var(name.to_ascii_uppercase())).ok()
}

#[expect(clippy::disallowed_methods, reason = "the only place that builds a client")]
fn builder(limits: &HttpLimits) -> ClientBuilder {
    install_tls();
    Client::builder()
        .connect_timeout(limits.connect)
        .pool_idle_timeout(limits.keep)
        .pool_max_idle_per_host(limits.spare)
        .redirect(redirect::Policy::none())
        .tcp_nodelay(true)
        .gzip(true)
        .user_agent(concat!("werkruf/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
}

fn client_with(limits: &HttpLimits, egress: Option<Egress>, variable: impl Fn(&str) -> Option<String>) -> Result<Client, reqwest::Error> {
    let mut builder = builder(limits);
    if let Some(egress) = egress {
        builder = builder.dns_resolver(Arc::new(egress));
    }
    let except = match variable("no_proxy") {
        Some(hosts) => format!("localhost,127.0.0.0/8,::1,{hosts}"),
        None => "localhost,127.0.0.0/8,::1".to_owned(),
    };
    let set = |name| variable(name).filter(|address| !address.trim().is_empty());
    if let Some(address) = set("https_proxy") {
        builder = builder.proxy(Proxy::https(address)?.no_proxy(NoProxy::from_string(&except)));
    }
    if let Some(address) = set("http_proxy") {
        builder = builder.proxy(Proxy::http(address)?.no_proxy(NoProxy::from_string(&except)));
    }
    if let Some(address) = set("all_proxy") {
        builder = builder.proxy(Proxy::all(address)?.no_proxy(NoProxy::from_string(&except)));
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_clients_can_be_built() {
        install_tls();
        assert!(http_client(&HttpLimits::default()).is_ok());
        assert!(http_client(&HttpLimits::default()).is_ok());
    }

    /// A host whose accept queue is full does not answer a SYN, like a host behind a firewall that drops packets.
    #[tokio::test]
    async fn a_connection_that_never_opens_times_out() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let address = full.local_addr().unwrap();
        let mut connections = Vec::new();
        while let Ok(client) = tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address)).await {
            connections.push(client.unwrap());
        }
        let client = http_client(&HttpLimits { connect: Duration::from_millis(200), ..HttpLimits::default() }).unwrap();
        let response = tokio::time::timeout(Duration::from_secs(10), client.get(format!("http://{address}/")).send()).await;
        let error = response.expect("the connect limit ends the request").unwrap_err();
        assert!(error.is_connect() && error.is_timeout(), "{error:?}");
    }

    #[test]
    fn a_proxy_variable_that_is_not_an_address_is_rejected() {
        let broken = |name: &str| (name == "https_proxy").then(|| "http://[".to_owned());
        assert!(client_with(&HttpLimits::default(), None, broken).is_err());
        let empty = |name: &str| (name == "https_proxy").then(String::new);
        assert!(client_with(&HttpLimits::default(), None, empty).is_ok());
    }

    #[tokio::test]
    async fn loopback_is_reached_without_the_proxy() {
        // The proxy's port is closed, so only a direct connection can succeed.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxied = |name: &str| (name == "all_proxy").then(|| "http://127.0.0.1:1".to_owned());
        let client = client_with(&HttpLimits::default(), None, proxied).unwrap();
        let request = client.get(format!("http://{address}/")).send();
        let answer = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut head).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n")
                .await
                .unwrap();
            socket
        };
        let (response, _socket) = futures_util::future::join(request, answer).await;
        assert_eq!(response.unwrap().status(), 302, "redirects are not followed");
    }
}
