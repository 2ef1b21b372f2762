//! What the flight search stores: calls counted against the quota of a provider's account, and cached answers of providers.
//!
//! Quotas belong to an account of the installation, not to a tenant: one key serves all tenants. Answers are cached per tenant.

use jiff::Timestamp;
use jiff::civil::Date;
use werkruf_contract::Uuid;
use werkruf_store::{
    FunctionSet, Migration, ModuleSchema, ModuleTable, OnErase, PostgresSchema, ProviderAccount, ProviderTokens, StoreFuture,
};

/// The module's part of the schema.
pub const SCHEMA: &ModuleSchema = &ModuleSchema {
    name: "flights",
    tables: &[
        ModuleTable::new("provider_quota", OnErase::Keep { columns: &["provider", "account", "day"], why: "the company's accounts" }),
        ModuleTable {
            expires: Some("expires_at"),
            ..ModuleTable::new(
                "provider_answers",
                OnErase::Keep { columns: &["digest", "answer"], why: "offers of a provider, the same for everyone, for minutes" },
            )
        },
    ],
    import: None,
    sqlite: &[Migration::first(include_str!("../migrations/sqlite/0001_first.sql"))],
    postgres: PostgresSchema {
        functions: Some(FunctionSet { number: 1, compatible_with: 1, files: &[include_str!("../functions/amadeus_tokens.sql")] }),
        ..PostgresSchema::new(&[Migration::first(include_str!("../migrations/postgres/0001_first.sql"))])
    },
};

/// Quotas and answers of providers, shared by every process on the database.
pub trait FlightStore: ProviderTokens {
    /// Counts one call of the day before it is sent, and returns its number, from 1. `None`: no call is left, by `limit`
    /// or by the provider's last report, and nothing is counted.
    fn spend_call(&self, account: ProviderAccount, day: Date, limit: u32) -> StoreFuture<'_, Option<i64>>;
    /// Stores how many calls the provider reported as left after this call.
    fn calls_left(&self, account: ProviderAccount, day: Date, call: i64, left: i64) -> StoreFuture<'_, ()>;
    /// The provider accepts no more calls on this day, whatever was counted.
    fn close_day(&self, account: ProviderAccount, day: Date) -> StoreFuture<'_, ()>;
    /// The cached answer under this key, unless it has expired.
    fn cached_answer(&self, tenant_id: Uuid, key: String, now: Timestamp) -> StoreFuture<'_, Option<String>>;
    /// Caches an answer until then. Retention deletes expired answers.
    fn cache_answer(&self, tenant_id: Uuid, key: String, answer: String, until: Timestamp, now: Timestamp) -> StoreFuture<'_, ()>;
}
