//! HTTPS: both versions of HTTP, certificates that change, and clients that misuse TLS or HTTP/2.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use rcgen::{CertifiedKey, KeyPair};
use reqwest::{Certificate, Client, Version};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use werkruf::listen::{Bounds, CertificateFault, CertificateFiles, Tls};

use crate::listener::{RouteState, TIMEOUT, TestListener, bounds};

/// A certificate for `localhost`, written as two files.
struct TestCertificate {
    folder: TempDir,
    pem: String,
}

impl TestCertificate {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pem = write_certificate(folder.path());
        Self { folder, pem }
    }

    fn files(&self) -> CertificateFiles {
        CertificateFiles { cert: self.folder.path().join("cert.pem"), key: self.folder.path().join("key.pem") }
    }

    fn tls(&self) -> Arc<Tls> {
        Arc::new(Tls::open(self.files()).unwrap())
    }
}

/// Writes a new certificate and its key, and returns the certificate.
fn write_certificate(folder: &Path) -> String {
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), signing_key.serialize_pem()).unwrap();
    cert.pem()
}

#[expect(clippy::disallowed_methods, reason = "the client of a test may follow nothing anyway")]
fn client(pem: &str, only_http1: bool) -> Client {
    werkruf_llm::install_tls();
    let builder = Client::builder().no_proxy().tls_certs_only([Certificate::from_pem(pem.as_bytes()).unwrap()]).timeout(TIMEOUT);
    if only_http1 { builder.http1_only().build().unwrap() } else { builder.build().unwrap() }
}

/// Limits that only tests of slow clients reach: on a busy machine a handshake takes longer than the usual time for a head.
fn patient() -> Bounds {
    Bounds { head: TIMEOUT, ..bounds() }
}

async fn open(certificate: &TestCertificate, bounds: Bounds) -> TestListener {
    TestListener::open_tls(bounds, Some(certificate.tls())).await
}

#[tokio::test]
async fn both_versions_of_http_are_served_over_tls() {
    let certificate = TestCertificate::new();
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/big", get(|| async { "x".repeat(1_000_000) }))
        .route("/echo", post(|body: String| async move { body }));
    let state = Arc::new(RouteState::default());
    let listener = TestListener::open_with(patient(), router, state, Some(certificate.tls())).await;
    for (only_http1, version) in [(true, Version::HTTP_11), (false, Version::HTTP_2)] {
        let client = client(&certificate.pem, only_http1);
        let url = format!("https://{}", listener.address);
        let response = client.get(&url).send().await.unwrap();
        assert_eq!((response.version(), response.text().await.unwrap()), (version, "here".to_owned()));
        let big = client.get(format!("{url}/big")).send().await.unwrap();
        assert_eq!(big.content_length(), Some(1_000_000));
        assert_eq!(big.text().await.unwrap().len(), 1_000_000);
        let body = "y".repeat(600_000);
        let echo = client.post(format!("{url}/echo")).body(body.clone()).send().await.unwrap();
        assert_eq!(echo.text().await.unwrap(), body);
    }
}

#[tokio::test]
async fn a_changed_certificate_is_served_and_a_broken_one_is_not() {
    let certificate = TestCertificate::new();
    let tls = certificate.tls();
    let listener = TestListener::open_tls(patient(), Some(Arc::clone(&tls))).await;
    let watched = Arc::clone(&tls);
    listener.tasks.spawn(async move { watched.watch(Duration::from_millis(20)).await });
    let url = format!("https://{}", listener.address);
    let first = tls.fingerprint();

    // A broken file changes nothing, and the next good one is found.
    fs::write(certificate.files().cert, "-----BEGIN CERTIFICATE-----\nbroken").unwrap();
    tls.read_again();
    assert_eq!(tls.fingerprint(), first);
    assert!(client(&certificate.pem, false).get(&url).send().await.unwrap().status().is_success());

    let pem = write_certificate(certificate.folder.path());
    timeout(TIMEOUT, tls.replaced()).await.unwrap();
    assert_ne!(tls.fingerprint(), first);
    assert!(client(&pem, false).get(&url).send().await.unwrap().status().is_success());
    assert!(client(&certificate.pem, false).get(&url).send().await.unwrap_err().is_connect(), "the old one is no longer served");
    listener.tasks.close();
}

#[test]
fn certificate_and_key_must_belong_together() {
    let certificate = TestCertificate::new();
    assert!(certificate.files().read().is_ok());
    fs::write(certificate.files().key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let Err(CertificateFault::Key(message)) = certificate.files().read() else { panic!("the key is another one") };
    assert!(message.contains("is not the private key of"), "{message}");
    fs::write(certificate.files().cert, "").unwrap();
    assert!(matches!(certificate.files().read(), Err(CertificateFault::Cert(_))));
}

#[tokio::test]
async fn plain_http_gets_an_error_and_other_bytes_the_end() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, patient()).await;
    let mut plain = listener.connect().await;
    plain.get("/").await;
    let response = plain.rest().await;
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("\"https_required\""), "{response}");
    let mut other = listener.connect().await;
    other.send("\0\0\0\0").await;
    assert_eq!(other.rest().await, "");
}

