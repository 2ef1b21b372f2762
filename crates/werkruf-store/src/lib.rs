//! The database layer: small traits for what is stored, implemented for SQLite and PostgreSQL with hand-written SQL for each.
//!
//! **To store something new:** put its row type into `rows`, what a turn writes of it into [`TurnWrite`], a read method into the
//! trait of its readers, and the SQL into each database folder. What only one part of the server needs goes into a trait of
//! `surfaces`. The shared tests in `story` run on every database.
//!
//! Invariants: every write of a turn carries its [`Fence`] and is refused as [`StoreError::Fenced`] when
//! the lease has another owner; every update checks its row count; a commit is durable before its future resolves.

mod alerts;
mod approvals;
mod audit;
mod audit_check;
mod budgets;
mod channel;
mod client_conversations;
mod client_requests;
mod cluster;
mod connections;
mod console;
pub mod crash;
mod diagnosis;
mod error;
mod hints;
mod history;
mod identity;
pub mod import;
mod installation;
mod keys;
mod legacy;
mod maintenance;
mod manage_people;
mod module;
mod moving;
mod operator_database;
mod outbox;
mod page;
mod phone;
pub mod postgres;
mod provider_tokens;
mod reading;
mod retention;
mod rows;
mod schema;
mod seal;
mod secret_keys;
pub mod sqlite;
#[cfg(test)]
mod story;
mod streams;
mod surfaces;
#[cfg(test)]
#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;
mod tool_pins;
mod turn_closer;
mod usage;
mod usage_statistics;
mod write;

pub use alerts::{AlertKey, AlertRow, Alerts, NewAlert, PoisonTurn, StoredConditions, WaitingApproval};
pub use approvals::{ApprovalFilter, ApprovalRow, Approvals, Decision, DecisionOutcome, NewApproval};
pub use audit::{Act, Actor, Audit, AuditHead, AuditLog, AuditRow, Author, Recorder, SERVER_CHAIN};
pub use audit_check::{AuditBreak, AuditReport, verify_chain};
pub use budgets::{
    Budget, BudgetClaim, BudgetCounter, BudgetPeriod, BudgetScope, BudgetStatistics, BudgetUnit, BudgetUse, Budgets, ManageBudgets,
    NewReservation, OverBudget, TenantBudgets,
};
pub use channel::{ChannelStore, DeliveryReport, NewContact, Notice, RecordedInbound, ReportedStatus, Resend};
pub use client_conversations::{ClientConversations, ConversationCopy, MessageChange, MessageEdit, NewItems};
pub use client_requests::{ClientRequests, ClientTurns, ResumePoint, SentTurn};
pub use cluster::{CLAIM_WINDOW, Cluster, LeaseReport, READ_MARK, StreamPosition, TokenGrant};
pub use connections::{
    ConnectionChange, ConnectionKey, ConnectionRequest, ConnectionRow, ConnectionStore, Connections, NewConnectionRequest, OpenedLink,
};
pub use console::{ConsoleSession, ConsoleSessions, LinkUse, NewConsoleSession, SessionHolder};
pub use diagnosis::{DatabaseConnections, Diagnosis, Diagnostics, Measurements};
pub use error::StoreError;
pub use hints::{HintKind, HintRow, Hints, MAX_HINTS};
pub use history::{HistoryImport, NewHistory};
pub use identity::IdentityStore;
pub use installation::Installation;
pub use keys::{KeyDigest, KeyRow, KeyUse, Keys, ManageKeys, NewKey, Scopes};
pub use legacy::{Legacy, LegacyError, LegacyImport, LegacyReport, LegacySource, Skipped};
pub use maintenance::{Backup, Counts, Erased, HeldWork, Maintenance, MaintenanceError, MaintenanceFuture, Restored};
pub use manage_people::{EditRefusal, MAX_PERSON_ID, ManagePeople, NumberPage, PeopleEdit, PeopleKind, PeoplePage, PeopleRow, Uses};
pub use module::{FunctionSet, Migration, Module, ModuleSchema, ModuleTable, Modules, OnErase, PostgresSchema};
pub use moving::{Moved, TableSum};
pub use operator_database::{BoundedRead, Dialect, NamedQuery, OperatorDatabase, ReadError, ReadRows};
pub use outbox::{
    ATTEMPTS_EXHAUSTED, Account, Claim, Claimed, ContactRow, DueAccount, EARLIER_PART_DEAD, ManageOutbox, NewOutboxRow, OUTCOME_UNKNOWN,
    Outbox, OutboxFilter, OutboxRow, OutboxStatus, Recipient, SendEnd, Settlement,
};
pub use page::{ListRow, Order, Page};
pub use phone::canonical_phone;
pub use postgres::{OperatorPostgres, PostgresOptions, PostgresStore};
pub use provider_tokens::{INSTALLATION, ProviderAccount, ProviderTokens, SealedToken};
pub use retention::{Retention, RowKey, Sweep, Sweepable, Swept};
pub use rows::{
    AttemptRow, CallFilter, CallRow, ConversationFilter, ConversationRow, EventRow, IdOf, InboxEntry, JsonText, MessageRow, NewCall,
    Reusable, RowCounts, Summary, TenantRow, TokenRoles, TurnRow, UserRow,
};
pub use schema::SchemaReport;
pub use seal::Seal;
pub use secret_keys::{SecretKey, SecretKeys};
pub use sqlite::{OperatorSqlite, SqliteStore};
pub(crate) use streams::DeletedEvents;
pub use streams::{NewPartial, PartialText, ReadLimit, StreamKey, Streams};
pub use surfaces::{AdministrationStore, ClientStore, ConsoleStore, MonitoringStore};
pub use tool_pins::{SeenTool, ToolChange, ToolPin, ToolPins};
pub use turn_closer::{CloseReason, TurnCloser, UnfinishedTurn};
pub use usage::{NewUsage, RequestsOf, UsageOwner, UsageRows};
pub use usage_statistics::{TurnRequest, UsageGroup, UsageQuery, UsageRequest, UsageStatistics, UsageSum};
pub use write::{
    CallEnd, CallRetry, CallStart, ConversationRef, Fence, NewEvent, NewMessage, OpenTurn, Opened, ProviderCallUpdate, Replacement,
    TurnCancellation, TurnChange, TurnKind, TurnWrite, Written,
};

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use werkruf_contract::{BoxFuture, Permission, Principal, State, Uuid};

