//! Which assistant a request's `model` means, and which model that assistant asks.

use werkruf_contract::Principal;
use werkruf_runtime::{Assistant, Setup};

use crate::config::ModelConfig;

/// The channel of these doors.
pub(crate) const CHANNEL: &str = "openai";

/// The assistants this person may name here, in the order of the file.
pub(crate) fn offered<'a>(setup: &'a Setup, principal: &Principal) -> Vec<&'a Assistant> {
    let tenant = principal.tenant_id.to_string();
    let own = |name: &str| name == tenant || name == principal.tenant_slug;
    let speaks = |assistant: &&Assistant| assistant.channels.is_empty() || assistant.channels.iter().any(|channel| channel == CHANNEL);
    let mine = |assistant: &&Assistant| assistant.tenant.as_deref().is_none_or(own);
    setup.assistants.all().iter().filter(speaks).filter(mine).collect()
}

/// The assistant of a request: the one `model` names, else the default one. `None` where that one does not speak here.
pub(crate) fn chosen<'a>(setup: &'a Setup, principal: &Principal, model: Option<&str>) -> Option<&'a Assistant> {
    let offered = offered(setup, principal);
    let named = |name: &str| offered.iter().find(|assistant| assistant.name == name).copied();
    model.and_then(named).or_else(|| named("default"))
}

/// The model that is really asked.
pub(crate) fn real(assistant: Option<&Assistant>, config: &ModelConfig) -> String {
    let configured = match config {
        ModelConfig::Offline => "offline",
        ModelConfig::Server(server) => server.model.as_deref().unwrap_or_default(),
    };
    let offline = matches!(config, ModelConfig::Offline);
    assistant.and_then(|assistant| assistant.model.clone()).filter(|_| !offline).unwrap_or_else(|| configured.to_owned())
}
