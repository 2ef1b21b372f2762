//! `[tls]`: the files of the listener's certificate.

use std::path::{Path, PathBuf};

use super::environment::{Environment, Variable};
use super::file::Document;
use super::violation::ConfigViolation;
use crate::listen::{CertificateFault, CertificateFiles};

/// The two files. A path in the config file is relative to that file. Without both there is no TLS.
pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<CertificateFiles> {
    let folder = document.path.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    let path = |variable: Variable, file: Option<&PathBuf>| {
        environment.get(variable).map(PathBuf::from).or_else(|| file.map(|file| folder.join(file)))
    };
    let section = &document.file.tls;
    let cert = path(Variable::WERKRUF_TLS_CERT, section.cert.as_ref());
    let key = path(Variable::WERKRUF_TLS_KEY, section.key.as_ref());
    match (cert, key) {
        (Some(cert), Some(key)) => return Some(CertificateFiles { cert, key }),
        (Some(_), None) => violations.push(document.violation("/tls/key", "is missing; name the file of the private key")),
        (None, Some(_)) => violations.push(document.violation("/tls/cert", "is missing; name the file of the certificate")),
        (None, None) => {}
    }
    None
}

impl super::Config {
    /// Reads the certificate; a violation if it cannot be used. Only `serve` and `config check` need it.
    pub(crate) fn check_certificate(&self) -> Option<ConfigViolation> {
        self.tls.as_ref()?.read().err().map(|fault| self.certificate_violation(&fault))
    }

    pub(crate) fn certificate_violation(&self, fault: &CertificateFault) -> ConfigViolation {
        let place = match fault {
            CertificateFault::Cert(_) => "/tls/cert",
            CertificateFault::Key(_) => "/tls/key",
        };
        self.places.violation(place, fault.to_string())
    }
}
