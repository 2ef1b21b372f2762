//! The processes of a run: models, floors and Werkrufs, each on its own file in one temporary folder or its own schema of a PostgreSQL.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::load::{Child, Older, Target};

/// The operator's.
pub const KEY: &str = "bench-admin-key-0123456789";

/// What a Werkruf keeps its rows in.
#[derive(Debug, Clone)]
pub enum Place {
    File(PathBuf),
    /// A schema of this PostgreSQL.
    Schema {
        url: String,
        name: String,
    },
}

/// Where the programs lie and where their files go. Dropping it removes the files.
pub struct Stage {
    bin: PathBuf,
    folder: PathBuf,
}

impl Stage {
    /// A new folder; the other programs lie beside this one.
    pub fn new() -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let bin = this.parent().map(Path::to_owned).ok_or("no folder")?;
        let folder = std::env::temp_dir().join(format!("werkruf-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(Self { bin, folder })
    }

    /// A file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A model whose every answer begins after so many milliseconds.
    pub fn model(&self, latency_ms: u64) -> Result<Child, String> {
        Child::start(&self.bin.join("fake-model"), &["--latency-ms", &latency_ms.to_string()], &[])
    }

    /// A floor on this file.
    pub fn floor(&self, model: &Child, file: &Path) -> Result<Child, String> {
        Child::start(&self.bin.join("floor"), &[&model.url, &file.to_string_lossy()], &[])
    }

    /// A schema of this run.
    pub fn schema(&self, url: &str, name: &str) -> Place {
        Place::Schema { url: url.to_owned(), name: format!("bench_{}_{name}", std::process::id()) }
    }

    /// Werkruf as shipped, on this place.
    pub fn werkruf(&self, model: &Child, place: &Place) -> Result<Child, String> {
        self.werkruf_with(model, place, &[])
    }

    /// The same, with more settings.
    pub fn werkruf_with(&self, model: &Child, place: &Place, more: &[(&str, &str)]) -> Result<Child, String> {
        let (database, schema) = match place {
            Place::File(file) => (format!("sqlite:{}", file.display()), "werkruf"),
            Place::Schema { url, name } => (url.clone(), name.as_str()),
        };
        let environment = [
            ("WERKRUF_DATABASE_SCHEMA", schema),
            ("OPENAI_BASE_URL", model.url.as_str()),
            ("OPENAI_MODEL", "fixed"),
            ("WERKRUF_ADMIN_KEY", KEY),
            ("WERKRUF_TEST_TOOLS", "1"),
            ("WERKRUF_SAMPLE_DATA", "on"),
            // One person cannot send hundreds of messages a second; everything else is as shipped.
            ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "0"),
        ];
        let environment = [&environment, more].concat();
        Child::start(&self.bin.join("werkruf"), &["serve", "--listen", "127.0.0.1:0", "--database", &database], &environment)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Left behind it would only lie in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A floor as the load sees it.
pub fn floor_target(floor: &Child, older: Option<Arc<Older>>) -> Target {
    Target { servers: vec![(floor.url.clone(), floor.pid())], key: None, older }
}

/// A Werkruf as the load sees it.
pub fn werkruf_target(werkruf: &Child, older: Option<Arc<Older>>) -> Target {
    fleet_target(std::slice::from_ref(werkruf), older)
}

/// Several Werkrufs on one database; each chat stays with one of them.
pub fn fleet_target(replicas: &[Child], older: Option<Arc<Older>>) -> Target {
    Target { servers: replicas.iter().map(|one| (one.url.clone(), one.pid())).collect(), key: Some(KEY.to_owned()), older }
}
