//! What authentication needs beyond principals and keys.

use werkruf_contract::Uuid;

use crate::{StoreFuture, TokenRoles, UserRow};

/// The users whom tokens and requests name.
pub trait IdentityStore: Send + Sync {
    fn user_by_external_id(&self, tenant_id: Uuid, external_id: String) -> StoreFuture<'_, Option<UserRow>>;
    /// Creates a user known only by the id from a channel, with one role. The user id is a new integer, or the given one.
    fn create_guest(&self, tenant_id: Uuid, user_id: Option<i64>, external_id: Option<String>, role: String) -> StoreFuture<'_, UserRow>;
    /// Stores the roles that a token names for a user. They count until the token expires, another token comes, or the user is imported.
    fn put_token_roles(&self, tenant_id: Uuid, user_id: i64, roles: Option<TokenRoles>) -> StoreFuture<'_, ()>;
    /// Those of the names that no role of the tenant has.
    fn unknown_roles(&self, tenant_id: Uuid, names: Vec<String>) -> StoreFuture<'_, Vec<String>>;
    /// Those of these users, of any tenant, that exist and are active.
    fn active_users(&self, users: Vec<(Uuid, i64)>) -> StoreFuture<'_, Vec<(Uuid, i64)>>;
}
