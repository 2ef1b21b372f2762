//! Maps the `model` of a request to an assistant, and the assistant to the model it uses.

use werkruf_contract::Principal;
use werkruf_runtime::{Assistant, Setup};

use crate::config::ModelConfig;

/// The channel of turns that start through the OpenAI-compatible APIs.
pub(crate) const CHANNEL: &str = "openai";

/// The assistants that this user may name, in the order of the configuration file.
pub(crate) fn offered<'a>(setup: &'a Setup, principal: &Principal) -> Vec<&'a Assistant> {
    let tenant = principal.tenant_id.to_string();
    let own = |name: &str| name == tenant || name == principal.tenant_slug;
    let on_channel = |assistant: &&Assistant| assistant.channels.is_empty() || assistant.channels.iter().any(|channel| channel == CHANNEL);
    let of_tenant = |assistant: &&Assistant| assistant.tenant.as_deref().is_none_or(own);
    setup.assistants.all().iter().filter(on_channel).filter(of_tenant).collect()
}

/// The assistant of a request: the one that `model` names, else the default one. `None` if the default one is not on this channel.
pub(crate) fn chosen<'a>(setup: &'a Setup, principal: &Principal, model: Option<&str>) -> Option<&'a Assistant> {
    let offered = offered(setup, principal);
    let named = |name: &str| offered.iter().find(|assistant| assistant.name == name).copied();
    model.and_then(named).or_else(|| named("default"))
}

/// The name of the model that an assistant uses.
pub(crate) fn model_name(assistant: Option<&Assistant>, config: &ModelConfig) -> String {
    let configured = match config {
        ModelConfig::Offline => "offline",
        ModelConfig::Server(server) => server.model.as_deref().unwrap_or_default(),
    };
    let offline = matches!(config, ModelConfig::Offline);
    assistant.and_then(|assistant| assistant.model.clone()).filter(|_| !offline).unwrap_or_else(|| configured.to_owned())
}
