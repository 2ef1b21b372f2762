//! Tools a client brings and runs itself, in the shapes Chat Completions and Responses have for them.

use serde_json::{Map, Value, json};
use werkruf_runtime::{ClientChoice, ClientTool};

/// The functions among `tools`, nested as Chat writes them or flat as Responses does. What a provider would run itself
/// (searches, interpreters) is not ours to run and is left out.
pub(crate) fn tools(value: Option<&Value>) -> Vec<ClientTool> {
    let mut found: Vec<ClientTool> = Vec::new();
    for tool in value.and_then(Value::as_array).into_iter().flatten() {
        let function = match tool["type"].as_str() {
            Some("function") | None => tool.get("function").filter(|inner| inner.is_object()).unwrap_or(tool),
            Some(_) => continue,
        };
        add(&mut found, function);
    }
    found
}

/// The older field `functions`.
pub(crate) fn functions(value: Option<&Value>) -> Vec<ClientTool> {
    let mut found = Vec::new();
    for function in value.and_then(Value::as_array).into_iter().flatten() {
        add(&mut found, function);
    }
    found
}

fn add(found: &mut Vec<ClientTool>, function: &Value) {
    let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) else { return };
    // Twice the same name would be refused by the model's server; the first one stands.
    if found.iter().any(|known| known.name == name) {
        return;
    }
    found.push(ClientTool {
        name: name.to_owned(),
        description: function["description"].as_str().unwrap_or_default().to_owned(),
        parameters: function.get("parameters").filter(|schema| schema.is_object()).cloned().unwrap_or_else(no_parameters),
        strict: function["strict"].as_bool().unwrap_or(false),
    });
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

/// `tool_choice` and the older `function_call`: a word, or an object that names a function.
pub(crate) fn choice(value: Option<&Value>) -> ClientChoice {
    match value {
        Some(Value::String(word)) => match word.as_str() {
            "none" => ClientChoice::None,
            "required" | "any" => ClientChoice::Required,
            _ => ClientChoice::Auto,
        },
        Some(Value::Object(object)) => named(object),
        _ => ClientChoice::Auto,
    }
}

fn named(object: &Map<String, Value>) -> ClientChoice {
    let inner = object.get("function").or_else(|| object.get("custom")).and_then(|function| function["name"].as_str());
    if let Some(name) = inner.or_else(|| object.get("name").and_then(Value::as_str)) {
        return ClientChoice::Named(name.to_owned());
    }
    let allowed = object.get("allowed_tools").and_then(|allowed| allowed.get("mode")).or_else(|| object.get("mode"));
    choice(allowed.filter(|mode| mode.is_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_runtime::ClientChoice;

    use super::{choice, functions, tools};

    #[test]
    fn functions_are_found_nested_flat_and_old() {
        let given = json!([
            {"type": "function", "function": {"name": "a", "description": "A", "parameters": {"type": "object"}, "strict": true}},
            {"type": "function", "name": "b", "parameters": null},
            {"type": "web_search_preview"},
            {"type": "custom", "custom": {"name": "c"}},
            {"type": "function", "function": {"name": "a", "description": "again"}},
            {"type": "function", "function": {}},
        ]);
        let found = tools(Some(&given));
        let names: Vec<_> = found.iter().map(|tool| (tool.name.as_str(), tool.description.as_str(), tool.strict)).collect();
        assert_eq!(names, [("a", "A", true), ("b", "", false)]);
        assert_eq!(found[1].parameters, json!({"type": "object", "properties": {}}));
        assert_eq!(functions(Some(&json!([{"name": "old"}])))[0].name, "old");
        assert!(tools(None).is_empty() && tools(Some(&json!("x"))).is_empty());
    }

    #[test]
    fn a_choice_is_a_word_or_a_name() {
        let of = |value| choice(Some(&value));
        assert_eq!(choice(None), ClientChoice::Auto);
        assert_eq!(of(json!("none")), ClientChoice::None);
        assert_eq!(of(json!("required")), ClientChoice::Required);
        assert_eq!(of(json!({"type": "function", "function": {"name": "f"}})), ClientChoice::Named("f".to_owned()));
        assert_eq!(of(json!({"type": "function", "name": "f"})), ClientChoice::Named("f".to_owned()));
        assert_eq!(of(json!({"name": "f"})), ClientChoice::Named("f".to_owned()));
        assert_eq!(of(json!({"type": "allowed_tools", "mode": "required", "tools": []})), ClientChoice::Required);
        assert_eq!(of(json!({"type": "web_search"})), ClientChoice::Auto);
    }
}
