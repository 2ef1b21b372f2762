//! The channels and webhooks of a configuration: where rows of the outbox may go, and which programs are told what.

use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::Tenant;
use werkruf_store::{Account, Recipient};

use crate::channel::Channel;

/// The channel of webhooks.
pub const WEBHOOK: &str = "webhook";

/// What a program can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notification {
    ApprovalRequired,
    TurnFinished,
    TurnFailed,
    OutcomeUnknown,
    DeadLetter,
    // The operator's alerts.
    BudgetThreshold,
    DailyOverview,
    Credentials,
    ModelDown,
    Quota,
    Poison,
    ApprovalWaiting,
    LoopStalled,
    DiskLow,
    ToolChanged,
}

impl Notification {
    pub const ALL: [Self; 15] = [
        Self::ApprovalRequired,
        Self::TurnFinished,
        Self::TurnFailed,
        Self::OutcomeUnknown,
        Self::DeadLetter,
        Self::BudgetThreshold,
        Self::DailyOverview,
        Self::Credentials,
        Self::ModelDown,
        Self::Quota,
        Self::Poison,
        Self::ApprovalWaiting,
        Self::LoopStalled,
        Self::DiskLow,
        Self::ToolChanged,
    ];

    /// The name in the configuration and in `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequired => "approval_required",
            Self::TurnFinished => "turn_finished",
            Self::TurnFailed => "turn_failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::DeadLetter => "dead_letter",
            Self::BudgetThreshold => "budget_threshold",
            Self::DailyOverview => "daily_overview",
            Self::Credentials => "credentials",
            Self::ModelDown => "model_down",
            Self::Quota => "quota",
            Self::Poison => "poison",
            Self::ApprovalWaiting => "approval_waiting",
            Self::LoopStalled => "loop_stalled",
            Self::DiskLow => "disk_low",
            Self::ToolChanged => "tool_changed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|notification| notification.as_str() == name)
    }
}

/// A program that is told about turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The account in rows of the outbox.
    pub name: String,
    /// The slug or id of the only tenant whose turns it is told about.
    pub tenant: Option<String>,
    pub events: Vec<Notification>,
}

impl Webhook {
    fn is_for(&self, tenant: Tenant<'_>) -> bool {
        self.tenant.as_ref().is_none_or(|named| named == tenant.slug || *named == tenant.id.to_string())
    }

    fn wants(&self, tenant: Tenant<'_>, notification: Notification) -> bool {
        self.events.contains(&notification) && self.is_for(tenant)
    }
}

/// The channels by name, and the webhooks.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    channels: Vec<Arc<dyn Channel>>,
    webhooks: Vec<Webhook>,
}

impl Channels {
    pub fn new(channels: Vec<Arc<dyn Channel>>, webhooks: Vec<Webhook>) -> Self {
        Self { channels, webhooks }
    }

    /// The channel of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.channels.iter().find(|channel| channel.name() == name)
    }

    /// Whether the configuration has the account.
    pub(crate) fn know(&self, account: &Account) -> bool {
        self.find(&account.channel).is_some_and(|channel| channel.has_account(&account.account))
    }

    /// Whether a row goes to a webhook that now belongs to another tenant.
    pub(crate) fn refuse(&self, tenant: Tenant<'_>, to: &Recipient) -> bool {
        let named = self.webhooks.iter().find(|webhook| to.channel == WEBHOOK && webhook.name == to.account);
        named.is_some_and(|webhook| !webhook.is_for(tenant))
    }

    /// The channels that reach people, in the order of the configuration.
    pub(crate) fn of_people(&self) -> impl Iterator<Item = &Arc<dyn Channel>> {
        self.channels.iter().filter(|channel| channel.name() != WEBHOOK)
    }

    /// The webhooks that are told this about a turn of the tenant.
    pub(crate) fn webhooks_for(&self, tenant: Tenant<'_>, notification: Notification) -> impl Iterator<Item = &Webhook> {
        self.webhooks.iter().filter(move |webhook| webhook.wants(tenant, notification))
    }

    /// Whether any program is told anything.
    pub(crate) const fn has_webhooks(&self) -> bool {
        !self.webhooks.is_empty()
    }

    /// The longest time that a doubtful row waits for a delivery report.
    pub(crate) fn reconcile_after(&self) -> Duration {
        self.channels.iter().map(|channel| channel.reconcile_after()).max().unwrap_or_default()
    }
}
