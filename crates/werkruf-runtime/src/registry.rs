//! All tools by name. A turn keeps the registry it started with, so that a reload never changes a tool under a running call.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::Semaphore;
use werkruf_contract::{Shape, Tenant, Tool, ToolObject, ToolSpec, Trust, Typed, Uuid, strict};
use werkruf_llm::{PlannerMessage, ToolDefinition};

use crate::assistant::Assistant;
use crate::client_request::ClientRequest;

/// Fields of the session state that the server reads, or that tools of its modules read, whether they are compiled in or not.
const SERVER_FIELDS: [&str; 3] = ["memory", "preferences", "selected_itineraries"];
/// Fields with this beginning hold offers and half-finished requests.
const PENDING_FIELDS: &str = "pending_";

/// Why a tool cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tool {name}: {message}")]
pub struct RegistryFault {
    pub name: String,
    pub message: String,
}

/// A tool of another server that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutTool {
    /// The server, by its name here.
    pub server: String,
    /// The server's own name of the tool.
    pub own_name: String,
    pub fault: RegistryFault,
}

/// A tool with its schema compiled.
pub struct Entry {
    pub(crate) tool: Arc<dyn ToolObject>,
    pub(crate) shape: Shape,
    pub(crate) slots: Option<Arc<Semaphore>>,
    definition: ToolDefinition,
}

impl Entry {
    /// Name, effect, limits.
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// JSON Schema of the arguments.
    pub fn parameters(&self) -> &Value {
        self.tool.parameters()
    }

    /// JSON Schema of the data that the tool returns, if it is known.
    pub fn output_schema(&self) -> Option<&Value> {
        self.tool.output_schema()
    }

    /// The tool as a model sees it.
    pub const fn definition(&self) -> &ToolDefinition {
        &self.definition
    }
}

/// The tools that one assistant may use, built once and shared by all its turns.
#[derive(Clone)]
pub(crate) struct Offer {
    pub(crate) definitions: Arc<Vec<ToolDefinition>>,
    pub(crate) functions: Arc<str>,
}

/// The tools that the assistant names, and the tenant where a tool belongs to certain tenants.
type OfferKey = (Vec<String>, Option<Uuid>);

/// The tools by name, in the order they were added.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Arc<Entry>>,
    by_name: HashMap<String, usize>,
    offers: Mutex<HashMap<OfferKey, Offer>>,
    /// Whether a tool that was added belongs to certain tenants. Every turn asks.
    depends_on_tenant: bool,
    /// Fields of the session state that a tool owns.
    owned_fields: HashSet<&'static str>,
    /// Tools of other servers that could not be added.
    left_out: Vec<LeftOutTool>,
}

impl Registry {
    /// Adds a tool written in Rust.
    pub fn add<T: Tool>(&mut self, tool: T) -> Result<(), RegistryFault> {
        self.add_object(Arc::new(Typed::new(tool)))
    }

