//! TLS to PostgreSQL: what each `sslmode` checks, and what a connection without TLS may carry.
//!
//! The driver would send a password in clear text to any server that asks for it. So this module opens the connection itself: it asks for
//! TLS first, and a connection that stays plain ends before the server could read the password.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::plain_password::PasswordGuard;
use crate::StoreError;

/// The request for TLS at the start of a connection: its length and its code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const ACCEPTED: u8 = b'S';

/// What a server that has no TLS causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutTls {
    /// No connection.
    Refuse,
    /// A plain connection, over which no readable password is sent.
    Continue,
}

/// Opens connections that ask for TLS first.
#[derive(Clone)]
pub(super) struct Encryption {
    tls: MakeRustlsConnect,
    pub(super) without_tls: WithoutTls,
}

impl Encryption {
    /// Any certificate: protects against eavesdropping, not against a server that pretends to be the database.
    pub(super) fn unverified(without_tls: WithoutTls) -> Result<Self, StoreError> {
        let verifier = AnyCertificate(Arc::new(ring::default_provider()));
        let config = builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        Ok(Self { tls: MakeRustlsConnect::new(config), without_tls })
    }

    /// A certificate for the host of the address, signed by a root of this file, or by one that the system trusts.
    pub(super) fn verified(root: Option<&str>) -> Result<Self, StoreError> {
        let config = match root {
            None => builder()?.with_platform_verifier().map_err(no_tls)?.with_no_client_auth(),
            Some(path) => builder()?.with_root_certificates(roots(path)?).with_no_client_auth(),
        };
        Ok(Self { tls: MakeRustlsConnect::new(config), without_tls: WithoutTls::Refuse })
    }
}

fn roots(path: &str) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(no_tls)? {
        roots.add(certificate.map_err(no_tls)?).map_err(no_tls)?;
    }
    if roots.is_empty() {
        return Err(no_tls(format!("{path} holds no certificate")));
    }
    Ok(roots)
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, StoreError> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().map_err(no_tls)
}

fn no_tls(error: impl std::fmt::Display) -> StoreError {
    StoreError::Broken(format!("TLS to the database cannot be set up: {error}"))
}

type RustlsConnect = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
type RustlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl MakeTlsConnect<Socket> for Encryption {
    type Stream = Encrypted;
    type TlsConnect = HostEncryption;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostEncryption, io::Error> {
        let tls = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.tls, host).map_err(io::Error::other)?;
        Ok(HostEncryption { tls, without_tls: self.without_tls })
    }
}

/// Opens one connection to one host.
pub(super) struct HostEncryption {
    tls: RustlsConnect,
    without_tls: WithoutTls,
}

impl TlsConnect<Socket> for HostEncryption {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, mut socket: Socket) -> Self::Future {
        Box::pin(async move {
            socket.write_all(&SSL_REQUEST).await?;
            if socket.read_u8().await? == ACCEPTED {
                let opened = self.tls.connect(socket).await;
                return opened.map(|stream| Encrypted::Tls(Box::new(stream))).map_err(|error| explained(&error));
            }
            match self.without_tls {
                WithoutTls::Continue => Ok(Encrypted::Plain(socket, PasswordGuard::default())),
                WithoutTls::Refuse => Err(io::Error::other(
                    "the database offers no TLS; switch it on there, or allow a plain connection with sslmode=disable in the address",
                )),
            }
        })
    }
}

fn explained(error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "the TLS connection to the database failed: {error}; sslrootcert=FILE in the address names the certificate authority, and an explicit sslmode says what is checked"
        ),
    )
}

/// A connection to the database.
pub(super) enum Encrypted {
    Tls(Box<RustlsStream>),
    Plain(Socket, PasswordGuard),
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        match self {
            Self::Tls(stream) => stream.channel_binding(),
            Self::Plain(..) => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Plain(socket, guard) => {
                let before = buffer.filled().len();
                let read = Pin::new(socket).poll_read(cx, buffer);
                match read {
                    Poll::Ready(Ok(())) => Poll::Ready(guard.check(buffer.filled().get(before..).unwrap_or_default())),
                    other => other,
                }
            }
        }
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Plain(socket, _) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(socket, _) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(socket, _) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
