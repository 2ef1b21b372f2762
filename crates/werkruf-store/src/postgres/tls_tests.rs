//! Connections to a database that has TLS, has none, or pretends to be one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use werkruf_contract::Clock;

use super::super::{PostgresOptions, PostgresStore};
use crate::StoreError;
use crate::testbed::fresh_database;

const PASSWORD: &str = "very-secret-password";

/// A server without TLS that asks for a password and keeps what it gets.
struct FakeServer {
    address: String,
    received: Arc<Mutex<Vec<u8>>>,
    _task: JoinSet<()>,
}

impl FakeServer {
    /// `authentication` is what the server asks for, without the type of the message.
    async fn open(authentication: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, received, mut task) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<u8>>>::default(), JoinSet::new());
        let kept = Arc::clone(&received);
        task.spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut buffer = vec![0; 4096];
                // The request for TLS, if there is one, and the startup message.
                let mut size = client.read(&mut buffer).await.unwrap_or(0);
                if buffer.starts_with(&super::SSL_REQUEST) {
                    client.write_all(b"N").await.unwrap();
                    size = client.read(&mut buffer).await.unwrap_or(0);
                }
                if size == 0 {
                    continue;
                }
                client.write_all(&[b"R", authentication].concat()).await.unwrap();
                let mut answer = Vec::new();
                let _ = client.read_buf(&mut answer).await;
                kept.lock().unwrap().extend(answer);
            }
        });
        Self { address, received, _task: task }
    }

    /// Tries to open a store, and returns the error and everything the server got after it asked.
    async fn attempt(&self, parameters: &str) -> (String, Vec<u8>) {
        let url = format!("postgres://me:{PASSWORD}@{}/db{parameters}", self.address);
        let error = open(url).await.unwrap_err().to_string();
        (error, std::mem::take(&mut *self.received.lock().unwrap()))
    }
}

async fn open(url: String) -> Result<Arc<PostgresStore>, StoreError> {
    PostgresStore::open(PostgresOptions { poll_only: true, ..PostgresOptions::new(url) }, &Clock::system(0), crate::story::MODULES).await
}

const CLEARTEXT: &[u8] = &[0, 0, 0, 8, 0, 0, 0, 3];
const MD5: &[u8] = &[0, 0, 0, 12, 0, 0, 0, 5, 1, 2, 3, 4];

#[tokio::test]
async fn a_password_never_leaves_a_plain_connection_unless_sslmode_is_disable() {
    for authentication in [CLEARTEXT, MD5] {
        let server = FakeServer::open(authentication).await;
        for parameters in ["", "?sslmode=prefer", "?sslmode=allow"] {
            let (error, received) = server.attempt(parameters).await;
            assert!(error.contains("asks for the password without TLS"), "{error}");
            assert_eq!(received, b"", "{parameters}");
        }
        for parameters in ["?sslmode=require", "?sslmode=verify-full"] {
            let (error, received) = server.attempt(parameters).await;
            assert!(error.contains("offers no TLS"), "{error}");
            assert_eq!(received, b"", "{parameters}");
        }
    }
    let server = FakeServer::open(CLEARTEXT).await;
    let (_, received) = server.attempt("?sslmode=disable").await;
    assert!(String::from_utf8_lossy(&received).contains(PASSWORD), "the operator allowed it");
}

/// TLS in front of the database of the tests, which is built without it.
struct TlsFront {
    folder: TempDir,
    port: u16,
    _task: JoinSet<()>,
}

impl TlsFront {
    /// The certificate is valid for `localhost` only.
    async fn before(database: &str) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (acceptor, database, mut task) = (TlsAcceptor::from(Arc::new(config)), database.to_owned(), JoinSet::new());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(forward(client, acceptor.clone(), database.clone()));
            }
        });
        Self { folder, port, _task: task }
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

async fn forward(mut client: TcpStream, acceptor: TlsAcceptor, database: String) {
    let mut request = [0; 8];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request, super::SSL_REQUEST, "TLS is tried first");
    client.write_all(b"S").await.unwrap();
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let mut server = TcpStream::connect(database).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test]
async fn each_sslmode_checks_what_it_promises() {
    let url = fresh_database();
    let (credentials, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let front = TlsFront::before(server).await;
    let authority = front.authority().display().to_string();
    let at = |host: &str, parameters: &str| {
        let parameters = parameters.replace("CA", &authority);
        open(format!("{credentials}@{host}:{}/{database}{parameters}", front.port))
    };
    for parameters in ["", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-full&sslrootcert=CA", "?sslrootcert=CA"] {
        assert!(at("localhost", parameters).await.is_ok(), "{parameters}");
    }
    let cases =
        [("localhost", "?sslmode=verify-full"), ("127.0.0.1", "?sslmode=verify-full&sslrootcert=CA"), ("127.0.0.1", "?sslrootcert=CA")];
    for (host, parameters) in cases {
        let error = at(host, parameters).await.unwrap_err().to_string();
        assert!(error.contains("TLS connection to the database failed"), "{host}{parameters}: {error}");
    }
}
