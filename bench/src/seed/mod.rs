//! What lies in a database before the load comes: older conversations, and calls by the thousand. Written through the
//! store, by whose rules Werkruf reads it; the floor writes its own.

mod calls;
mod history;
mod library;

use std::sync::Arc;

use uuid::Uuid;
use werkruf_contract::Clock;
use werkruf_store::knowledge::NewVector;
use werkruf_store::{PostgresOptions, PostgresStore, SqliteStore, Store};

use crate::stage::Place;

pub use calls::calls;
pub use history::{HISTORY, Past, history, past};
pub use library::{MadeLibrary, MadeQuestion};

/// Chunks that get their vectors in one commit.
const PAGE: u32 = 2_000;
/// Writes that are under way at once, so that they share their commits.
const AT_ONCE: usize = 256;

/// The database of a Werkruf that was started once and stopped, and its one tenant.
pub struct Seedbed {
    store: Arc<dyn Store>,
    clock: Clock,
    tenant_id: Uuid,
}

impl Seedbed {
    /// Opens it; no server may hold it.
    pub async fn open(place: &Place) -> Result<Self, String> {
        let clock = Clock::system(0);
        let store: Arc<dyn Store> = match place {
            Place::File(file) => SqliteStore::open(file, &clock).map_err(|error| error.to_string())?,
            Place::Schema { url, name } => {
                let options = PostgresOptions { schema: name.clone(), ..PostgresOptions::new(url.clone()) };
                PostgresStore::open(options, &clock).await.map_err(|error| error.to_string())?
            }
        };
        let tenant = store.tenant("demo".to_owned()).await.map_err(|error| error.to_string())?.ok_or("there is no tenant yet")?;
        Ok(Self { store, clock, tenant_id: tenant.id })
    }

    /// Gives every chunk that has none of this model's its vector.
    pub async fn vectors(&self, model: &str, of_text: impl Fn(&str) -> Vec<f32>) -> Result<(), String> {
        let mut after = 0;
        loop {
            let chunks = self.store.unembedded(model.to_owned(), after, PAGE).await.map_err(|error| error.to_string())?;
            let Some(last) = chunks.last() else { return Ok(()) };
            after = last.number;
            let vectors = chunks.iter().map(|chunk| NewVector { number: chunk.number, vector: Some(of_text(&chunk.content)) }).collect();
            self.store.put_vectors(model.to_owned(), vectors).await.map_err(|error| error.to_string())?;
        }
    }
}
