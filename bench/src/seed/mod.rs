//! What lies in a database before the load comes: older conversations, and calls by the thousand. Written through the
//! store, by whose rules Werkruf reads it; the floor writes its own.

mod calls;
mod history;

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;
use werkruf_contract::Clock;
use werkruf_store::{People, SqliteStore};

pub use calls::calls;
pub use history::{HISTORY, Past, history, past};

/// Writes that are under way at once, so that they share their commits.
const AT_ONCE: usize = 256;

/// The database of a Werkruf that was started once and stopped, and its one tenant.
pub struct Seedbed {
    store: Arc<SqliteStore>,
    clock: Clock,
    tenant_id: Uuid,
}

impl Seedbed {
    /// Opens it; no server may hold it.
    pub async fn open(path: &Path) -> Result<Self, String> {
        let clock = Clock::system(0);
        let store = SqliteStore::open(path, &clock).map_err(|error| error.to_string())?;
        let tenant = store.tenant("demo".to_owned()).await.map_err(|error| error.to_string())?.ok_or("there is no tenant yet")?;
        Ok(Self { store, clock, tenant_id: tenant.id })
    }
}
