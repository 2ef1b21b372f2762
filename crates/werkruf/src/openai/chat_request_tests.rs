use serde_json::{Value, json};
use werkruf_runtime::ClientChoice;

use super::{FIELDS, RawBody, ResponseOptions, TurnRequest, read};

fn parsed(body: Value) -> (TurnRequest, ResponseOptions) {
    let Value::Object(mut body) = body else { panic!("an object") };
    body.retain(|name, _| FIELDS.contains(&name.as_str()));
    read(RawBody::empty(), body).ok().unwrap()
}

#[test]
fn fields_are_read_under_all_their_names() {
    let (request, options) = parsed(json!({
        "model": "gpt-x", "messages": [{"role": "user", "content": "hi"}], "stream": true, "stream_options": {"include_usage": true},
        "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "stop": null, "response_format": {"type": "json_object"},
        "reasoning": {"effort": "low"}, "parallel_tool_calls": false, "tool_choice": "required", "n": 1, "logprobs": false,
        "tools": [{"type": "function", "function": {"name": "f"}}], "metadata": {"a": "b"}, "thinking": {"type": "enabled"},
    }));
    assert_eq!(
        options,
        ResponseOptions { stream: true, include_usage: true, legacy: false, model: Some("gpt-x".to_owned()), custom_tools: Vec::new() }
    );
    assert_eq!((request.max_output_tokens, request.temperature, request.parallel_tool_calls), (Some(7), Some(0.5), Some(false)));
    assert_eq!((request.tools.len(), request.tool_choice), (1, ClientChoice::Required));
    assert_eq!(
        Value::Object(request.options),
        json!({"top_p": 0.9, "response_format": {"type": "json_object"}, "reasoning_effort": "low"})
    );
    assert_eq!(request.echo["request"], json!({"model": "gpt-x", "metadata": {"a": "b"}}));
}

#[test]
fn nulls_and_unexpected_types_are_ignored() {
    let (request, options) = parsed(json!({
        "messages": [{"role": "user", "content": "hi"}], "model": "", "stream": null, "stream_options": null, "max_tokens": null,
        "max_completion_tokens": -1, "temperature": null, "tools": null, "tool_choice": null, "functions": null, "metadata": null,
    }));
    assert_eq!(options, ResponseOptions { stream: false, include_usage: false, legacy: false, model: None, custom_tools: Vec::new() });
    assert!(request.tools.is_empty() && request.options.is_empty() && request.temperature.is_none());
    assert!(read(RawBody::empty(), serde_json::Map::new()).is_err());
}

#[test]
fn calls_and_results_of_functions_get_matching_ids() {
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ]);
    let (request, options) = parsed(json!({"messages": messages, "functions": [{"name": "f"}], "function_call": {"name": "f"}}));
    assert!(options.legacy);
    assert_eq!((request.tools[0].name.as_str(), request.tool_choice), ("f", ClientChoice::Named("f".to_owned())));
    assert_eq!(request.values[1]["tool_calls"][0]["id"], "call_function_1");
    assert_eq!((&request.values[2]["role"], &request.values[2]["tool_call_id"]), (&json!("tool"), &json!("call_function_1")));
}
