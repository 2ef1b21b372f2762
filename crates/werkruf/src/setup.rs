//! Builds the part of the runtime that a reload can replace: tools, assistants, safety profiles.
//!
//! It is built from a loaded configuration. Every inconsistency is a violation with its place in the file.

use std::collections::HashSet;
use std::sync::Arc;

use werkruf_contract::{Clock, Shape, ToolObject, Uuid};
use werkruf_llm::{Egress, HttpLimits, tool_client};
use werkruf_runtime::{Assistant, Assistants, Channel, Channels, Redaction, Registry, Setup};
use werkruf_tools::{ConfigFault, HttpTool, OfferedTool, SqlTool, ToolConfig, ToolSection, kernel_tools, test_tools};

use crate::config::{Config, ConfigViolation, Environment, Flags, advice};
use crate::configured_secrets;
use crate::modules::OpenModules;
use crate::webhooks::{self, WebhookChannel};
use crate::whatsapp::CHANNEL;

/// Reads the configuration and builds the setup; reports the faults of both steps together. Opens no database.
pub fn read(flags: &Flags, environment: &Environment, client: &reqwest::Client) -> Result<(Config, Setup), Vec<ConfigViolation>> {
    let clock = Clock::system(0);
    let (config, _) = Config::examine(flags, environment);
    let read = read_with(flags, environment, &OpenModules::closed(&config, client, &clock), &clock, &[]);
    let Some(violation) = config.check_certificate() else { return read };
    Err(read.err().into_iter().flatten().chain([violation]).collect())
}

/// Like [`read`], with opened modules, and with the secrets that the server made itself.
pub(crate) fn read_with(
    flags: &Flags,
    environment: &Environment,
    modules: &OpenModules,
    clock: &Clock,
    own_secrets: &[&str],
) -> Result<(Config, Setup), Vec<ConfigViolation>> {
    let (config, mut violations) = Config::examine(flags, environment);
    // The name of a declaration that could not be read is unknown, so references to tools cannot be checked.
    let is_name = |path: &str| path.strip_prefix("/tools").is_some_and(|rest| rest.ends_with("/name") || rest.matches('/').count() < 2);
    let names_are_known = !violations.iter().any(|violation| is_name(&violation.path));
    match build(&config, modules, clock, own_secrets) {
        Ok(setup) if violations.is_empty() => return Ok((config, setup)),
        Ok(_) => {}
        Err(more) => {
            // A value that could not be read counts as missing, and is reported once.
            let reported: HashSet<String> = violations.iter().map(|violation| violation.path.clone()).collect();
            let is_new = |one: &ConfigViolation| !reported.contains(&one.path) && (names_are_known || one.path.starts_with("/tools"));
            violations.extend(more.into_iter().filter(is_new));
        }
    }
    Err(violations)
}

/// Builds the setup, or returns everything that is wrong with the configuration.
pub(crate) fn build(config: &Config, modules: &OpenModules, clock: &Clock, own_secrets: &[&str]) -> Result<Setup, Vec<ConfigViolation>> {
    let mut violations = Vec::new();
    let mut registry = Registry::default();
    let (on, off): (Vec<_>, Vec<_>) = modules.all().into_iter().partition(|module| modules.on.has(module.schema().name));
    let of_modules = on.into_iter().flat_map(|module| module.tools());
    for tool in of_modules.chain(kernel_tools(clock.clone())) {
        if let Err(fault) = registry.add_object(tool) {
            violations.push(ConfigViolation::new("", fault.to_string()));
        }
    }
    if config.test_tools {
        for tool in test_tools() {
            if let Err(fault) = registry.add_object(tool) {
                violations.push(ConfigViolation::new("WERKRUF_TEST_TOOLS", fault.to_string()));
            }
        }
    }
    let off: Vec<(String, &str)> = off
        .into_iter()
        .map(|module| (module.schema().name, module.tools()))
        .flat_map(|(name, tools)| tools.into_iter().map(move |tool| (tool.spec().name.to_string(), name)))
        .collect();
    let client = tool_client(&HttpLimits::default(), Egress::new(config.egress.clone()))
        .map_err(|error| vec![ConfigViolation::new("", format!("the HTTP client cannot be made: {error}"))])?;
    let variable = |name: &str| config.environment.lookup(name).map(str::to_owned);
    for (at, section) in config.tools.iter().enumerate() {
        match declared_tool(config, section, &client, clock, &variable) {
            Ok(None) => {}
            Ok(Some(tool)) => {
                if let Err(fault) = registry.add_object(tool) {
                    violations.push(config.places.violation(&format!("/tools/{at}/name"), fault.message));
                }
            }
            Err(faults) => violations
                .extend(faults.into_iter().map(|fault| config.places.violation(&format!("/tools/{at}{}", fault.path), fault.message))),
        }
    }
    add_late_tools(config, modules, &mut registry, &mut violations);
    let redaction = Redaction::new(&configured_secrets::forms(config, own_secrets)).unwrap_or_else(|error| {
        violations.push(ConfigViolation::new("", format!("the secrets cannot be searched for: {error}")));
        Redaction::default()
    });
    check_names(config, &registry, &off, &mut violations);
    registry.remove(&config.disabled_tools);
    if !violations.is_empty() {
        return Err(violations);
    }
    let prices = Arc::clone(&config.prices);
    let assistants = Assistants::new(config.assistants.clone());
    let channels = channels(config, modules, client);
    Ok(Setup {
        registry,
        assistants,
        channels,
        safety: config.safety.clone(),
        prices,
        four_eyes: config.four_eyes,
        provider_role: config.provider_role.clone(),
        redaction,
        log_arguments: config.log.arguments,
        alerts: config.alerts.clone(),
    })
}

