//! How a PostgreSQL is reached: address, schema, timeouts, and TLS according to `sslmode`.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};

use super::tls::{Encryption, WithoutTls};
use crate::StoreError;

/// Options of a [`super::PostgresStore`].
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://…`. `sslmode` is `disable` (plain), `prefer` (TLS if the server has it), `require` (TLS, any certificate) or `verify-full`
    /// (TLS, and the certificate is checked against `sslrootcert` or the system's certificates). Without it, `verify-full`, or `prefer` on
    /// this machine.
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

/// An address for the driver, and how its connections are encrypted.
pub(super) struct Address {
    pub(super) driver: tokio_postgres::Config,
    /// `None`: a plain connection, as the address says, or a Unix socket.
    pub(super) encryption: Option<Encryption>,
}

impl Address {
    /// Removes `sslmode` and `sslrootcert` from the address: the driver knows only some of their values.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => root = Some(value),
                _ => rest.push(pair),
            }
        }
        let mut driver: Config = format!("{base}?{}", rest.join("&"))
            .parse()
            .map_err(|error| StoreError::Broken(format!("the address of the database cannot be read: {error}")))?;
        let default = if is_loopback(&driver) && root.is_none() { "prefer" } else { "verify-full" };
        let encryption = match mode.unwrap_or(default) {
            "disable" => None,
            "allow" | "prefer" => Some(Encryption::unverified(WithoutTls::Continue)?),
            "require" if root.is_none() => Some(Encryption::unverified(WithoutTls::Refuse)?),
            "require" | "verify-ca" | "verify-full" => Some(Encryption::verified(root.filter(|path| *path != "system"))?),
            other => return Err(StoreError::Broken(format!("sslmode {other:?} is unknown; use disable, prefer, require or verify-full"))),
        };
        // A Unix socket has no TLS, and nobody can read along.
        let encryption = encryption.filter(|_| !is_unix_socket(&driver));
        match encryption {
            // "Direct" lets the connector, not the driver, ask the server for TLS.
            Some(_) => driver.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct),
            None => driver.ssl_mode(SslMode::Disable).ssl_negotiation(SslNegotiation::Postgres),
        };
        Ok(Self { driver, encryption })
    }
}

fn is_unix_socket(driver: &Config) -> bool {
    !driver.get_hosts().is_empty() && driver.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
}

/// Whether every host is this machine.
fn is_loopback(driver: &Config) -> bool {
    let names_this_machine = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
    };
    driver.get_hosts().iter().all(names_this_machine) && driver.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::{Address, PostgresOptions, WithoutTls};

    #[test]
    fn sslmode_selects_tls_and_unknown_values_are_refused() {
        let parse = |mode: &str| Address::parse(&format!("postgres://me:secret@localhost/db?application_name=x&sslmode={mode}"));
        let (plain, tls) = (Some(WithoutTls::Continue), Some(WithoutTls::Refuse));
        for (mode, expected) in [("disable", None), ("allow", plain), ("prefer", plain), ("require", tls), ("verify-full", tls)] {
            assert_eq!(parse(mode).unwrap().encryption.map(|encryption| encryption.without_tls), expected, "{mode}");
        }
        assert!(parse("sometimes").is_err());
        assert!(parse("verify-full&sslrootcert=/nowhere.pem").is_err());
        assert_eq!(parse("require").unwrap().driver.get_application_name(), Some("x"));
    }

    #[test]
    fn without_sslmode_only_this_machine_may_be_reached_without_tls() {
        let without_tls = |host: &str| {
            let address = Address::parse(&format!("postgres://me:secret@{host}/db")).unwrap();
            address.encryption.map(|encryption| encryption.without_tls)
        };
        for host in ["localhost", "127.0.0.1:5433", "[::1]", "127.0.0.1,localhost"] {
            assert_eq!(without_tls(host), Some(WithoutTls::Continue), "{host}");
        }
        for host in ["db", "10.0.0.7", "localhost,db", "localhost.example.org"] {
            assert_eq!(without_tls(host), Some(WithoutTls::Refuse), "{host}");
        }
        assert_eq!(without_tls("%2Frun%2Fpostgresql"), None, "a Unix socket");
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
