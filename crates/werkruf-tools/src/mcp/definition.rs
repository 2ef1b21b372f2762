//! A tool as its server describes it. What a server says about its tools is data of a stranger: it is bounded, and pinned by its digest.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use werkruf_contract::{Shape, ToolSpec};

use super::config::McpServerConfig;
use crate::declared_fields::is_name;

/// Most characters of a description that a model gets.
const DESCRIPTION_CHARS: usize = 2_000;
/// Most bytes of a definition.
const DEFINITION_BYTES: usize = 64 * 1024;

/// A definition that can be offered.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    /// The name that the server knows.
    pub(super) own_name: String,
    pub(super) spec: ToolSpec,
    pub(super) parameters: Value,
    pub(super) digest: String,
    /// What the digest is of.
    pub(super) text: String,
}

impl Definition {
    /// Reads what a server offers, or says why it cannot be offered.
    pub(super) fn of(tool: &rmcp::model::Tool, config: &McpServerConfig) -> Result<Self, String> {
        let parameters = Value::Object((*tool.input_schema).clone());
        let whole = json!({
            "name": tool.name, "title": tool.title, "description": tool.description, "inputSchema": parameters,
            "outputSchema": tool.output_schema, "annotations": tool.annotations,
        });
        let text = serde_json_canonicalizer::to_string(&whole).map_err(|error| format!("its definition is no canonical JSON: {error}"))?;
        if text.len() > DEFINITION_BYTES {
            return Err(format!("its definition is longer than {DEFINITION_BYTES} bytes"));
        }
        if parameters.get("type").and_then(Value::as_str) != Some("object") {
            return Err("the type of its arguments is not `object`".to_owned());
        }
        Shape::compile(&parameters).map_err(|error| format!("its schema does not compile: {error}"))?;
        let name = full_name(&config.name, &tool.name);
        if !is_name(&name) {
            return Err("its name with the prefix is empty or longer than 64 characters".to_owned());
        }
        let digest = werkruf_contract::hex(&Sha256::digest(&text));
        let spec = spec(config, &tool.name, name, described(tool), &digest)?;
        Ok(Self { own_name: tool.name.to_string(), spec, parameters, digest, text })
    }
}

/// The name with the prefix of its server. Other characters than models accept become `_`.
fn full_name(prefix: &str, own: &str) -> String {
    let plain = own.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' });
    format!("{prefix}_{}", plain.collect::<String>())
}

fn described(tool: &rmcp::model::Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let shown: String = text.chars().filter(|c| !c.is_control() || *c == '\n').take(DESCRIPTION_CHARS).collect();
    if shown.trim().is_empty() { format!("The tool {} of a server.", tool.name) } else { shown }
}

fn spec(config: &McpServerConfig, own_name: &str, name: String, description: String, digest: &str) -> Result<ToolSpec, String> {
    let rules = config.rules(own_name).map_err(|fault| fault.to_string())?;
    Ok(ToolSpec {
        permission: rules.permission,
        timeout: Some(Duration::from_millis(config.timeout_ms)),
        attempts: config.attempts,
        reuse: config.reuse_s.map(Duration::from_secs),
        repeat_limit: config.repeat_limit,
        approval: rules.approval.into_iter().map(Cow::Owned).collect(),
        version: Cow::Owned(digest.to_owned()),
        max_response_bytes: usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX),
        tenants: config.tenants.clone(),
        trust: config.trust,
        external: rules.external,
        ..ToolSpec::new(name, description, rules.effect)
    })
}