/// The return type of every method. It is boxed because the server holds its store as `Arc<dyn Store>`.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// All traits of a database that the kernel uses. What only one part of the server needs is a trait of its own: [`ConsoleStore`],
/// [`ClientStore`], [`MonitoringStore`], [`AdministrationStore`], [`IdentityStore`] and [`ChannelStore`]; [`ProviderTokens`] for modules;
/// [`ToolPins`] and [`ConnectionStore`] for tools of other servers. The server opens one database and passes it on by the single traits.
pub trait Store:
    Turns
    + Records
    + ClientRequests
    + Streams
    + People
    + Keys
    + Approvals
    + Cluster
    + Outbox
    + Budgets
    + UsageRows
    + Retention
    + Maintenance
    + Audit
    + std::fmt::Debug
    + 'static
{
}

impl Store for PostgresStore {}
impl Store for SqliteStore {}

/// What a turn writes, and what it must read to continue.
pub trait Turns: Send + Sync {
    /// Commit A: inbox, message, turn and lease in one transaction; durable when it resolves. While an earlier turn of the
    /// conversation is open the new turn waits; a new turn with calls is refused as [`StoreError::Busy`], and nothing is stored.
    fn open_turn(&self, open: OpenTurn) -> StoreFuture<'_, Opened>;
    /// The turn of a message that the inbox has already, and whether its body was the same. An item that started no turn is not found here.
    fn known_copy(&self, tenant_id: Uuid, entry: InboxEntry, now: Timestamp) -> StoreFuture<'_, Option<(Uuid, bool)>>;
    /// Starts a turn that waited behind another: it takes the lease, and its message gets its `seq`. [`StoreError::Busy`] while
    /// another turn of the conversation has started and not ended, whether or not a process runs that turn.
    fn start_turn(&self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp) -> StoreFuture<'_, Fence>;
    /// Commits B, C and D: all parts of the write, or none.
    fn write(&self, write: TurnWrite) -> StoreFuture<'_, Written>;
    /// Stores a cancel request, which the owner of the turn carries out. False when there is no such running turn.
    fn request_cancel(&self, tenant_id: Uuid, turn_id: Uuid, now: Timestamp) -> StoreFuture<'_, bool>;
    /// Ends a turn that waits behind another, with this error and its event, without touching a lease. Returns the event's number,
    /// or `None` when the turn does not wait (any more).
    fn cancel_waiting(&self, tenant_id: Uuid, turn_id: Uuid, cancellation: TurnCancellation) -> StoreFuture<'_, Option<i64>>;
    /// Merges into the session state from outside a turn. Returns the merged state, or `None` without such a conversation. A patch that
    /// makes the state grow beyond `max_bytes` as JSON is refused as [`StoreError::StateTooLarge`].
    fn patch_state(
        &self,
        tenant_id: Uuid,
        conversation_id: Uuid,
        patch: State,
        max_bytes: usize,
        now: Timestamp,
    ) -> StoreFuture<'_, Option<State>>;
    /// The messages of the conversation that have a `seq`, in order.
    fn history(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Vec<MessageRow>>;
    /// Those of these ids that a result in the conversation already has.
    fn taken_call_ids(&self, tenant_id: Uuid, conversation_id: Uuid, ids: Vec<String>) -> StoreFuture<'_, Vec<String>>;
    /// The newest call with this key whose result may be reused, in the conversation or among calls without one: see [`Reusable`].
    fn reusable_call(&self, tenant_id: Uuid, conversation_id: Option<Uuid>, dedupe_key: String) -> StoreFuture<'_, Option<Reusable>>;
    /// Turns that have not ended and whose lease no owner but `owner` holds, oldest first. Only the caller knows which of them it still runs.
    fn unfinished_turns(&self, owner: String) -> StoreFuture<'_, Vec<TurnRow>>;
    /// Claims the lease of a turn that has already started; its message already has a `seq`.
    fn take_over(&self, tenant_id: Uuid, turn_id: Uuid, owner: String, now: Timestamp) -> StoreFuture<'_, Fence>;
    /// Releases the lease without ending the turn. Another process, or this one after a restart, resumes the turn, and that does not
    /// count as a takeover.
    fn release(&self, fence: Fence) -> StoreFuture<'_, ()>;
    /// The summary of the messages before those that are still sent to the model, if there is one.
    fn summary(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Summary>>;
    /// Removes a conversation and everything in it; false when there is none, an error while a turn runs.
    fn delete_conversation(&self, tenant_id: Uuid, conversation_id: Uuid) -> StoreFuture<'_, bool>;
}

/// Rows for the API and the CLI.
pub trait Records: Send + Sync {
    fn conversation(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ConversationRow>>;
    fn conversations(&self, tenant_id: Uuid, filter: ConversationFilter, page: Page) -> StoreFuture<'_, Vec<ConversationRow>>;
    fn messages(&self, tenant_id: Uuid, conversation_id: Uuid, page: Page) -> StoreFuture<'_, Vec<MessageRow>>;
    fn turn(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<TurnRow>>;
    fn call(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<CallRow>>;
    fn calls(&self, tenant_id: Uuid, filter: CallFilter, page: Page) -> StoreFuture<'_, Vec<CallRow>>;
    /// The attempts before the one in the call row itself.
    fn attempts(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, Vec<AttemptRow>>;
    /// Ids that begin or end with the text, the newest first.
    fn ids_like(&self, tenant_id: Uuid, of: IdOf, text: String, limit: u32) -> StoreFuture<'_, Vec<Uuid>>;
    /// Checks that the database answers.
    fn ping(&self) -> StoreFuture<'_, ()>;
}

/// Tenants, and users with their roles and permissions.
pub trait People: Send + Sync {
    /// By slug or id.
    fn tenant(&self, name: String) -> StoreFuture<'_, Option<TenantRow>>;
    fn tenants(&self) -> StoreFuture<'_, Vec<TenantRow>>;
    /// An active user with all roles and their permissions, as of now. Roles from a token count until the token expires.
    fn principal(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Option<Arc<Principal>>>;
    /// The users with this id of a channel; if there is none, those without an id of the channel whose phone has the same canonical form.
    /// Nobody, if one of them is not active: the sender may be that person.
    fn users_by_address(
        &self,
        tenant_id: Uuid,
        channel_user_id: Option<String>,
        phone: Option<String>,
    ) -> StoreFuture<'_, Vec<PersonAddress>>;
    /// The active users who have one of these roles now. Roles from a token count as for [`People::principal`].
    fn users_with_roles(&self, tenant_id: Uuid, roles: Vec<String>) -> StoreFuture<'_, Vec<PersonAddress>>;
}

/// Where a user can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonAddress {
    pub user_id: i64,
    pub branch_id: Option<i64>,
    pub locale: String,
    pub phone: Option<String>,
    pub whatsapp_user_id: Option<String>,
}

/// The people part of an import file.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PeopleBatch {
    #[serde(default)]
    pub branches: Vec<Branch>,
    #[serde(default)]
    pub roles: Vec<RoleWithPermissions>,
    #[serde(default)]
    pub users: Vec<NewUser>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    pub id: i64,
    pub name: String,
    pub time_zone: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleWithPermissions {
    pub id: i64,
    pub name: String,
    #[serde(default)]
    pub permissions: Vec<Permission>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewUser {
    pub id: i64,
    pub first_name: String,
    pub last_name: String,
    pub email: Option<String>,
    pub phone: Option<String>,
    pub whatsapp_user_id: Option<String>,
    pub external_id: Option<String>,
    pub locale: String,
    pub time_zone: Option<String>,
    pub branch_id: Option<i64>,
    #[serde(default)]
    pub role_ids: Vec<i64>,
    /// A user who is not active is treated as unknown. `None` in a row of an import that does not say: then a user stays as they are, and
    /// a new one is active.
    #[serde(default)]
    pub active: Option<bool>,
}

impl NewUser {
    pub fn is_active(&self) -> bool {
        self.active != Some(false)
    }
}
