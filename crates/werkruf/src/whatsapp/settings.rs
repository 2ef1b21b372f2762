//! What the configuration says about WhatsApp.

use std::time::Duration;

use secrecy::SecretString;
use werkruf_contract::Uuid;

use super::keywords::Keywords;

/// `[whatsapp]`. Without a number the channel is off.
#[derive(Debug, Clone)]
pub struct WhatsAppSettings {
    /// The address of the Graph API, without a slash at the end.
    pub base_url: String,
    /// Such as `v26.0`.
    pub api_version: String,
    /// How long a message whose sending is in doubt waits for a delivery report.
    pub reconcile: Duration,
    pub numbers: Vec<Number>,
    pub(crate) keywords: Keywords,
    /// The app secret and the verify token of the environment. Requests of this app count as Meta's also where no number has them.
    pub(crate) app_secret: Option<SecretString>,
    pub(crate) verify_token: Option<SecretString>,
}

/// A number that receives and sends messages, with its own credentials.
#[derive(Debug, Clone)]
pub struct Number {
    pub phone_number_id: String,
    /// Where the configuration names it: `/whatsapp/numbers/0`, or a variable.
    pub(crate) place: String,
    /// Slug or id of the tenant whose people write to this number.
    pub tenant: String,
    /// The id of that tenant; nil until the store was asked.
    pub tenant_id: Uuid,
    /// Decides between several people with the same address. It neither widens nor narrows what a person sees.
    pub branch_id: Option<i64>,
    pub access_token: SecretString,
    pub app_secret: SecretString,
    pub verify_token: SecretString,
    /// The template that is sent outside of the 24-hour window. Its body has one variable.
    pub template: Option<String>,
    /// The same for approvals: it also has two quick-reply buttons, approve and deny.
    pub approval_template: Option<String>,
    pub template_language: String,
    pub assistant: String,
}

impl Number {
    /// The place of one of its fields in the configuration.
    pub(crate) fn place_of(&self, field: &str) -> String {
        if self.place.starts_with('/') { format!("{}/{field}", self.place) } else { self.place.clone() }
    }
}

impl WhatsAppSettings {
    /// Whether the environment has credentials, but nothing names a number.
    pub(crate) fn lacks_a_number(&self) -> bool {
        self.numbers.is_empty() && (self.app_secret.is_some() || self.verify_token.is_some())
    }

    pub(crate) fn number(&self, phone_number_id: &str) -> Option<&Number> {
        self.numbers.iter().find(|number| number.phone_number_id == phone_number_id)
    }
}
