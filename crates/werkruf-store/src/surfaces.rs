//! What single parts of the server need of a database beyond [`Store`](crate::Store): one trait for each part.

use crate::import::Import;
use crate::{
    Alerts, AuditLog, BudgetStatistics, ClientConversations, ClientTurns, ConsoleSessions, Diagnostics, Hints, HistoryImport, Installation,
    Legacy, ManageBudgets, ManageKeys, ManageOutbox, ManagePeople, UsageStatistics,
};

/// The console.
pub trait ConsoleStore: ConsoleSessions + Hints {}

impl<S: ConsoleSessions + Hints> ConsoleStore for S {}

/// Conversations as clients of the OpenAI-compatible API know them, and as other programs export them.
pub trait ClientStore: ClientTurns + ClientConversations + HistoryImport {}

impl<S: ClientTurns + ClientConversations + HistoryImport> ClientStore for S {}

/// What the operator watches: alerts, measurements, and what was used.
pub trait MonitoringStore: Alerts + Diagnostics + UsageStatistics + BudgetStatistics {}

impl<S: Alerts + Diagnostics + UsageStatistics + BudgetStatistics> MonitoringStore for S {}

/// What administrators and the operator change.
pub trait AdministrationStore:
    Installation + ManagePeople + ManageKeys + ManageBudgets + ManageOutbox + AuditLog + Import + Legacy
{
}

impl<S> AdministrationStore for S where
    S: Installation + ManagePeople + ManageKeys + ManageBudgets + ManageOutbox + AuditLog + Import + Legacy
{
}
