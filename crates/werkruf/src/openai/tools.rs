//! Tools that the client defines and runs itself, in the formats of Chat Completions and Responses.

use serde_json::{Map, Value, json};
use werkruf_contract::ClientCall;
use werkruf_runtime::{ClientChoice, ClientTool};

/// The functions in `tools`: nested as in Chat Completions or flat as in Responses. Tools that a model provider would run itself
/// (web search, code interpreter) are left out.
pub(crate) fn tools(value: Option<&Value>) -> Vec<ClientTool> {
    let mut found: Vec<ClientTool> = Vec::new();
    for tool in value.and_then(Value::as_array).into_iter().flatten() {
        let inner = |name: &str| tool.get(name).filter(|inner| inner.is_object()).unwrap_or(tool);
        match tool["type"].as_str() {
            Some("function") | None => add(&mut found, inner("function")),
            Some("custom") => add_custom(&mut found, inner("custom")),
            Some(_) => {}
        }
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
    // Model servers refuse two tools with the same name, so only the first one is used.
    if found.iter().any(|known| known.name == name) {
        return;
    }
    found.push(ClientTool {
        name: name.to_owned(),
        description: function["description"].as_str().unwrap_or_default().to_owned(),
        parameters: function.get("parameters").filter(|schema| schema.is_object()).cloned().unwrap_or_else(no_parameters),
        strict: function["strict"].as_bool().unwrap_or(false),
        custom: false,
    });
}

/// A tool whose input is a free text. Not every model server has such tools, so the model gets a function with one field.
fn add_custom(found: &mut Vec<ClientTool>, tool: &Value) {
    let before = found.len();
    add(found, tool);
    let Some(added) = found.get_mut(before) else { return };
    let format = tool.get("format").map(|format| format.get("grammar").unwrap_or(format));
    if let Some((syntax, grammar)) = format.and_then(|format| format["syntax"].as_str().zip(format["definition"].as_str())) {
        added.description.push_str(&format!("\n\nThe input follows this grammar ({syntax}):\n{grammar}"));
    }
    let input = json!({"type": "string", "description": "The whole input of the tool, as plain text."});
    added.parameters = json!({"type": "object", "properties": {"input": input}, "required": ["input"], "additionalProperties": false});
    (added.strict, added.custom) = (false, true);
}

/// The text for a custom tool. The model sends it as the only field of the arguments.
pub(crate) fn custom_input(call: &ClientCall) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    arguments["input"].as_str().map_or_else(|| call.arguments.clone(), str::to_owned)
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

/// `tool_choice` and the older `function_call`: a mode, or an object that names a function.
pub(crate) fn choice(value: Option<&Value>) -> ClientChoice {
    match value {
        Some(Value::String(mode)) => match mode.as_str() {
            "none" => ClientChoice::None,
            "required" | "any" => ClientChoice::Required,
            _ => ClientChoice::Auto,
        },
        Some(Value::Object(object)) => choice_object(object),
        _ => ClientChoice::Auto,
    }
}

fn choice_object(object: &Map<String, Value>) -> ClientChoice {
    let inner = object.get("function").or_else(|| object.get("custom")).and_then(|function| function["name"].as_str());
    if let Some(name) = inner.or_else(|| object.get("name").and_then(Value::as_str)) {
        return ClientChoice::Named(name.to_owned());
    }
    let allowed = object.get("allowed_tools").and_then(|allowed| allowed.get("mode")).or_else(|| object.get("mode"));
    choice(allowed.filter(|mode| mode.is_string()))
}

/// The tools that an `allowed_tools` choice names; `None` for every other choice.
pub(crate) fn allowed(value: Option<&Value>) -> Option<Vec<String>> {
    let choice = value.filter(|choice| choice["type"] == "allowed_tools")?;
    let tools = choice.get("allowed_tools").unwrap_or(choice)["tools"].as_array()?;
    let name = |tool: &Value| tool["function"]["name"].as_str().or_else(|| tool["name"].as_str()).map(str::to_owned);
    Some(tools.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use werkruf_runtime::ClientChoice;

    use super::{allowed, choice, functions, tools};

    #[test]
    fn functions_are_read_in_all_three_formats() {
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
        assert_eq!(names, [("a", "A", true), ("b", "", false), ("c", "", false)]);
        assert_eq!(found.iter().map(|tool| tool.custom).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(found[2].parameters["required"], json!(["input"]));
        let grammar = json!([{"type": "custom", "name": "g", "description": "G", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}}]);
        assert_eq!(tools(Some(&grammar))[0].description, "G\n\nThe input follows this grammar (lark):\nstart: A");
        assert_eq!(found[1].parameters, json!({"type": "object", "properties": {}}));
        assert_eq!(functions(Some(&json!([{"name": "old"}])))[0].name, "old");
        assert!(tools(None).is_empty() && tools(Some(&json!("x"))).is_empty());
    }

    #[test]
    fn a_choice_is_a_mode_or_a_name() {
        let parse = |value| choice(Some(&value));
        assert_eq!(choice(None), ClientChoice::Auto);
        assert_eq!(parse(json!("none")), ClientChoice::None);
        assert_eq!(parse(json!("required")), ClientChoice::Required);
        assert_eq!(parse(json!({"type": "function", "function": {"name": "f"}})), ClientChoice::Named("f".to_owned()));
        assert_eq!(parse(json!({"type": "function", "name": "f"})), ClientChoice::Named("f".to_owned()));
        assert_eq!(parse(json!({"name": "f"})), ClientChoice::Named("f".to_owned()));
        assert_eq!(parse(json!({"type": "allowed_tools", "mode": "required", "tools": []})), ClientChoice::Required);
        assert_eq!(parse(json!({"type": "web_search"})), ClientChoice::Auto);
    }

    #[test]
    fn allowed_tools_are_named_in_both_formats() {
        let flat = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}, {"type": "mcp"}]});
        assert_eq!(allowed(Some(&flat)), Some(vec!["a".to_owned()]));
        let tools = json!([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]);
        let nested = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}});
        assert_eq!((allowed(Some(&nested)), choice(Some(&nested))), (Some(vec!["a".to_owned(), "b".to_owned()]), ClientChoice::Required));
        assert_eq!((allowed(None), allowed(Some(&json!("auto"))), allowed(Some(&json!({"name": "f"})))), (None, None, None));
    }
}
