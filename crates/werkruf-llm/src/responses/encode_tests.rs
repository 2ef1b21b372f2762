use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::ToolChoice;

fn call(id: &str) -> HistoryCall {
    HistoryCall { id: id.into(), name: "f".into(), arguments: "{\"a\": \"ä\"}".into() }
}

fn tool(call_id: &str, content: &str) -> Message {
    Message::result(call_id, "f", content)
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
            ToolDefinition { name: "f".into(), description: "F.".into(), parameters: json!({"type": "object"}), strict: true, texts: None },
            ToolDefinition {
                name: "g".into(),
                description: "G.".into(),
                parameters: json!({"type": "object"}),
                strict: false,
                texts: None,
            },
        ]),
        temperature: Some(0.5),
        ..ModelRequest::default()
    }
}

fn origin(model: &str) -> Origin {
    Origin { api: "responses", provider: "p".into(), model: model.into() }
}

fn body_with(request: &ModelRequest, model: &str, pairs: bool) -> Value {
    let cache = ToolCache::new(Dialect::tools);
    serde_json::from_slice(&Dialect { pairs }.body(request, &origin(model), 16384, &cache).unwrap()).unwrap()
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
fn encodes_the_api_format() {
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
fn reasoning_models_get_the_include_option_and_no_temperature() {
    for (model, reasons) in [("gpt-5-mini", true), ("o4-mini", true), ("openai/gpt-5", true), ("gpt-4.1", false), ("qwen3", false)] {
        let body = body(&request(vec![]), model);
        assert_eq!(body.get("include"), reasons.then_some(&json!(["reasoning.encrypted_content"])), "{model}");
        assert_eq!(body.get("temperature").is_some(), !reasons, "{model}");
        assert_eq!(body["store"], false);
    }
}

#[test]
fn tool_choice_limits_and_parallel_calls_have_the_api_format() {
    let choice = |tool_choice| body(&ModelRequest { tool_choice, ..request(vec![]) }, "m")["tool_choice"].clone();
    assert_eq!(choice(ToolChoice::Required), "required");
    assert_eq!(choice(ToolChoice::Named("f".into())), json!({"type": "function", "name": "f"}));
    let without_tools = body(&ModelRequest { tool_choice: ToolChoice::None, system: "".into(), ..request(vec![]) }, "m");
    assert!(["tools", "tool_choice", "instructions", "parallel_tool_calls"].iter().all(|field| without_tools.get(field).is_none()));
    let single = ModelRequest { parallel_tool_calls: Some(false), max_output_tokens: Some(99), ..request(vec![]) };
    assert_eq!((&body(&single, "m")["parallel_tool_calls"], &body(&single, "m")["max_output_tokens"]), (&json!(false), &json!(99)));
}

fn carried() -> Value {
    json!({"items": [
        {"item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g1"}},
        {"message": {"bytes": 5, "id": "msg_1", "phase": "commentary"}},
        {"call": 0},
        {"item": {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "g2"}},
        {"call": 1},
    ]})
}

#[test]
fn encrypted_reasoning_goes_back_in_its_position() {
    let carry = origin("gpt-5").label(carried());
    let input = body(&request(history(carry.clone())), "gpt-5")["input"].clone();
    let message = json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]});
    let reasoning = |at: usize| carried()["items"][at]["item"].clone();
    let expected = [reasoning(0), message, function_call("c1"), reasoning(3), function_call("c2"), output("c1", "{}"), output("c2", "no")];
    assert_eq!(input.as_array().unwrap()[1..8], expected);
    let other_model = body(&request(history(carry)), "gpt-5-mini");
    assert!(!other_model.to_string().contains("reasoning\","), "another model would refuse them: {other_model}");
}

#[test]
fn reasoning_goes_with_a_request_for_permission_and_not_with_the_call_that_it_becomes() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g1"});
    let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}", "server_label": "bank"});
    let carry = origin("gpt-5").label(json!({"items": [{"item": reasoning}, {"call": 0, "request": question}]}));
    let mut request = request(asked(&["mcpr_1"], carry));
    let first = |request: &ModelRequest| body(request, "gpt-5")["input"][1].clone();
    assert_eq!(first(&request), function_call("mcpr_1"));
    request.approvals = Arc::new(vec![ApprovalAnswer { call_id: "mcpr_1".into(), approve: true, reason: None }]);
    assert_eq!(first(&request), reasoning);
}

