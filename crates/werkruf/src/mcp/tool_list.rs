//! `tools/list`: the tools that the key's scope allows, sorted by name. Rights never hide a tool; a call without the right is refused.

use std::sync::Arc;

use rmcp::model::{CacheScope, ErrorData, JsonObject, ListToolsResult, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use werkruf_contract::{Effect, Tenant, ToolSpec, Trust};
use werkruf_runtime::{Entry, Setup};

use super::request::{McpRequest, protocol_error};
use crate::api::tools::tenant_slug;

/// How long a client may use a list without asking again. A reload of the configuration changes it.
const FRESH_MS: u64 = 60_000;
/// How the formats of numbers begin that are derived from types.
const NUMBER_FORMATS: [&str; 4] = ["uint", "int", "float", "double"];

pub(super) async fn list(request: &McpRequest) -> Result<ListToolsResult, ErrorData> {
    let (api, identity) = (&request.api, &request.identity);
    let setup = api.app.runtime.setup();
    let mut tools = Vec::new();
    if identity.scopes.tools {
        let slug = tenant_slug(api, identity, &setup.registry).await.map_err(|error| protocol_error(&error))?;
        tools.extend(setup.registry.all_for(Tenant { id: identity.tenant_id, slug: &slug }).map(|entry| tool(entry, &setup)));
        tools.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private))
}

fn tool(entry: &Entry, setup: &Setup) -> Tool {
    let spec = entry.spec();
    let mut meta = Map::new();
    meta.insert("werkruf/effect".to_owned(), spec.effect.as_str().into());
    if !spec.approval.is_empty() {
        meta.insert("werkruf/approval".to_owned(), spec.approval.iter().map(ToString::to_string).collect());
    }
    let mut tool = Tool::new(spec.name.to_string(), spec.description.to_string(), Arc::new(object(entry.parameters())))
        .with_annotations(annotations(spec))
        .with_meta(MetaObject(meta));
    tool.output_schema = entry.output_schema().map(|schema| Arc::new(output(schema, may_wait(spec, setup))));
    tool
}

/// What the effect says. Nothing is known about what a tool with an effect does to existing data, so it may be destructive.
fn annotations(spec: &ToolSpec) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(spec.effect == Effect::Read)
        .destructive(spec.effect != Effect::Read)
        .idempotent(spec.effect != Effect::Once)
        .open_world(spec.external || spec.trust == Trust::Untrusted)
}

/// Whether a call may have to wait for an approval.
fn may_wait(spec: &ToolSpec, setup: &Setup) -> bool {
    let mut guarded = setup.safety.values().flat_map(|profile| &profile.approval_required_for);
    !spec.approval.is_empty() || guarded.any(|name| spec.goes_by(name))
}

/// The schema of a result. Clients check results against it, also the one of a call that waits.
fn output(schema: &Value, may_wait: bool) -> JsonObject {
    if !may_wait {
        return object(schema);
    }
    let waiting = json!({
        "type": "object",
        "properties": {
            "status": {"const": "awaiting_approval"},
            "approval_id": {"type": "string", "format": "uuid"},
            "job_id": {"type": "string", "format": "uuid"},
            "message": {"type": "string"},
        },
        "required": ["status", "approval_id", "job_id", "message"],
    });
    object(&json!({"type": "object", "anyOf": [schema, waiting]}))
}

fn object(schema: &Value) -> JsonObject {
    let mut schema = schema.clone();
    adapt(&mut schema);
    match schema {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

/// Writes a property that takes any value as `{}`: version 1 of the TypeScript SDK refuses a list with `true` there. Leaves out the formats of
/// numbers, of which it warns: they are not those of JSON Schema.
fn adapt(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().filter(|property| **property == Value::Bool(true)).for_each(|property| *property = json!({}));
            }
            if fields
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| NUMBER_FORMATS.iter().any(|start| format.starts_with(start)))
            {
                fields.shift_remove("format");
            }
            fields.values_mut().for_each(adapt);
        }
        Value::Array(values) => values.iter_mut().for_each(adapt),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