    /// Adds a tool without static types.
    pub fn add_object(&mut self, tool: Arc<dyn ToolObject>) -> Result<(), RegistryFault> {
        let spec = tool.spec();
        let name = spec.name.to_string();
        let fault = |message: String| RegistryFault { name: name.clone(), message };
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err(fault("a name has 1 to 64 letters, digits, _ or -".to_owned()));
        }
        if self.by_name.contains_key(&name) {
            return Err(fault("there is already a tool of this name".to_owned()));
        }
        let shape = if spec.judges_values { Shape::of_types(tool.parameters()) } else { Shape::compile(tool.parameters()) };
        let shape = shape.map_err(|error| fault(format!("its schema does not compile: {error}")))?;
        let strict_schema = strict(tool.parameters());
        let definition = ToolDefinition {
            name: name.clone(),
            description: spec.description.to_string(),
            strict: strict_schema.is_some(),
            parameters: strict_schema.unwrap_or_else(|| tool.parameters().clone()),
            texts: spec.texts,
        };
        let slots = (spec.concurrency > 0).then(|| Arc::new(Semaphore::new(spec.concurrency)));
        self.depends_on_tenant |= !spec.tenants.is_empty();
        self.owned_fields.extend(tool.owns_state());
        self.by_name.insert(name, self.entries.len());
        self.entries.push(Arc::new(Entry { tool, shape, slots, definition }));
        Ok(())
    }

    /// Adds a tool of another server. One that cannot be added is left out and remembered, so that the operator can be told.
    pub fn add_foreign(&mut self, server: &str, own_name: &str, tool: Arc<dyn ToolObject>) -> Result<(), RegistryFault> {
        let added = self.add_object(tool);
        if let Err(fault) = &added {
            self.left_out.push(LeftOutTool { server: server.to_owned(), own_name: own_name.to_owned(), fault: fault.clone() });
        }
        added
    }

    /// The tools of other servers that could not be added.
    pub fn left_out(&self) -> &[LeftOutTool] {
        &self.left_out
    }

    /// Removes tools by name.
    pub fn remove(&mut self, names: &[String]) {
        self.entries.retain(|entry| !names.iter().any(|name| entry.spec().goes_by(name)));
        self.by_name = self.entries.iter().enumerate().map(|(at, entry)| (entry.spec().name.to_string(), at)).collect();
    }

    /// The names of all tools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.spec().name.as_ref())
    }

    /// By the exact name, whatever tenant the tool belongs to. Other spellings are not matched.
    pub fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name).and_then(|at| self.entries.get(*at))
    }

    /// Like [`Self::find`]; a tool of other tenants does not exist for this one.
    pub fn find_for(&self, tenant: Tenant<'_>, name: &str) -> Option<&Arc<Entry>> {
        self.find(name).filter(|entry| entry.spec().serves(tenant))
    }

    /// The tools that this tenant has, in the order they were added. A tool with a second form for direct calls is named once.
    pub fn all_for(&self, tenant: Tenant<'_>) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.spec().direct_form_of.is_none() && entry.spec().serves(tenant))
    }

    /// Whether a result of this tool may change this field of the session state.
    pub(crate) fn may_patch(&self, entry: &Entry, field: &str) -> bool {
        let is_owned = field.starts_with(PENDING_FIELDS) || SERVER_FIELDS.contains(&field) || self.owned_fields.contains(field);
        !is_owned || entry.tool.owns_state().contains(&field)
    }

    /// Whether a tool belongs to certain tenants.
    pub const fn depends_on_tenant(&self) -> bool {
        self.depends_on_tenant
    }

    /// The tools of an assistant, for one tenant.
    pub(crate) fn offer(&self, assistant: &Assistant, tenant: Tenant<'_>) -> Offer {
        let key = (assistant.tools.clone(), self.depends_on_tenant().then_some(tenant.id));
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offer) = offers.get(&key) {
            return offer.clone();
        }
        let offered: Vec<&Arc<Entry>> = self.all_for(tenant).filter(|entry| assistant.always_offers(entry.spec())).collect();
        let functions: String = offered.iter().map(|entry| prompt_line(entry.spec())).collect();
        let offer = Offer {
            definitions: Arc::new(offered.iter().map(|entry| entry.definition.clone()).collect()),
            functions: Arc::from(functions),
        };
        offers.insert(key, offer.clone());
        offer
    }

    /// The same with a client's own tools, and without the server's tools that the client excludes or replaces by name.
    pub(crate) fn offer_with(&self, assistant: &Assistant, tenant: Tenant<'_>, client: &ClientRequest) -> Offer {
        let wanted = |name: &str| client.server_tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == name));
        let replaced = |name: &str| client.tools.iter().any(|tool| tool.name == name);
        let own = self.all_for(tenant).filter(|entry| {
            let name = entry.spec().name.as_ref();
            let named = client.server_tools.is_some() && assistant.may_use(name);
            (named || assistant.always_offers(entry.spec())) && wanted(name) && !replaced(name)
        });
        let (mut definitions, mut functions) = (Vec::new(), String::new());
        for entry in own {
            definitions.push(entry.definition.clone());
            functions.push_str(&prompt_line(entry.spec()));
        }
        functions.extend(client.tools.iter().map(|tool| format!("- {}: {}\n", tool.name, tool.description)));
        definitions.extend(client.tools.iter().map(|tool| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            strict: tool.strict,
            texts: None,
        }));
        Offer { definitions: Arc::new(definitions), functions: Arc::from(functions) }
    }

    /// The tool that reads on in large results, unless the client wants no tool of the server or replaces this one.
    pub(crate) fn reader(&self, tenant: Tenant<'_>, client: Option<&ClientRequest>) -> Option<&ToolDefinition> {
        let entry = self.all_for(tenant).find(|entry| entry.spec().reads_results)?;
        let excluded = |client: &ClientRequest| {
            client.server_tools.as_ref().is_some_and(Vec::is_empty) || client.tools.iter().any(|tool| tool.name == entry.definition.name)
        };
        (!client.is_some_and(excluded)).then_some(&entry.definition)
    }

    /// The calls that the tools propose for a message: those that fit it, else the one that continues the last result, else those of last
    /// resort. The offline planner uses them.
    pub fn propose(&self, message: &PlannerMessage<'_>) -> Vec<(String, Value)> {
        let PlannerMessage { text, locale, today, .. } = *message;
        let offered = || self.entries.iter().filter(|entry| message.tools.iter().any(|tool| tool.name == entry.spec().name));
        let calls = |arguments: &dyn Fn(&Entry) -> Option<Value>| -> Vec<(String, Value)> {
            offered().filter_map(|entry| Some((entry.spec().name.to_string(), arguments(entry)?))).collect()
        };
        let mut proposed = calls(&|entry| entry.tool.propose(text, locale, today));
        if let Some((tool, result)) = message.last_result.as_ref().filter(|_| proposed.is_empty()) {
            proposed = calls(&|entry| entry.tool.follow_up(result, text, locale, today).filter(|_| entry.spec().name == *tool));
        }
        if proposed.is_empty() {
            proposed = calls(&|entry| entry.tool.last_resort(text));
        }
        proposed
    }
}

/// A tool in the system prompt. What an untrusted source says of its tool stays in the definition of the tool.
fn prompt_line(spec: &ToolSpec) -> String {
    match spec.trust {
        Trust::Trusted if spec.example.is_empty() => format!("- {}: {}\n", spec.name, spec.description),
        Trust::Trusted => format!("- {}: {}\n  Example: {}\n", spec.name, spec.description, spec.example),
        Trust::Untrusted => format!("- {}\n", spec.name),
    }
}
