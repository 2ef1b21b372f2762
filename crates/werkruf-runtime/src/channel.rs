//! What a channel is: it cuts texts into parts and sends rows of the outbox to people or programs.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{BoxFuture, ErrorCode, Uuid};
use werkruf_store::{OutboxRow, PersonAddress};

/// A channel with an address per recipient, such as WhatsApp. Messages come in by its own routes; what it has to send are rows of the outbox.
pub trait Channel: Debug + Send + Sync {
    /// The name in rows, in the configuration and in `channels` of assistants.
    fn name(&self) -> &'static str;
    /// Cuts a text into parts that the channel can send, in order. A text without content has no part.
    fn parts(&self, text: &str) -> Vec<String>;
    /// Sends one row. It is called again only as the result says.
    fn send<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, SendResult>;
    /// How long a row whose sending is in doubt waits for a delivery report.
    fn reconcile_after(&self) -> Duration;
    /// Whether the configuration has this account. Rows of others wait for a process whose configuration has it.
    fn has_account(&self, _account: &str) -> bool {
        true
    }
    /// Whether the channel sends from this account for the tenant now.
    fn sends_for(&self, _tenant_id: Uuid, _account: &str) -> bool {
        true
    }
    /// Where a person of the tenant can be reached who has not written on this channel yet: the sending account and the address.
    fn address_of(&self, _tenant_id: Uuid, _person: &PersonAddress) -> Option<(String, String)> {
        None
    }
}

/// What became of one sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    Sent {
        /// The channel's id of the message.
        external_id: Option<String>,
    },
    /// It surely did not arrive. Another attempt follows, at the earliest after this time; without one, the outbox chooses.
    Retry { after: Option<Duration>, code: String, message: String },
    /// It may have arrived.
    Unknown { code: String, message: String },
    /// It did not arrive and never will.
    Dead { code: String, message: String },
}

/// What a row of the outbox carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutboxBody {
    /// A part of an answer, or a notice.
    Text { text: String },
    /// A request for a decision, with two buttons. `text` says what is decided, for people.
    Approval { text: String, approval_id: Uuid, approve: String, deny: String },
    /// A text for a person who may only get prepared messages now. With an approval, its buttons belong to it.
    Template {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<Uuid>,
    },
    /// An event for a program.
    Notification { event: Value },
    /// A message that came too late to be answered.
    StaleInbound { text: String },
}

/// What a channel says about an inbound message. It is stored with the turn, so that a process that takes the turn over knows it too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    pub reply_to: ReplyTo,
    /// A keyword: the call that answers the message without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectCall>,
    /// The sender wrote too many messages, or a budget is used up. The message is stored, and the turn ends without a model request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_limit: Option<OverLimit>,
}

impl Inbound {
    /// Whether the turn ends without any model request.
    pub(crate) const fn needs_no_model(&self) -> bool {
        self.direct.is_some() || self.over_limit.is_some()
    }

    /// As a turn's row has it.
    pub(crate) fn stored(column: Option<&str>) -> serde_json::Result<Option<Arc<Self>>> {
        column.map(|text| serde_json::from_str(text).map(Arc::new)).transpose()
    }
}

/// Where the answers of a turn go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    pub channel: String,
    /// The account that received the message, such as a phone number's id. It also sends the answers.
    pub account: String,
    /// The sender's address.
    pub address: String,
}

/// A call that a keyword stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectCall {
    pub tool: String,
    pub arguments: Value,
}

/// A message above the limit of turns, or of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverLimit {
    pub retry_after_ms: u64,
    /// The sender was told already.
    pub silent: bool,
    /// Why; `None`: the sender wrote too many messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}
