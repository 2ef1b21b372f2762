//! Finds the line of each fault in an import file. Runs only when there are faults, in one pass over each list.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::ImportFault;
use super::file::Object;

/// Sets the line of each fault from its path, or from the nearest enclosing value that exists, and sorts by line.
pub fn add_lines(text: &str, faults: &mut [ImportFault]) {
    let Ok(root) = serde_json::from_str::<Object<'_>>(text) else { return };
    let mut lists: HashMap<String, Vec<&RawValue>> = HashMap::new();
    let mut located = Vec::with_capacity(faults.len());
    for fault in faults.iter_mut() {
        let mut steps = fault.path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
        let Some(first) = steps.next() else { continue };
        let Some((_, value)) = root.0.iter().find(|(name, _)| *name == first) else {
            fault.line = None;
            continue;
        };
        let items = lists.entry(first).or_insert_with(|| serde_json::from_str(value.get()).unwrap_or_default());
        let mut found = *value;
        if let Some(item) = steps.next().and_then(|step| step.parse::<usize>().ok()).and_then(|at| items.get(at)) {
            found = item;
            for step in steps {
                match inside(found, &step) {
                    Some(inner) => found = inner,
                    None => break,
                }
            }
        }
        located.push((offset(text, found), fault));
    }
    located.sort_by_key(|(offset, _)| *offset);
    let (mut line, mut counted) = (1, 0);
    for (offset, fault) in located {
        line += text.as_bytes().get(counted..offset).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count());
        counted = offset.max(counted);
        fault.line = Some(line);
    }
    faults.sort_by_key(|fault| fault.line);
}

fn inside<'t>(value: &'t RawValue, step: &str) -> Option<&'t RawValue> {
    if let Ok(object) = serde_json::from_str::<Object<'t>>(value.get()) {
        // Where a field is given twice, the second one is the fault.
        return object.0.into_iter().rfind(|(name, _)| name == step).map(|(_, inner)| inner);
    }
    let items: Vec<&'t RawValue> = serde_json::from_str(value.get()).ok()?;
    items.get(step.parse::<usize>().ok()?).copied()
}

/// Where a value borrowed from the text begins in it.
fn offset(text: &str, value: &RawValue) -> usize {
    (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}
