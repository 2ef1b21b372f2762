//! Assistants: a prompt, the tools an assistant may use, and the options of its model.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value};
use werkruf_contract::{Principal, ToolContext, ToolSpec};

use crate::taint::TaintPolicy;

/// The most characters of a name in a prompt.
const NAME_CHARS: usize = 100;

const DEFAULT_PROMPT: &str = "You are a helpful assistant. Today is {date}. You talk to {name}; answer in the language of their message \
(their locale is {language}). Use the functions when they can answer better than you:\n{functions}\n\
Never invent results of a function. If a function fails, say so in plain words.";

/// `[[assistants]]` of the config file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assistant {
    pub name: String,
    #[serde(default)]
    pub prompt: Option<String>,
    /// Read into `prompt` when the configuration is loaded.
    #[serde(default)]
    pub prompt_file: Option<String>,
    /// Empty means all.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub temperature: Option<f64>,
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    #[serde(default)]
    pub channels: Vec<String>,
    /// Slug or id; empty means every tenant.
    #[serde(default)]
    pub tenant: Option<String>,
    #[serde(default)]
    pub context_tokens: Option<u64>,
    /// Whether the model reads pictures and files. Where it does not, results of tools only name them.
    #[serde(default = "reads_pictures")]
    pub pictures: bool,
    /// What happens to the part of the history that does not fit.
    #[serde(default)]
    pub compaction: Compaction,
    /// A safety profile that applies to every turn, beside those of the request.
    #[serde(default)]
    pub safety_mode: Option<String>,
    /// The collections that its turns search; empty: the one of the request.
    #[serde(default)]
    pub collections: Vec<String>,
    /// Arguments of tools where neither the model nor the person says anything, by tool.
    #[serde(default)]
    pub defaults: BTreeMap<String, Map<String, Value>>,
    /// What calls with consequences need after the model has read untrusted content.
    #[serde(default)]
    pub taint: TaintPolicy,
}

const fn reads_pictures() -> bool {
    true
}

/// What happens to the older part of a history that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// It is left out. This costs nothing.
    #[default]
    Trim,
    /// The model summarises it first. This costs a request now and then.
    Summary,
}

impl Assistant {
    /// The assistant that always exists.
    pub fn fallback() -> Self {
        Self {
            name: "default".to_owned(),
            prompt: None,
            prompt_file: None,
            tools: Vec::new(),
            model: None,
            temperature: None,
            max_output_tokens: None,
            channels: Vec::new(),
            tenant: None,
            context_tokens: None,
            pictures: true,
            compaction: Compaction::default(),
            safety_mode: None,
            collections: Vec::new(),
            defaults: BTreeMap::new(),
            taint: TaintPolicy::default(),
        }
    }

    /// Whether this assistant may use the tool.
    pub fn may_use(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|name| name == tool)
    }

    /// Whether every model request of this assistant offers the tool.
    pub(crate) fn always_offers(&self, spec: &ToolSpec) -> bool {
        self.may_use(&spec.name) && !(spec.reads_results && self.tools.is_empty())
    }

    /// Applies what the assistant pins to the context of a turn.
    pub(crate) fn pin(&self, context: &mut ToolContext) {
        if let Some(profile) = &self.safety_mode {
            context.pin_safety(profile);
        }
        context.collections.clone_from(&self.collections);
        context.defaults = self.defaults.iter().map(|(tool, arguments)| (tool.clone(), Value::Object(arguments.clone()))).collect();
        if let ([only], None) = (self.collections.as_slice(), &context.collection_id) {
            context.collection_id = Some(only.clone());
        }
    }

    /// Whether the assistant answers on this channel.
    pub fn serves(&self, channel: &str) -> bool {
        self.channels.is_empty() || self.channels.iter().any(|own| own == channel)
    }

    /// The system prompt with its placeholders filled. Nothing that a tool or a conversation has written reaches it.
    pub(crate) fn system(&self, principal: &Principal, locale: &str, today: Date, functions: &str) -> String {
        let prompt = self.prompt.as_deref().unwrap_or(DEFAULT_PROMPT);
        // On one line and short: a name is no place for a paragraph of instructions.
        let words: Vec<&str> = principal.name.split_whitespace().collect();
        let name: String = words.join(" ").chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect();
        prompt
            .replace("{language}", locale)
            .replace("{date}", &today.to_string())
            .replace("{functions}", functions)
            .replace("{name}", &name)
    }
}

/// All assistants, `default` among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Assistants(Vec<Assistant>);

impl Assistants {
    /// Adds `default` when the file has none.
    pub fn new(mut assistants: Vec<Assistant>) -> Self {
        if !assistants.iter().any(|a| a.name == "default") {
            assistants.insert(0, Assistant::fallback());
        }
        Self(assistants)
    }

    /// By name, as this tenant (slug or id) may use it.
    pub fn find(&self, name: &str, tenant_names: &[&str]) -> Option<&Assistant> {
        self.0.iter().find(|a| a.name == name && a.tenant.as_deref().is_none_or(|tenant| tenant_names.contains(&tenant)))
    }

    /// In the order of the file.
    pub fn all(&self) -> &[Assistant] {
        &self.0
    }
}