fn asked(calls: &[&str], carry: Option<Value>) -> Vec<Message> {
    let calls: Vec<HistoryCall> = calls.iter().map(|id| call(id)).collect();
    let results: Vec<Message> = calls.iter().map(|call| tool(&call.id, "waiting")).collect();
    let answer = Message::Assistant { content: String::new(), calls, carry };
    std::iter::once(Message::user("Pay.")).chain(std::iter::once(answer)).chain(results).collect()
}

#[test]
fn an_answer_to_a_request_for_permission_follows_the_request_and_is_not_repeated() {
    let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}", "server_label": "bank"});
    let other = json!({"type": "mcp_approval_request", "id": "mcpr_2", "name": "pay", "arguments": "{}", "server_label": "bank"});
    let carry = origin("gpt-5").label(json!({"items": [{"call": 0, "request": question}, {"call": 1}, {"call": 2, "request": other}]}));
    let messages = asked(&["mcpr_1", "c1", "call_own"], carry);
    let answers = vec![
        ApprovalAnswer { call_id: "mcpr_1".into(), approve: true, reason: None },
        ApprovalAnswer { call_id: "call_own".into(), approve: false, reason: Some("denied".into()) },
    ];
    let with = |approvals: Vec<ApprovalAnswer>| ModelRequest { approvals: Arc::new(approvals), ..request(messages.clone()) };
    let input =
        |request: &ModelRequest, model: &str, pairs: bool| body_with(request, model, pairs)["input"].as_array().unwrap()[1..].to_vec();
    let approved = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true});
    let denied = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": false, "reason": "denied"});
    let first = with(answers);
    let expected = [&question, &function_call("c1"), &other, &approved, &output("c1", "waiting"), &denied].map(Clone::clone);
    assert_eq!(input(&first, "gpt-5", false), expected);
    let expected = [&question, &approved, &function_call("c1"), &output("c1", "waiting"), &other, &denied].map(Clone::clone);
    assert_eq!(input(&first, "gpt-5", true), expected);

    let plain = [
        function_call("mcpr_1"),
        function_call("c1"),
        function_call("call_own"),
        output("mcpr_1", "waiting"),
        output("c1", "waiting"),
        output("call_own", "waiting"),
    ];
    assert_eq!(input(&with(Vec::new()), "gpt-5", false), plain, "later requests have calls and results only");
    assert_eq!(input(&first, "gpt-5-mini", false), plain, "another model knows nothing of the request");
}

#[test]
fn some_servers_need_each_result_beside_its_call() {
    let carry = origin("deepseek-chat").label(carried());
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
fn carried_data_of_a_changed_message_is_ignored() {
    let plain = body(&request(history(None)), "gpt-5")["input"].clone();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut content = carried();
        change(&mut content);
        body(&request(history(origin("gpt-5").label(content))), "gpt-5")["input"].clone()
    };
    assert_eq!(changed(&|content| content["items"][1]["message"]["bytes"] = json!(4)), plain, "the text was edited");
    assert_eq!(changed(&|content| content["items"][4]["call"] = json!(7)), plain, "a call is gone");
    assert_eq!(changed(&|content| drop(content["items"].as_array_mut().unwrap().pop())), plain, "a call is new");
    assert_eq!(changed(&|content| content["items"] = json!("odd")), plain);
    let lonely = json!({"items": [{"message": {"bytes": 4, "id": null, "phase": null}}, {"item": {"type": "reasoning", "id": "rs"}}]});
    let message = Message::Assistant { content: "Done".into(), calls: vec![], carry: origin("gpt-5").label(lonely) };
    let input = body(&request(vec![message]), "gpt-5")["input"].clone();
    assert_eq!(input, json!([{"role": "assistant", "content": "Done"}]), "reasoning without a following item is rejected");
}

#[test]
fn invalid_calls_in_the_history_are_made_valid() {
    let calls = vec![HistoryCall { id: "c".into(), name: "größe!".into(), arguments: "{\"a\":".into() }];
    let messages = vec![Message::Assistant { content: String::new(), calls, carry: None }, tool("c", "no")];
    let input = body(&request(messages), "m")["input"].clone();
    assert_eq!(input[0], json!({"type": "function_call", "call_id": "c", "name": "gr__e_", "arguments": "{}"}));
    assert_eq!(input[1], output("c", "no"));
}
