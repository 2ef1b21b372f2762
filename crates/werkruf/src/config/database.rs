//! The database address: a SQLite file, or a PostgreSQL shared by many processes.

use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

/// The configured database.
#[derive(Debug, Clone)]
pub enum Database {
    /// A file that one process uses exclusively.
    Sqlite(PathBuf),
    /// A URL that may contain credentials.
    Postgres(SecretString),
}

impl Database {
    /// Parses `sqlite:FILE`, a bare file name or `postgres://…`; the error says what to write.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(SecretString::from(text)));
        }
        let file = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        if file.is_empty() || file == ":memory:" || file.contains("://") {
            return Err("names no database; write sqlite:FILE such as sqlite:data/werkruf.db, or postgres://USER@HOST/DATABASE");
        }
        Ok(Self::Sqlite(PathBuf::from(file)))
    }

    /// The file, for SQLite.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(file) => Some(file),
            Self::Postgres(_) => None,
        }
    }
}

/// For display: without the password and every part that may contain one.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "{}", file.display()),
            Self::Postgres(url) => {
                let address = url.expose_secret().split_once("://").map_or("", |(_, rest)| rest);
                let address = address.split(['?', '#']).next().unwrap_or_default();
                write!(f, "postgres://{}", address.rsplit_once('@').map_or(address, |(_, host)| host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Database;

    #[test]
    fn the_displayed_address_has_no_credentials() {
        for (text, shown) in [
            ("postgres://ana:s3cret@db.example:5432/werkruf?sslmode=require&password=s3cret", "postgres://db.example:5432/werkruf"),
            ("postgresql://ana:p%40ss@w@db/werkruf", "postgres://db/werkruf"),
            ("postgres:///werkruf?host=/run/postgresql", "postgres:///werkruf"),
            ("sqlite:a/b.db", "a/b.db"),
            ("b.db", "b.db"),
        ] {
            assert_eq!(Database::parse(text).unwrap().to_string(), shown);
        }
        assert!(Database::parse("mysql://x").is_err() && Database::parse("sqlite:").is_err());
    }
}
