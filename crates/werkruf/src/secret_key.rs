//! The key that encrypts stored secrets: from the environment, or made once in a file next to the database.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;

use crate::app::StartError;
use crate::config::{Config, ConfigViolation, Variable};

/// The bytes of a key.
pub(crate) type Key = [u8; 32];

/// The key of this installation. Without a key in the environment `<db>.key` is made, readable by its owner only. On
/// PostgreSQL the environment must have a key.
#[cfg_attr(not(feature = "flights"), expect(dead_code, reason = "only the flight search stores a secret"))]
pub(crate) fn key(config: &Config) -> Result<Key, StartError> {
    match (&config.secret_key, config.database.file()) {
        (Some(key), _) => read(key.expose_secret()).ok_or_else(|| StartError::Config(vec![fault()])),
        (None, Some(file)) => from_key_file(file),
        // Processes on different machines share no file.
        (None, None) => Err(StartError::Unsealed),
    }
}

/// The key as it is written down; `None` while there is none.
pub(crate) fn stored_text(config: &Config) -> Option<String> {
    match (&config.secret_key, config.database.file()) {
        (Some(key), _) => Some(key.expose_secret().trim().to_owned()),
        (None, Some(file)) => fs::read_to_string(key_file(file)).ok().map(|text| text.trim().to_owned()),
        (None, None) => None,
    }
}

fn key_file(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".key");
    PathBuf::from(path)
}

/// Reads 32 bytes of base64.
pub(crate) fn read(text: &str) -> Option<Key> {
    STANDARD.decode(text.trim()).ok().and_then(|key| key.try_into().ok())
}

/// The violation for a value that is not a key.
pub(crate) fn fault() -> ConfigViolation {
    ConfigViolation::new(Variable::WERKRUF_SECRET_KEY.name(), "must be 32 bytes in base64; `openssl rand -base64 32` makes one")
}

fn from_key_file(database: &Path) -> Result<Key, StartError> {
    let path = key_file(database);
    let failed = |source| StartError::Io { what: format!("the key in {} cannot be used", path.display()), source };
    let random: [u8; 32] = rand::random();
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => {
            let written = file.write_all(STANDARD.encode(random).as_bytes()).and_then(|()| file.sync_all());
            written.map_err(failed)?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let text = fs::read_to_string(&path).map_err(failed)?;
    read(&text).ok_or_else(|| failed(std::io::Error::other("it does not hold 32 bytes in base64")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{from_key_file, read};

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("w.db");
        from_key_file(&database).unwrap();
        let path = folder.path().join("w.db.key");
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        from_key_file(&database).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        std::fs::write(&path, "short").unwrap();
        assert!(from_key_file(&database).is_err());
        assert!(read("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").is_some() && read("nonsense").is_none());
    }
}
