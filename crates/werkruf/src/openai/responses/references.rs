//! Item references: items that a client names by id instead of sending them again. Items of the user's own earlier responses are
//! inserted; other references are left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value;
use werkruf_contract::Uuid;

use super::object::{item_of, response_id};
use super::stored::StoredResponse;
use crate::api::ApiError;
use crate::app::App;
use crate::identity::Identity;

/// Replaces each reference by the item it names.
pub(crate) async fn resolve(app: &App, identity: &Identity, items: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut outputs: HashMap<Uuid, Vec<Value>> = HashMap::new();
    let mut resolved = Vec::with_capacity(items.len());
    for item in items {
        if item["type"] != "item_reference" {
            resolved.push(item);
            continue;
        }
        let Some((turn_id, index)) = item["id"].as_str().and_then(item_of) else { continue };
        let output = match outputs.entry(turn_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(entry) => {
                let stored = StoredResponse::find(app, identity, &response_id(turn_id)).await?;
                entry.insert(stored.map(|stored| stored.output()).unwrap_or_default())
            }
        };
        let found = output.get(index).filter(|found| found["id"] == item["id"]);
        resolved.extend(found.cloned());
    }
    Ok(resolved)
}
