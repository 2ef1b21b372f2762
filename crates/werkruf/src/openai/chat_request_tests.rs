use bytes::Bytes;
use serde_json::{Value, json};
use werkruf_runtime::ClientChoice;

use super::{Asked, Wishes, read};

fn of(body: Value) -> (Asked, Wishes) {
    let Value::Object(body) = body else { panic!("an object") };
    read(Bytes::new(), body).ok().unwrap()
}

#[test]
fn fields_are_read_under_all_their_names() {
    let (asked, wishes) = of(json!({
        "model": "gpt-x", "messages": [{"role": "user", "content": "hi"}], "stream": true, "stream_options": {"include_usage": true},
        "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "stop": null, "response_format": {"type": "json_object"},
        "reasoning": {"effort": "low"}, "parallel_tool_calls": false, "tool_choice": "required", "n": 3, "logprobs": true,
        "tools": [{"type": "function", "function": {"name": "f"}}], "metadata": {"a": "b"}, "thinking": {"type": "enabled"},
    }));
    assert_eq!(wishes, Wishes { stream: true, include_usage: true, legacy: false, model: Some("gpt-x".to_owned()) });
    assert_eq!((asked.max_output_tokens, asked.temperature, asked.parallel_tool_calls), (Some(7), Some(0.5), Some(false)));
    assert_eq!((asked.tools.len(), asked.tool_choice), (1, ClientChoice::Required));
    assert_eq!(Value::Object(asked.options), json!({"top_p": 0.9, "response_format": {"type": "json_object"}, "reasoning_effort": "low"}));
    assert_eq!(asked.door["request"], json!({"model": "gpt-x", "metadata": {"a": "b"}}));
}

#[test]
fn nulls_and_odd_shapes_are_nothing() {
    let (asked, wishes) = of(json!({
        "messages": [{"role": "user", "content": "hi"}], "model": "", "stream": null, "stream_options": null, "max_tokens": null,
        "max_completion_tokens": -1, "temperature": null, "tools": null, "tool_choice": null, "functions": null, "metadata": null,
    }));
    assert_eq!(wishes, Wishes { stream: false, include_usage: false, legacy: false, model: None });
    assert!(asked.tools.is_empty() && asked.options.is_empty() && asked.temperature.is_none());
    assert!(read(Bytes::new(), serde_json::Map::new()).is_err());
}

#[test]
fn old_functions_get_ids_that_fit() {
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    ]);
    let (asked, wishes) = of(json!({"messages": messages, "functions": [{"name": "f"}], "function_call": {"name": "f"}}));
    assert!(wishes.legacy);
    assert_eq!((asked.tools[0].name.as_str(), asked.tool_choice), ("f", ClientChoice::Named("f".to_owned())));
    assert_eq!(asked.values[1]["tool_calls"][0]["id"], "call_function_1");
    assert_eq!((&asked.values[2]["role"], &asked.values[2]["tool_call_id"]), (&json!("tool"), &json!("call_function_1")));
}