/// Adds the tools that MCP servers offer by now. A name that is taken is no fault of the configuration, so the tool is left out.
fn add_late_tools(config: &Config, modules: &OpenModules, registry: &mut Registry, violations: &mut Vec<ConfigViolation>) {
    let is_server = |section: &&ToolSection| section.kind.as_deref() == Some("mcp");
    let mut names = HashSet::new();
    for (at, section) in config.tools.iter().enumerate().filter(|(_, section)| is_server(section)) {
        if !names.insert(section.name()) {
            let message = "is the name of another server too; each server needs a prefix of its own";
            violations.push(config.places.violation(&format!("/tools/{at}/name"), message));
        }
    }
    for OfferedTool { server, own_name, tool } in modules.mcp.tools().into_iter().filter(|offered| names.contains(offered.server.as_str()))
    {
        if let Err(fault) = registry.add_foreign(&server, &own_name, tool) {
            tracing::warn!(server, tool = fault.name, "a tool of an MCP server is left out: {}", fault.message);
        }
    }
}

/// Builds a tool from its declaration, or returns everything that is wrong with it. The tools of an MCP server come later.
fn declared_tool(
    config: &Config,
    section: &ToolSection,
    client: &reqwest::Client,
    clock: &Clock,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Arc<dyn ToolObject>>, Vec<ConfigFault>> {
    let limit_ms = config.limits.tool_ms;
    let mut declared = section.config()?;
    let mut faults = match &declared {
        ToolConfig::Http(tool) => tool.faults(variable),
        ToolConfig::Sql(tool) => tool.faults(variable),
        ToolConfig::Mcp(server) => server.faults(variable),
    };
    let has_own_limit = matches!(declared, ToolConfig::Mcp(_));
    if !has_own_limit && section.timeout_ms.is_some_and(|timeout_ms| timeout_ms > limit_ms) {
        let message = format!("is longer than limits.tool_ms, which is {limit_ms}; lower it, or raise the limit");
        faults.push(ConfigFault { path: "/timeout_ms".to_owned(), message });
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    match &mut declared {
        ToolConfig::Http(tool) => tool.bound_timeout(limit_ms),
        ToolConfig::Sql(tool) => tool.bound_timeout(limit_ms),
        ToolConfig::Mcp(_) => return Ok(None),
    }
    let built: Result<Arc<dyn ToolObject>, ConfigFault> = match declared {
        ToolConfig::Http(tool) => HttpTool::new(*tool, client.clone(), clock, variable).map(|tool| Arc::new(tool) as _),
        ToolConfig::Sql(tool) => SqlTool::new(&tool, variable).map(|tool| Arc::new(tool) as _),
        ToolConfig::Mcp(_) => return Ok(None),
    };
    built.map(Some).map_err(|fault| vec![fault])
}

/// The channels that the configuration names.
fn channels(config: &Config, modules: &OpenModules, client: reqwest::Client) -> Channels {
    let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
    if !config.whatsapp.numbers.is_empty() {
        channels.push(modules.whatsapp.clone());
    }
    if !config.webhooks.is_empty() {
        channels.push(Arc::new(WebhookChannel::new(&config.webhooks, client)));
    }
    Channels::new(channels, config.webhooks.iter().map(webhooks::subscription).collect())
}

/// Checks the tool names in assistants and safety profiles. A misspelt tool would silently be missing from an assistant, or
/// silently be allowed by a safety profile.
fn check_names(config: &Config, registry: &Registry, off: &[(String, &str)], violations: &mut Vec<ConfigViolation>) {
    // A declared tool with other faults still counts as known.
    let known = |name: &str| registry.find(name).is_some() || config.tools.iter().any(|tool| tool.may_have(name));
    let mut check = |list: &str, names: &[String]| {
        for (at, name) in names.iter().enumerate().filter(|(_, name)| !known(name)) {
            let message = unknown_tool(config, registry, off, name);
            violations.push(config.places.violation(&format!("{list}/{at}"), message));
        }
    };
    for (at, assistant) in config.assistants.iter().enumerate() {
        check(&format!("/assistants/{at}/tools"), &assistant.tools);
    }
    for (name, profile) in &config.safety {
        check(&format!("/safety/{name}/tools_denied"), &profile.tools_denied);
        check(&format!("/safety/{name}/approval_required_for"), &profile.approval_required_for);
    }
    check_whatsapp(config, registry, off, violations);
    for (at, assistant) in config.assistants.iter().enumerate() {
        check_defaults(config, registry, at, assistant, violations);
    }
}

/// What to do about a name that no tool has.
fn unknown_tool(config: &Config, registry: &Registry, off: &[(String, &str)], name: &str) -> String {
    match off.iter().find(|(tool, _)| tool == name) {
        // A reload does not switch a module on.
        Some((_, module)) if config.modules.has(module) => {
            format!("`{name}` belongs to the module `{module}`, which was off at the start; restart the server")
        }
        Some((_, module)) => format!("`{name}` belongs to the module `{module}`, which is off; add a section [{module}]"),
        None => {
            let names = registry.names().chain(config.tools.iter().map(ToolSection::name));
            format!("there is no tool named `{name}`; {}", advice(name, names, "correct or remove it"))
        }
    }
}

/// Checks that keywords name tools, and that the assistant of each number exists and speaks on the channel.
fn check_whatsapp(config: &Config, registry: &Registry, off: &[(String, &str)], violations: &mut Vec<ConfigViolation>) {
    for (place, tool) in &config.keyword_tools {
        let known = registry.find(tool).is_some() || config.tools.iter().any(|declared| declared.may_have(tool));
        if !known {
            violations.push(config.places.violation(place, unknown_tool(config, registry, off, tool)));
        }
    }
    let assistants = Assistants::new(config.assistants.clone());
    for number in &config.whatsapp.numbers {
        let place = number.place_of("assistant");
        let name = &number.assistant;
        // One of the two may name the tenant by its id and the other by its slug. The store compares those at the start.
        let is_id = |tenant: &str| Uuid::try_parse(tenant).is_ok();
        let other_names = assistants.all().iter().filter_map(|assistant| assistant.tenant.as_deref());
        let names: Vec<&str> =
            other_names.filter(|tenant| is_id(tenant) != is_id(&number.tenant)).chain([number.tenant.as_str()]).collect();
        let message = match assistants.find(name, &names) {
            Some(assistant) if assistant.serves(CHANNEL) => continue,
            Some(_) => {
                format!("the assistant `{name}` does not speak on `{CHANNEL}`; add `{CHANNEL}` to its channels, or name another one")
            }
            None => format!("the tenant {} has no assistant named `{name}`; correct the name, or add the assistant", number.tenant),
        };
        violations.push(config.places.violation(&place, message));
    }
}

/// Checks the defaults of an assistant: a tool takes defaults for some of its arguments, and a value must fit the tool's schema.
fn check_defaults(config: &Config, registry: &Registry, at: usize, assistant: &Assistant, violations: &mut Vec<ConfigViolation>) {
    for (tool, arguments) in &assistant.defaults {
        let place = format!("/assistants/{at}/defaults/{tool}");
        let mut violation = |place: &str, message: String| violations.push(config.places.violation(place, message));
        let Some(entry) = registry.find(tool) else {
            violation(&place, format!("there is no tool named `{tool}`; correct or remove it"));
            continue;
        };
        let taken = entry.spec().defaults;
        for (name, value) in arguments {
            let place = format!("{place}/{name}");
            if !taken.contains(&name.as_str()) {
                let known = if taken.is_empty() { "none".to_owned() } else { taken.join(", ") };
                violation(&place, format!("`{tool}` takes no default for `{name}`; it takes {known}"));
            } else if !Shape::compile(&entry.parameters()["properties"][name]).is_ok_and(|shape| shape.fits(value)) {
                violation(&place, format!("{value} does not fit the schema of `{name}`; see `werkruf tools schema {tool}`"));
            }
        }
    }
}
