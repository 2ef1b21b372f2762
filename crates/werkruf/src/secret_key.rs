//! The keys of the installation: from the environment, or from a file next to the database. `rotate` replaces the key of everything
//! that was made with an older one.
//!
//! Invariant: a key leaves the file only after nothing needs it any more, so a rotation that is interrupted can be repeated.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;
use werkruf_store::{Act, Author, SERVER_CHAIN, Seal, SecretKey, StoreError};

use crate::app::App;
use crate::config::{Config, ConfigViolation, Variable};
use crate::start_error::StartError;

/// The keys, newest first. Without a key in the environment `<db>.key` is made, readable by its owner only. On PostgreSQL the
/// environment must have the keys, because processes on different machines share no file; without any the list is empty.
pub(crate) fn keys(config: &Config) -> Result<Vec<SecretKey>, StartError> {
    match config.database.file() {
        Some(file) if config.secret_key.is_none() => from_key_file(file),
        _ => configured(config),
    }
}

/// The keys for a copy of this SQLite file: the copied audit log is signed with the key beside the file. None is made.
pub(crate) fn keys_of_copy(config: &Config, file: &Path) -> Result<Vec<SecretKey>, StartError> {
    if config.secret_key.is_none() && path_of(file, ".key").exists() { from_key_file(file) } else { configured(config) }
}

/// The keys of the environment; none without the variable.
fn configured(config: &Config) -> Result<Vec<SecretKey>, StartError> {
    config
        .secret_key
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), |keys| read(keys.expose_secret()).ok_or_else(|| StartError::Config(vec![fault()])))
}

/// Reads keys of 32 bytes in base64, separated by commas or line breaks; `None` without a key or with one that is none.
pub(crate) fn read(text: &str) -> Option<Vec<SecretKey>> {
    let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty());
    let keys: Option<Vec<SecretKey>> =
        parts.map(|part| STANDARD.decode(part).ok().and_then(|key| key.try_into().ok()).map(SecretKey::new)).collect();
    keys.filter(|keys| !keys.is_empty())
}

/// The keys as they are written down; none while there is no key.
pub(crate) fn stored_texts(config: &Config) -> Vec<String> {
    let text = match (&config.secret_key, config.database.file()) {
        (Some(keys), _) => Some(keys.expose_secret().to_owned()),
        (None, Some(file)) => fs::read_to_string(path_of(file, ".key")).ok(),
        (None, None) => None,
    };
    text.iter().flat_map(|text| text.split([',', '\n'])).map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The violation for a value that is not a list of keys.
pub(crate) fn fault() -> ConfigViolation {
    ConfigViolation::new(
        Variable::WERKRUF_SECRET_KEY.name(),
        "must be 32 bytes in base64, or several such keys separated by commas, the newest first; `openssl rand -base64 32` makes one",
    )
}

fn path_of(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> StartError + '_ {
    move |source| StartError::Io { what: format!("the key in {} cannot be used", path.display()), source }
}

fn from_key_file(database: &Path) -> Result<Vec<SecretKey>, StartError> {
    let path = path_of(database, ".key");
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(&path))?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => {
            let written = file.write_all(STANDARD.encode(rand::random::<[u8; 32]>()).as_bytes()).and_then(|()| file.sync_all());
            written.map_err(failed(&path))?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&path)(error)),
    }
    let text = fs::read_to_string(&path).map_err(failed(&path))?;
    read(&text).ok_or_else(|| failed(&path)(std::io::Error::other("it does not hold 32 bytes in base64")))
}

/// Replaces the key file as a whole: a crash leaves the old one or the new one.
fn write_key_file(database: &Path, keys: &[SecretKey]) -> Result<(), StartError> {
    let (path, part) = (path_of(database, ".key"), path_of(database, ".key.part"));
    let text = keys.iter().map(|key| STANDARD.encode(key.expose())).collect::<Vec<_>>().join("\n");
    let written = || -> std::io::Result<()> {
        // A part of an interrupted rotation.
        if let Err(error) = fs::remove_file(&part)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder)?.sync_all()
    };
    written().map_err(failed(&path))
}

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rotated {
    /// The id of the key that is in use now.
    pub(crate) key_name: String,
    /// Stored secrets that are encrypted with it now.
    pub(crate) sealed: u64,
    /// Stored secrets that no known key decrypts.
    pub(crate) unreadable: u64,
    /// Chains of the audit log whose head it signed.
    pub(crate) chains: u64,
    /// Whether a new key was made; false where the environment has the keys.
    pub(crate) made: bool,
}

/// Encrypts every stored secret and signs every head of the audit log with the newest key. Where the key is in a file, a new one is
/// made first, and the old ones are removed after nothing needs them. One rotation at a time: a second one would remove the key of
/// the first while it is in use.
pub(crate) async fn rotate(app: &App, by: Author, sign_unsigned: bool) -> Result<Rotated, StartError> {
    let _alone = app.rotation.lock().await;
    let keys = app.store.secret_keys();
    let file = app.config.database.file().filter(|_| app.config.secret_key.is_none());
    if let Some(database) = file {
        let mut all = vec![SecretKey::new(rand::random())];
        all.extend(keys.all().iter().cloned());
        write_key_file(database, &all)?;
        keys.replace(all);
    }
    let Some(newest) = keys.newest() else { return Err(StartError::Unsealed) };
    let (sealed, unreadable) = reseal(app).await?;
    let chains = app.administration_store.sign_heads(sign_unsigned).await?;
    if let Some(database) = file {
        write_key_file(database, std::slice::from_ref(&newest))?;
        keys.replace(vec![newest.clone()]);
    }
    let rotated = Rotated { key_name: newest.name(), sealed, unreadable, chains, made: file.is_some() };
    let after = serde_json::json!({"key": rotated.key_name, "sealed": sealed, "unreadable": unreadable, "chains": chains});
    app.record(SERVER_CHAIN, by, Act::new("secrets.rotate", rotated.key_name.clone()).after(after)).await;
    Ok(rotated)
}

async fn reseal(app: &App) -> Result<(u64, u64), StoreError> {
    let (seal, now) = (Seal::new(app.store.secret_keys()), app.clock.now());
    let connections = app.database.connections();
    let (tokens, unreadable_tokens) = seal.reseal(connections.as_ref(), now).await?;
    let (sealed, unreadable) = seal.reseal_connections(connections.as_ref(), now).await?;
    Ok((tokens + sealed, unreadable_tokens + unreadable))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use werkruf_store::SecretKey;

    use super::{from_key_file, read, write_key_file};

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("new/w.db");
        let first = from_key_file(&database).unwrap();
        let path = folder.path().join("new/w.db.key");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((first.len(), mode()), (1, 0o600));
        assert_eq!(from_key_file(&database).unwrap(), first);
        let both = vec![SecretKey::new([7; 32]), first[0].clone()];
        std::fs::write(folder.path().join("new/w.db.key.part"), "of a crash").unwrap();
        write_key_file(&database, &both).unwrap();
        assert_eq!((from_key_file(&database).unwrap(), mode()), (both, 0o600));
        std::fs::write(&path, "short").unwrap();
        assert!(from_key_file(&database).is_err());
    }

    #[test]
    fn several_keys_are_read_newest_first() {
        let (one, two) = ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        let keys = read(&format!("{two}, {one}")).unwrap();
        assert_eq!(keys, [SecretKey::new([0; 32]), read(one).unwrap()[0].clone()]);
        assert!(read("nonsense").is_none() && read(&format!("{one},short")).is_none() && read("").is_none() && read(",").is_none());
    }
}