#[tokio::test]
async fn a_slow_handshake_is_closed_in_time() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, bounds()).await;
    let (mut silent, mut half) = (listener.connect().await, listener.connect().await);
    // The start of a handshake record of 512 bytes.
    half.0.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    assert_eq!(half.rest().await, "");
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn a_full_table_of_tls_connections_evicts_an_idle_one() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, Bounds { connections: 2, ..patient() }).await;
    let url = format!("https://{}", listener.address);
    let (first, second, third) = (client(&certificate.pem, false), client(&certificate.pem, true), client(&certificate.pem, false));
    for client in [&first, &second, &third, &first] {
        let served = async {
            // A connection is idle only a moment after its client has the response; until then there is no place.
            while client.get(&url).send().await.unwrap().text().await.unwrap() != "here" {}
        };
        timeout(TIMEOUT, served).await.unwrap();
    }
}

#[tokio::test]
async fn the_operator_is_served_while_all_connections_are_busy() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, Bounds { connections: 1, ..patient() }).await;
    let url = format!("https://{}", listener.address);
    let busy = client(&certificate.pem, false);
    let held = listener.tasks.spawn(busy.get(format!("{url}/held")).send());
    timeout(TIMEOUT, listener.state.requested.notified()).await.unwrap();
    let guest = client(&certificate.pem, false).get(&url).send().await.unwrap();
    assert_eq!((guest.status().as_u16(), guest.version()), (503, Version::HTTP_2));
    let operator = client(&certificate.pem, false).get(&url).header("authorization", "operator").send().await.unwrap();
    assert_eq!((operator.status().as_u16(), operator.text().await.unwrap()), (200, "here".to_owned()));
    listener.state.gate.notify_one();
    assert_eq!(held.await.unwrap().unwrap().text().await.unwrap(), "at last");
}

#[tokio::test]
async fn stopping_lets_a_stream_finish_and_then_ends_the_connection() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, patient()).await;
    let client = client(&certificate.pem, false);
    let held = listener.tasks.spawn(client.get(format!("https://{}/held", listener.address)).send());
    timeout(TIMEOUT, listener.state.requested.notified()).await.unwrap();
    listener.stop.cancel();
    listener.state.gate.notify_one();
    assert_eq!(held.await.unwrap().unwrap().text().await.unwrap(), "at last");
    timeout(TIMEOUT, listener.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_its_stream_loses_the_connection() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, Bounds { stall: Duration::from_millis(300), ..patient() }).await;
    // The response is held unread: the client grants no more window once its own is full.
    let response = client(&certificate.pem, false).get(format!("https://{}/flood", listener.address)).send().await.unwrap();
    assert_eq!(listener.state.floods.load(Ordering::SeqCst), 1);
    let ended = async {
        while listener.state.floods.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, ended).await.unwrap();
    drop(response);
}

#[tokio::test]
async fn a_client_that_cancels_stream_after_stream_loses_the_connection() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, patient()).await;
    let mut connection = Http2Connection::open(&listener, &certificate).await;
    // One more than is allowed. Each request has started before it is cancelled.
    for number in 0..101_u32 {
        let stream = number * 2 + 1;
        connection.request(stream, "/held").await.unwrap();
        timeout(TIMEOUT, listener.state.requested.notified()).await.unwrap();
        connection.cancel(stream).await.unwrap();
    }
    connection.rest().await;
}

#[tokio::test]
async fn an_idle_or_silent_http2_connection_is_closed() {
    let certificate = TestCertificate::new();
    let listener = open(&certificate, bounds()).await;
    let mut silent = Http2Connection::open(&listener, &certificate).await;
    silent.rest().await;
    // A head that never ends is no request.
    let mut trickle = Http2Connection::open(&listener, &certificate).await;
    trickle.frame(1, 0, 1, &[0x82]).await.unwrap();
    trickle.rest().await;
}

/// An HTTP/2 connection whose frames are written by hand.
struct Http2Connection(tokio_rustls::client::TlsStream<tokio::net::TcpStream>);

impl Http2Connection {
    async fn open(listener: &TestListener, certificate: &TestCertificate) -> Self {
        use rustls::pki_types::pem::PemObject;
        werkruf_llm::install_tls();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = listener.connect().await.0;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut connection = Self(connector.connect("localhost".try_into().unwrap(), socket).await.unwrap());
        connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        connection.frame(4, 0, 0, &[]).await.unwrap();
        connection
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).await
    }

    /// A GET request, its headers not indexed.
    async fn request(&mut self, stream: u32, path: &str) -> std::io::Result<()> {
        let path = [&[0x04, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
        // :method GET, :scheme https, :path, :authority test
        let headers = [&[0x82, 0x87], &path[..], &[0x01, 4], b"test"].concat();
        self.frame(1, 5, stream, &headers).await
    }

    async fn cancel(&mut self, stream: u32) -> std::io::Result<()> {
        self.frame(3, 0, stream, &8_u32.to_be_bytes()).await
    }

    /// Reads to the end of the connection; a reset counts as the end.
    async fn rest(&mut self) {
        let _ = timeout(TIMEOUT, self.0.read_to_end(&mut Vec::new())).await.unwrap();
    }
}
