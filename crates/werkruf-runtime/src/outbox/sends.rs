//! What this process is sending now.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};
use werkruf_contract::Uuid;
use werkruf_store::Account;

#[derive(Default)]
pub(super) struct Sends {
    tasks: JoinSet<()>,
    rows: HashMap<Id, (Account, Uuid)>,
}

impl Sends {
    pub(super) fn start(&mut self, account: &Account, row: Uuid, delivery: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(delivery).id();
        self.rows.insert(task, (account.clone(), row));
    }

    /// How many rows of an account are being sent.
    pub(super) fn of(&self, account: &Account) -> usize {
        self.rows.values().filter(|(of, _)| of == account).count()
    }

    /// The rows that are being sent.
    pub(super) fn rows(&self) -> Vec<Uuid> {
        self.rows.values().map(|(_, row)| *row).collect()
    }

    /// Waits until one has ended. False when nothing is being sent.
    pub(super) async fn ended(&mut self) -> bool {
        let Some(ended) = self.tasks.join_next_with_id().await else { return false };
        let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
        self.rows.remove(&task);
        true
    }
}
