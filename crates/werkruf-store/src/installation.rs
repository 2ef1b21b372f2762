//! The installation: its tenants, and facts about itself.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::{People, StoreFuture, TenantRow};

/// Makes tenants, and stores facts about the installation.
pub trait Installation: People {
    /// Creates the tenant when it is new.
    fn ensure_tenant(&self, id: Uuid, slug: String, now: Timestamp) -> StoreFuture<'_, TenantRow>;
    /// A fact about the installation itself, such as whether sample data was written.
    fn setting(&self, name: String) -> StoreFuture<'_, Option<String>>;
    fn put_setting(&self, name: String, value: String) -> StoreFuture<'_, ()>;
}
