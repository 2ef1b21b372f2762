//! Usage rows of requests that a turn's commits do not write: requests of tools while they are in progress, and requests outside any turn.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{NewUsage, StoreFuture};

/// Whose usage it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageOwner {
    pub tenant_id: Uuid,
    /// Empty where no user requested the work.
    pub user_id: String,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
}

/// Writes usage rows by themselves.
pub trait UsageRows: Send + Sync {
    /// Writes a row. A row with the same id is replaced: an estimate by the reported tokens.
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()>;
    /// Deletes the row of a request that was never sent.
    fn delete_usage(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, ()>;
}
