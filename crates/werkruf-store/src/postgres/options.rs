//! How a PostgreSQL is reached: address, schema, timeouts, and TLS according to `sslmode`.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::StoreError;

/// Options of a [`super::PostgresStore`].
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://…`. `sslmode` is `disable` or `prefer` (plain), `require` (encrypted, any certificate) or `verify-full`
    /// (encrypted, and the certificate is checked against `sslrootcert` or the system's certificates).
    pub url: String,
    /// The schema of all tables.
    pub schema: String,
    /// How long a lease is valid without being renewed.
    pub lease_ttl: Duration,
    /// Connections at most, beside the one that listens.
    pub pool_size: usize,
    pub connect_timeout: Duration,
    /// How long an operation waits for a free connection before it fails as unavailable.
    pub acquire_timeout: Duration,
    /// Neither LISTEN nor NOTIFY: for poolers, which cannot pass them on.
    pub poll_only: bool,
}

impl PostgresOptions {
    /// The defaults, at this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: "werkruf".to_owned(),
            lease_ttl: Duration::from_secs(15),
            pool_size: 16,
            connect_timeout: Duration::from_millis(1000),
            acquire_timeout: Duration::from_millis(1500),
            poll_only: false,
        }
    }

    /// The schema's name becomes part of statements, so it must be a plain identifier.
    pub(super) fn check_schema(&self) -> Result<(), StoreError> {
        let plain = |name: &str| {
            name.len() <= 48
                && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
                && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
        };
        if plain(&self.schema) && !self.schema.starts_with("pg_") {
            return Ok(());
        }
        Err(StoreError::Broken(format!("{:?} is no name for a schema: small letters, digits and underscores, 48 at most", self.schema)))
    }
}

/// Without the address, which has the password in it.
impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url: _, schema, lease_ttl, pool_size, connect_timeout, acquire_timeout, poll_only } = self;
        f.debug_struct("PostgresOptions")
            .field("schema", schema)
            .field("lease_ttl", lease_ttl)
            .field("pool_size", pool_size)
            .field("connect_timeout", connect_timeout)
            .field("acquire_timeout", acquire_timeout)
            .field("poll_only", poll_only)
            .finish_non_exhaustive()
    }
}

/// An address for the driver, and the TLS options that the driver does not understand.
pub(super) struct Address {
    pub(super) driver: tokio_postgres::Config,
    pub(super) tls: Option<ClientConfig>,
}

impl Address {
    /// Removes `sslmode` and `sslrootcert` from the address: the driver knows only some of their values.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut rest) = ("prefer", None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("sslrootcert", value)) => root = Some(value),
                _ => rest.push(pair),
            }
        }
        let tls = match mode {
            "disable" | "allow" | "prefer" => None,
            "require" if root.is_none() => Some(encrypted()?),
            "require" | "verify-ca" | "verify-full" => Some(verified(root.filter(|path| *path != "system"))?),
            other => return Err(StoreError::Broken(format!("sslmode {other:?} is unknown; use disable, prefer, require or verify-full"))),
        };
        rest.push(if tls.is_some() { "sslmode=require" } else { "sslmode=disable" });
        let driver = format!("{base}?{}", rest.join("&"))
            .parse()
            .map_err(|error| StoreError::Broken(format!("the address of the database cannot be read: {error}")))?;
        Ok(Self { driver, tls })
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, StoreError> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().map_err(no_tls)
}

fn no_tls(error: impl std::fmt::Display) -> StoreError {
    StoreError::Broken(format!("TLS to the database cannot be set up: {error}"))
}

fn encrypted() -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(ring::default_provider());
    Ok(builder()?.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))).with_no_client_auth())
}

fn verified(root: Option<&str>) -> Result<ClientConfig, StoreError> {
    let Some(path) = root else {
        return Ok(builder()?.with_platform_verifier().map_err(no_tls)?.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(no_tls)? {
        roots.add(certificate.map_err(no_tls)?).map_err(no_tls)?;
    }
    if roots.is_empty() {
        return Err(no_tls(format!("{path} holds no certificate")));
    }
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// `sslmode=require` protects against eavesdropping, not against a server that pretends to be the database.
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
mod tests {
    use super::{Address, PostgresOptions};

    #[test]
    fn sslmode_selects_tls_and_unknown_values_are_refused() {
        let parse = |mode: &str| Address::parse(&format!("postgres://me:secret@localhost/db?application_name=x&sslmode={mode}"));
        for (mode, encrypted) in [("disable", false), ("prefer", false), ("require", true), ("verify-full", true)] {
            assert_eq!(parse(mode).unwrap().tls.is_some(), encrypted, "{mode}");
        }
        assert!(parse("sometimes").is_err());
        assert!(parse("verify-full&sslrootcert=/nowhere.pem").is_err());
        assert_eq!(parse("require").unwrap().driver.get_application_name(), Some("x"));
    }

    #[test]
    fn a_schema_is_a_plain_identifier() {
        let named =
            |schema: &str| PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::new("postgres://localhost") }.check_schema();
        assert!(named("werkruf").is_ok() && named("werkruf_2").is_ok());
        for bad in ["", "2", "a-b", "a\"b", "A", "pg_catalog", "a,b"] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        assert!(!format!("{:?}", PostgresOptions::new("postgres://me:secret@localhost/db")).contains("secret"));
    }
}
