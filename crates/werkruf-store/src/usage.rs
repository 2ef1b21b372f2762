//! Usage rows of requests that a turn's commits do not write: requests of tools while they are in progress, and requests outside any turn.

use jiff::Timestamp;
use werkruf_contract::{Usage, Uuid};

use crate::StoreFuture;
use crate::budgets::BudgetCounter;

/// Whose usage it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageOwner {
    pub tenant_id: Uuid,
    /// Empty where no user requested the work.
    pub user_id: String,
    pub conversation_id: Option<Uuid>,
    pub turn_id: Option<Uuid>,
}

/// Which requests of a turn count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestsOf {
    /// The turn's own requests to its model.
    Turn,
    /// These, and those of its tools.
    TurnAndTools,
}

/// Usage rows by themselves.
pub trait UsageRows: Send + Sync {
    /// Writes a row. A row with the same id is replaced: an estimate by the reported tokens.
    fn put_usage(&self, owner: UsageOwner, usage: NewUsage, now: Timestamp) -> StoreFuture<'_, ()>;
    /// Takes back what was written before a request that was never sent: its row, and its reservation.
    fn delete_usage(&self, tenant_id: Uuid, id: Option<Uuid>, reservation: Option<Uuid>) -> StoreFuture<'_, ()>;
    /// What a turn has used so far.
    fn turn_usage(&self, tenant_id: Uuid, turn_id: Uuid, of: RequestsOf) -> StoreFuture<'_, Usage>;
}

/// One provider request, priced or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUsage {
    pub id: Uuid,
    pub call_id: Option<Uuid>,
    pub key_id: Option<Uuid>,
    pub provider: String,
    pub model: String,
    pub operation: &'static str,
    /// The id that the provider gave the request.
    pub request_id: Option<String>,
    /// When the request left; `None` where an earlier process sent it.
    pub started_at: Option<Timestamp>,
    /// How long it took, to the end of the answer or to its failure.
    pub took_ms: Option<i64>,
    /// The tool that made the request, where one did.
    pub tool_name: Option<String>,
    pub tokens_prompt: i64,
    pub tokens_cached: i64,
    pub tokens_completion: i64,
    pub tokens_reasoning: i64,
    pub tokens_total: i64,
    pub estimated: bool,
    pub cost_nano_usd: Option<i64>,
    /// The assistant of the turn.
    pub assistant: Option<String>,
    /// The budgets that count the request.
    pub counted_in: Vec<BudgetCounter>,
    /// The reservation that ends with this row.
    pub reservation: Option<Uuid>,
}

impl NewUsage {
    /// A reported usage of no tokens, without call, key and cost.
    pub fn new(id: Uuid, provider: impl Into<String>, model: impl Into<String>, operation: &'static str) -> Self {
        Self {
            id,
            call_id: None,
            key_id: None,
            provider: provider.into(),
            model: model.into(),
            operation,
            request_id: None,
            started_at: None,
            took_ms: None,
            tool_name: None,
            tokens_prompt: 0,
            tokens_cached: 0,
            tokens_completion: 0,
            tokens_reasoning: 0,
            tokens_total: 0,
            estimated: false,
            cost_nano_usd: None,
            assistant: None,
            counted_in: Vec::new(),
            reservation: None,
        }
    }
}
