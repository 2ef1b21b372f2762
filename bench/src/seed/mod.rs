//! Fills a database before the load: older conversations and thousands of calls. The rows are written through the store, so
//! that they are valid for Werkruf; the floor writes its own rows.

mod calls;
mod history;
mod library;

use std::sync::Arc;

use uuid::Uuid;
use werkruf_contract::Clock;
use werkruf_knowledge::{Chunk, Knowledge, NewVector};
use werkruf_store::{HistoryImport, Modules, PostgresOptions, PostgresStore, SqliteStore, Store};

use crate::stage::Database;

pub use calls::calls;
pub use history::{HISTORY, Past, history, past};
pub use library::{MadeLibrary, MadeQuestion};

/// Chunks whose vectors are written in one commit.
const PAGE: u32 = 2_000;
/// Concurrent writes, which share their commits.
const AT_ONCE: usize = 256;

/// The modules of a server, in the order of its migrations.
pub const MODULES: Modules = &[werkruf_workspace::SCHEMA, werkruf_flights::SCHEMA, werkruf_knowledge::SCHEMA];

/// The database of a Werkruf server that was started once and stopped, and its tenant.
pub struct SeedStore {
    store: Arc<dyn Store>,
    history: Arc<dyn HistoryImport>,
    knowledge: Arc<dyn Knowledge>,
    clock: Clock,
    tenant_id: Uuid,
}

impl SeedStore {
    /// Opens the database; no server may use it.
    pub async fn open(database: &Database) -> Result<Self, String> {
        let clock = Clock::system(0);
        let (store, history, knowledge): (Arc<dyn Store>, Arc<dyn HistoryImport>, Arc<dyn Knowledge>) = match database {
            Database::File(file) => {
                let store = SqliteStore::open(file, &clock, MODULES).map_err(|error| error.to_string())?;
                (store.clone(), store.clone(), store)
            }
            Database::Schema { url, name } => {
                let options = PostgresOptions { schema: name.clone(), ..PostgresOptions::new(url.clone()) };
                let store = PostgresStore::open(options, &clock, MODULES).await.map_err(|error| error.to_string())?;
                (store.clone(), store.clone(), store)
            }
        };
        let tenant = store.tenant("demo".to_owned()).await.map_err(|error| error.to_string())?.ok_or("there is no tenant yet")?;
        Ok(Self { store, history, knowledge, clock, tenant_id: tenant.id })
    }

    /// Writes the vector of every chunk that has none of this model.
    pub async fn vectors(&self, model: &str, of_text: impl Fn(&str) -> Vec<f32>) -> Result<(), String> {
        let mut after = 0;
        loop {
            let chunks = self.knowledge.unembedded(model.to_owned(), after, PAGE).await.map_err(|error| error.to_string())?;
            let Some(last) = chunks.last() else { return Ok(()) };
            after = last.number;
            let vectors = chunks.iter().map(|chunk| NewVector { number: chunk.number, vector: Some(of_text(&chunk.content)) }).collect();
            self.knowledge.put_vectors(model.to_owned(), vectors).await.map_err(|error| error.to_string())?;
        }
    }

    /// The text of every chunk that has no vector of this model, as the server sends it to the model.
    pub async fn unembedded_texts(&self, model: &str) -> Result<Vec<String>, String> {
        let chunks = self.knowledge.unembedded(model.to_owned(), 0, u32::MAX).await.map_err(|error| error.to_string())?;
        Ok(chunks.iter().map(|chunk| Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content)).collect())
    }
}
