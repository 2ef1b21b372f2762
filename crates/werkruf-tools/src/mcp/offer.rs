//! Which tools of a server are offered: those whose definition is the pinned one. A changed one is disabled until the operator accepts it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::Tool;
use werkruf_contract::Clock;
use werkruf_store::{SeenTool, StoreError, ToolPin, ToolPins};

use super::config::McpServerConfig;
use super::definition::Definition;
use super::link::Link;
use super::tool::McpTool;

/// A server with more tools has the others left out.
const MOST_TOOLS: usize = 256;

/// What a server offers, as of its last list.
#[derive(Default, Clone)]
pub(super) struct Offered {
    pub(super) tools: Vec<Arc<McpTool>>,
    /// Tools whose definition differs from the pinned one, by name.
    pub(super) changed: Vec<String>,
    /// Tools that cannot be offered: the server's own name, and why.
    pub(super) refused: Vec<(String, String)>,
}

impl Offered {
    /// Whether others see the same in both.
    fn looks_like(&self, other: &Self) -> bool {
        let tools = |offered: &Self| -> Vec<String> {
            offered.tools.iter().map(|tool| format!("{} {}", tool.definition().spec.name, tool.definition().digest)).collect()
        };
        tools(self) == tools(other) && self.changed == other.changed && self.refused == other.refused
    }
}

/// The offer of one server.
pub(super) struct Offer {
    pub(super) config: McpServerConfig,
    link: Arc<Link>,
    pins: Arc<dyn ToolPins>,
    clock: Clock,
    now: Mutex<Offered>,
}

impl Offer {
    pub(super) fn new(config: McpServerConfig, link: Arc<Link>, pins: Arc<dyn ToolPins>, clock: Clock) -> Self {
        Self { config, link, pins, clock, now: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Offered> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn offered(&self) -> Offered {
        self.lock().clone()
    }

    /// The pins of this server.
    pub(super) async fn pins(&self) -> Result<Vec<ToolPin>, StoreError> {
        let pins = self.pins.tool_pins().await?;
        Ok(pins.into_iter().filter(|pin| pin.server == self.config.name).collect())
    }

    /// Compares a list of the server with the pins. True if the offer is another one now.
    pub(super) async fn compare(&self, list: &[Tool]) -> Result<bool, StoreError> {
        let pins: HashMap<String, ToolPin> = self.pins.tool_pins().await?.into_iter().map(|pin| (pin.name.clone(), pin)).collect();
        let mut next = Offered::default();
        let mut digests = BTreeMap::new();
        let earlier = self.offered();
        for tool in list {
            let definition = match self.definition(tool, &digests) {
                Ok(definition) => definition,
                Err(why) => {
                    next.refused.push((tool.name.chars().take(64).collect(), why));
                    continue;
                }
            };
            let name = definition.spec.name.to_string();
            let pin = self.pin(&definition, pins.get(&name)).await?;
            digests.insert(name.clone(), definition.digest.clone());
            if pin.digest != definition.digest {
                next.changed.push(name);
                continue;
            }
            let known =
                earlier.tools.iter().find(|known| known.definition().spec.name == name && known.definition().digest == definition.digest);
            next.tools.push(known.cloned().unwrap_or_else(|| Arc::new(McpTool::new(definition, Arc::clone(&self.link)))));
        }
        digests.retain(|name, _| !next.changed.contains(name));
        self.link.offer(digests);
        let is_new = !next.looks_like(&earlier);
        if is_new {
            self.tell(&next);
        }
        *self.lock() = next;
        Ok(is_new)
    }

    fn definition(&self, tool: &Tool, taken: &BTreeMap<String, String>) -> Result<Definition, String> {
        if taken.len() >= MOST_TOOLS {
            return Err(format!("the server has more than {MOST_TOOLS} tools"));
        }
        let definition = Definition::of(tool, &self.config)?;
        if taken.contains_key(definition.spec.name.as_ref()) {
            return Err(format!("another tool of the server is named {} too", definition.spec.name));
        }
        Ok(definition)
    }

    /// The pin of a tool. Only what is new is written.
    async fn pin(&self, definition: &Definition, known: Option<&ToolPin>) -> Result<ToolPin, StoreError> {
        let is_known = |pin: &&ToolPin| match &pin.change {
            None => pin.digest == definition.digest,
            Some(change) => change.digest == definition.digest,
        };
        if let Some(pin) = known.filter(is_known) {
            return Ok(pin.clone());
        }
        let seen = SeenTool {
            name: definition.spec.name.to_string(),
            server: self.config.name.clone(),
            digest: definition.digest.clone(),
            definition: definition.text.clone(),
        };
        self.pins.see_tool(seen, self.clock.now()).await
    }

    fn tell(&self, next: &Offered) {
        let server = &self.config.name;
        tracing::info!(
            server,
            tools = next.tools.len(),
            changed = next.changed.len(),
            refused = next.refused.len(),
            "an MCP server offers its tools"
        );
        for (tool, why) in &next.refused {
            tracing::warn!(server, tool, "a tool of an MCP server is left out: {why}");
        }
        let own_names: Vec<&str> = next.tools.iter().map(|tool| tool.definition().own_name.as_str()).collect();
        for tool in self.config.tools.keys().filter(|name| !own_names.contains(&name.as_str())) {
            tracing::warn!(server, tool, "the configuration has settings for a tool that the MCP server does not offer");
        }
    }
}
