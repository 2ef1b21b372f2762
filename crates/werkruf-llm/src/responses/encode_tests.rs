use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn call(id: &str) -> HistoryCall {
    HistoryCall { id: id.into(), name: "f".into(), arguments: "{\"a\": \"ä\"}".into() }
}

fn tool(call_id: &str, content: &str) -> Message {
    Message::Tool { call_id: call_id.into(), name: "f".into(), content: content.into() }
}

fn history(carry: Option<Value>) -> Vec<Message> {
    vec![
        Message::user("Hallo\n🙂"),
        Message::Assistant { content: "Wait.".into(), calls: vec![call("c1"), call("c2")], carry },
        tool("c1", "{}"),
        tool("c2", "no"),
        Message::Assistant { content: "Done".into(), calls: vec![], carry: None },
    ]
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        system: "Be \"kind\".".into(),
        messages: Arc::new(messages),
        tools: Arc::new(vec![
            ToolDefinition { name: "f".into(), description: "F.".into(), parameters: json!({"type": "object"}), strict: true },
            ToolDefinition { name: "g".into(), description: "G.".into(), parameters: json!({"type": "object"}), strict: false },
        ]),
        temperature: Some(0.5),
        ..ModelRequest::default()
    }
}

fn origin(model: &str) -> Origin {
    Origin { api: "responses", provider: "p".into(), model: model.into() }
}

fn body_with(request: &ModelRequest, model: &str, pairs: bool) -> Value {
    let cache = ToolCache::new(encode_tools);
    serde_json::from_slice(&encode(request, &origin(model), 16384, Dialect { pairs }, &cache).unwrap()).unwrap()
}

fn body(request: &ModelRequest, model: &str) -> Value {
    body_with(request, model, false)
}

fn function_call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{\"a\": \"ä\"}"})
}

fn output(id: &str, output: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

#[test]
fn writes_what_the_api_wants() {
    let function = |name: &str, description: &str, strict: bool| json!({"type": "function", "name": name, "description": description, "parameters": {"type": "object"}, "strict": strict});
    let expected = json!({
        "model": "gpt-4o", "stream": true, "store": false, "max_output_tokens": 16384, "instructions": "Be \"kind\".", "temperature": 0.5,
        "tools": [function("f", "F.", true), function("g", "G.", false)], "tool_choice": "auto",
        "input": [
            {"role": "user", "content": "Hallo\n🙂"},
            {"role": "assistant", "content": "Wait."},
            function_call("c1"), function_call("c2"), output("c1", "{}"), output("c2", "no"),
            {"role": "assistant", "content": "Done"},
        ],
    });
    assert_eq!(body(&request(history(None)), "gpt-4o"), expected);
}

#[test]
fn models_that_think_are_asked_for_their_thoughts_and_get_no_temperature() {
    for (model, thinks) in [("gpt-5-mini", true), ("o4-mini", true), ("openai/gpt-5", true), ("gpt-4.1", false), ("qwen3", false)] {
        let body = body(&request(vec![]), model);
        assert_eq!(body.get("include"), thinks.then_some(&json!(["reasoning.encrypted_content"])), "{model}");
        assert_eq!(body.get("temperature").is_some(), !thinks, "{model}");
        assert_eq!(body["store"], false);
    }
}

#[test]
fn choices_limits_and_parallel_calls_are_spelled_as_the_api_wants() {
    let choice = |tool_choice| body(&ModelRequest { tool_choice, ..request(vec![]) }, "m")["tool_choice"].clone();
    assert_eq!(choice(ToolChoice::Required), "required");
    assert_eq!(choice(ToolChoice::Named("f".into())), json!({"type": "function", "name": "f"}));
    let last_word = body(&ModelRequest { tool_choice: ToolChoice::None, system: "".into(), ..request(vec![]) }, "m");
    assert!(["tools", "tool_choice", "instructions", "parallel_tool_calls"].iter().all(|field| last_word.get(field).is_none()));
    let single = ModelRequest { parallel_tool_calls: Some(false), max_output_tokens: Some(99), ..request(vec![]) };
    assert_eq!((&body(&single, "m")["parallel_tool_calls"], &body(&single, "m")["max_output_tokens"]), (&json!(false), &json!(99)));
}

fn kept() -> Value {
    json!({"items": [
        {"item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g1"}},
        {"message": {"bytes": 5, "id": "msg_1", "phase": "commentary"}},
        {"call": 0},
        {"item": {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "g2"}},
        {"call": 1},
    ]})
}

#[test]
fn sealed_thoughts_go_back_before_what_they_led_to() {
    let carry = origin("gpt-5").seal(kept());
    let input = body(&request(history(carry.clone())), "gpt-5")["input"].clone();
    let message = json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]});
    let thought = |at: usize| kept()["items"][at]["item"].clone();
    let expected = [thought(0), message, function_call("c1"), thought(3), function_call("c2"), output("c1", "{}"), output("c2", "no")];
    assert_eq!(input.as_array().unwrap()[1..8], expected);
    let elsewhere = body(&request(history(carry)), "gpt-5-mini");
    assert!(!elsewhere.to_string().contains("reasoning\","), "another model would refuse them: {elsewhere}");
}

#[test]
fn some_servers_want_each_result_beside_its_call() {
    let carry = origin("deepseek-chat").seal(kept());
    let input = body_with(&request(history(carry)), "deepseek-chat", true)["input"].clone();
    let kinds: Vec<&str> = input.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap_or("message")).collect();
    let expected = [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ];
    assert_eq!(kinds, expected);
    let bare = body_with(&request(history(None)), "deepseek-chat", true)["input"].clone();
    assert_eq!(bare.as_array().unwrap()[2..6], [function_call("c1"), output("c1", "{}"), function_call("c2"), output("c2", "no")]);
}

#[test]
fn what_was_kept_of_another_text_is_let_go() {
    let plain = body(&request(history(None)), "gpt-5")["input"].clone();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut kept = kept();
        change(&mut kept);
        body(&request(history(origin("gpt-5").seal(kept))), "gpt-5")["input"].clone()
    };
    assert_eq!(changed(&|kept| kept["items"][1]["message"]["bytes"] = json!(4)), plain, "the text was edited");
    assert_eq!(changed(&|kept| kept["items"][4]["call"] = json!(7)), plain, "a call is gone");
    assert_eq!(changed(&|kept| drop(kept["items"].as_array_mut().unwrap().pop())), plain, "a call is new");
    assert_eq!(changed(&|kept| kept["items"] = json!("odd")), plain);
    let lonely = json!({"items": [{"message": {"bytes": 4, "id": null, "phase": null}}, {"item": {"type": "reasoning", "id": "rs"}}]});
    let message = Message::Assistant { content: "Done".into(), calls: vec![], carry: origin("gpt-5").seal(lonely) };
    let input = body(&request(vec![message]), "gpt-5")["input"].clone();
    assert_eq!(input, json!([{"role": "assistant", "content": "Done"}]), "a thought with nothing after it is refused");
}

#[test]
fn odd_calls_of_the_past_do_not_spoil_the_request() {
    let calls = vec![HistoryCall { id: "c".into(), name: "größe!".into(), arguments: "{\"a\":".into() }];
    let messages = vec![Message::Assistant { content: String::new(), calls, carry: None }, tool("c", "no")];
    let input = body(&request(messages), "m")["input"].clone();
    assert_eq!(input[0], json!({"type": "function_call", "call_id": "c", "name": "gr__e_", "arguments": "{}"}));
    assert_eq!(input[1], output("c", "no"));
}
