//! Starts the processes of a run: models, floors and Werkruf servers, each with its own file in one temporary folder or its own
//! PostgreSQL schema.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::load::{Child, Older, Target};

/// The admin key of every Werkruf server.
pub const KEY: &str = "bench-admin-key-0123456789";

/// The database of a Werkruf server.
#[derive(Debug, Clone)]
pub enum Database {
    File(PathBuf),
    /// A schema of this PostgreSQL.
    Schema {
        url: String,
        name: String,
    },
}

/// The folders of the programs and of their files. Dropping it removes the files.
pub struct Stage {
    bin: PathBuf,
    program: PathBuf,
    folder: PathBuf,
}

impl Stage {
    /// Creates the folder; the other programs are in the folder of this one, and so is the server, unless `program` names another.
    pub fn new(program: Option<PathBuf>) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let bin = this.parent().map(Path::to_owned).ok_or("no folder")?;
        let folder = std::env::temp_dir().join(format!("werkruf-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(Self { program: program.unwrap_or_else(|| bin.join("werkruf")), bin, folder })
    }

    /// The path of a file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a model whose responses begin after so many milliseconds.
    pub fn model(&self, latency_ms: u64) -> Result<Child, String> {
        Child::start(&self.bin.join("fake-model"), &["--latency-ms", &latency_ms.to_string()], &[])
    }

    /// Starts a floor on this file.
    pub fn floor(&self, model: &Child, file: &Path) -> Result<Child, String> {
        Child::start(&self.bin.join("floor"), &[&model.url, &file.to_string_lossy()], &[])
    }

    /// The name of a schema of this run.
    pub fn schema(&self, url: &str, name: &str) -> Database {
        Database::Schema { url: url.to_owned(), name: format!("bench_{}_{name}", std::process::id()) }
    }

    /// Starts Werkruf with its default settings on this database.
    pub fn werkruf(&self, model: &Child, database: &Database) -> Result<Child, String> {
        self.werkruf_with(model, database, &[])
    }

    /// Starts Werkruf with more settings.
    pub fn werkruf_with(&self, model: &Child, database: &Database, more: &[(&str, &str)]) -> Result<Child, String> {
        self.werkruf_from(&self.program, model, database, more)
    }

    /// Starts another build of Werkruf.
    pub fn werkruf_from(&self, program: &Path, model: &Child, database: &Database, more: &[(&str, &str)]) -> Result<Child, String> {
        let (url, schema) = match database {
            Database::File(file) => (format!("sqlite:{}", file.display()), "werkruf"),
            Database::Schema { url, name } => (url.clone(), name.as_str()),
        };
        let environment = [
            ("WERKRUF_DATABASE_SCHEMA", schema),
            ("OPENAI_BASE_URL", model.url.as_str()),
            ("OPENAI_MODEL", "fixed"),
            ("WERKRUF_ADMIN_KEY", KEY),
            ("WERKRUF_TEST_TOOLS", "1"),
            ("WERKRUF_SAMPLE_DATA", "on"),
            // All messages come from one user, so the rate limit per user is off; everything else is as shipped.
            ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "0"),
        ];
        let environment = [&environment, more].concat();
        Child::start(program, &["serve", "--listen", "127.0.0.1:0", "--database", &url], &environment)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Best effort: the folder is in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The load target for a floor.
pub fn floor_target(floor: &Child, older: Option<Arc<Older>>) -> Target {
    Target { servers: vec![(floor.url.clone(), floor.pid())], key: None, older }
}

/// The load target for one Werkruf server.
pub fn werkruf_target(werkruf: &Child, older: Option<Arc<Older>>) -> Target {
    cluster_target(std::slice::from_ref(werkruf), older)
}

/// The load target for several Werkruf servers on one database; each chat stays with one of them.
pub fn cluster_target(replicas: &[Child], older: Option<Arc<Older>>) -> Target {
    Target { servers: replicas.iter().map(|one| (one.url.clone(), one.pid())).collect(), key: Some(KEY.to_owned()), older }
}
