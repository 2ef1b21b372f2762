//! TLS of the listener: a certificate from two PEM files, which is read again when the files change.
//!
//! Invariant: a certificate that cannot be used never replaces one that can.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use werkruf_contract::hex;

/// The name of HTTP/2 in ALPN.
pub(super) const HTTP2: &[u8] = b"h2";

/// The code of a new certificate that cannot be used, in the log.
const CERTIFICATE_INVALID: &str = "certificate_invalid";

/// The files of a certificate with its chain, and of its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    #[error("{0}")]
    Cert(String),
    #[error("{0}")]
    Key(String),
}

impl CertificateFiles {
    /// Reads both files, and checks that the key belongs to the certificate.
    pub fn read(&self) -> Result<CertifiedKey, CertificateFault> {
        let cert = self.cert.display();
        let chain = CertificateDer::pem_file_iter(&self.cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| CertificateFault::Cert(format!("cannot read a certificate from {cert}: {error}")))?;
        if chain.is_empty() {
            return Err(CertificateFault::Cert(format!("{cert} holds no certificate; it must be PEM")));
        }
        let key = self.key.display();
        let private = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| CertificateFault::Key(format!("cannot read a private key from {key}: {error}")))?;
        CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateFault::Key(format!("{key} is not the private key of {cert}")),
            rustls::Error::InvalidCertificate(why) => CertificateFault::Cert(format!("{cert} is no valid certificate: {why}")),
            other => CertificateFault::Key(format!("{key} cannot be used: {other}")),
        })
    }

    fn state(&self) -> FileStates {
        let state = |path: &Path| fs::metadata(path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        [state(&self.cert), state(&self.key)]
    }
}

/// When the certificate and the key were last changed, and their sizes.
type FileStates = [Option<(SystemTime, u64)>; 2];

/// The TLS of one listener.
pub struct Tls {
    files: CertificateFiles,
    current: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
    /// The files as they were before they were first read.
    opened: FileStates,
    replaced: Notify,
}

impl Tls {
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateFault> {
        let opened = files.state();
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(files.read()?))));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| CertificateFault::Cert(format!("TLS cannot be set up: {error}")))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self { files, current, config: Arc::new(config), opened, replaced: Notify::new() })
    }

    /// The SHA-256 of the certificate in use. Commands on this machine trust exactly this one.
    pub fn fingerprint(&self) -> String {
        self.current.get().cert.first().map_or_else(String::new, |certificate| fingerprint(certificate))
    }

    /// Reads the files now. A certificate that cannot be used leaves the current one in place.
    pub fn read_again(&self) {
        match self.files.read() {
            Ok(certificate) if certificate.cert == self.current.get().cert => {}
            Ok(certificate) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certificate);
                tracing::info!(fingerprint = self.fingerprint(), "the certificate was read again");
                self.replaced.notify_one();
            }
            Err(fault) => tracing::error!(code = CERTIFICATE_INVALID, "the certificate in use stays: {fault}"),
        }
    }

    /// Waits until the certificate has been replaced since the last call.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }

    /// Reads the files again when they change. Files that changed since the last look may still be being written, so they are read
    /// at the next one.
    pub async fn watch(&self, interval: Duration) {
        let (mut read, mut seen) = (self.opened, self.files.state());
        loop {
            tokio::time::sleep(interval).await;
            let state = self.files.state();
            if state == seen && state != read {
                self.read_again();
                read = state;
            }
            seen = state;
        }
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The SHA-256 of a certificate.
fn fingerprint(certificate: &[u8]) -> String {
    hex(&Sha256::digest(certificate))
}

/// The certificate that new connections get.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl CurrentCertificate {
    fn get(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}
