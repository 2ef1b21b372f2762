//! A call as it is requested, by a model, a program or a retry.

use serde_json::Value;
use werkruf_contract::{CallKind, Failure, Uuid};

#[derive(Debug, Clone)]
pub(crate) struct CallRequest {
    pub(crate) job_id: Uuid,
    pub(crate) kind: CallKind,
    pub(crate) item_id: Option<String>,
    pub(crate) call_id: Option<String>,
    pub(crate) response_id: Option<String>,
    pub(crate) output_index: u32,
    pub(crate) name: String,
    /// The server that the provider would call; only with a call that it runs itself.
    pub(crate) server_label: Option<String>,
    pub(crate) arguments: Arguments,
    /// The id of the call in the history; `None` where no message will hold its result.
    pub(crate) history_id: Option<String>,
    pub(crate) retry_of: Option<Uuid>,
    /// The key of the call that is retried.
    pub(crate) idempotency_key: Option<String>,
    /// What the model had read when it made the call that is retried.
    pub(crate) taint: Option<String>,
    /// Refused before the pipeline: too many calls, or the same call too often.
    pub(crate) refused: Option<Failure>,
}

/// Where arguments come from.
#[derive(Debug, Clone)]
pub(crate) enum Arguments {
    /// A model's text.
    Raw(String),
    /// A program's JSON.
    Given(Value),
}

impl CallRequest {
    /// Whether the provider asks for permission to run the call itself.
    pub(crate) fn is_of_provider(&self) -> bool {
        self.kind == CallKind::Mcp
    }

    /// A call without ids of a model's answer.
    pub(crate) const fn new(job_id: Uuid, name: String, arguments: Arguments) -> Self {
        Self {
            job_id,
            kind: CallKind::Function,
            item_id: None,
            call_id: None,
            response_id: None,
            output_index: 0,
            name,
            server_label: None,
            arguments,
            history_id: None,
            retry_of: None,
            idempotency_key: None,
            taint: None,
            refused: None,
        }
    }
}
