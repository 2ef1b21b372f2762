use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{HistoryCall, ToolChoice};

fn request() -> ModelRequest {
    let call = |id: &str| HistoryCall { id: id.into(), name: "f".into(), arguments: "{\"a\": \"ä\\n\"}".into() };
    ModelRequest {
        model: None,
        system: "Be \"kind\".".into(),
        messages: Arc::new(vec![
            Message::user("Hallo\n\u{1}🙂"),
            Message::Assistant { content: String::new(), calls: vec![call("c1"), call("c2")], carry: None },
            Message::result("c1", "f", "{}"),
            Message::result("c2", "f", "no"),
            Message::Assistant { content: "Done".into(), calls: vec![], carry: None },
        ]),
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
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        locale: "en-US".to_owned(),
        today: jiff::civil::Date::constant(2026, 1, 1),
        temperature: Some(0.5),
        max_output_tokens: None,
        options: Default::default(),
        client_max_tokens: None,
        approvals: Arc::default(),
    }
}

fn origin(model: &str) -> Origin {
    Origin { api: "chat", provider: "p".into(), model: model.into() }
}

fn body(request: &ModelRequest, model: &str, at_openai: bool) -> Value {
    let cache = ToolCache::new(Dialect::tools);
    serde_json::from_slice(&Dialect { at_openai }.body(request, &origin(model), 16384, &cache).unwrap()).unwrap()
}

#[test]
fn encodes_the_api_format() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"ä\\n\"}"}});
    let function = |name: &str, description: &str| json!({"name": name, "description": description, "parameters": {"type": "object"}});
    let mut strict = function("f", "F.");
    strict["strict"] = json!(true);
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 16384, "temperature": 0.5,
        "tools": [{"type": "function", "function": strict}, {"type": "function", "function": function("g", "G.")}], "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "Be \"kind\"."},
            {"role": "user", "content": "Hallo\n\u{1}🙂"},
            {"role": "assistant", "tool_calls": [call("c1"), call("c2")]},
            {"role": "tool", "content": "{}", "tool_call_id": "c1"},
            {"role": "tool", "content": "no", "tool_call_id": "c2"},
            {"role": "assistant", "content": "Done"},
        ],
    });
    assert_eq!(body(&request(), "m", false), expected);
}

#[test]
fn tool_choice_none_sends_no_tools() {
    let body = body(&ModelRequest { tool_choice: ToolChoice::None, system: "".into(), ..request() }, "m", false);
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    assert_eq!(body["messages"][0]["role"], "user");
}

#[test]
fn the_token_limit_has_the_name_that_the_model_accepts() {
    let request = ModelRequest { max_output_tokens: Some(99), ..request() };
    for (model, at_openai, limit, warm) in [
        ("gpt-4o", true, "max_completion_tokens", true),
        ("gpt-5-mini", true, "max_completion_tokens", false),
        ("openai/o3", false, "max_completion_tokens", false),
        ("o4-mini", false, "max_completion_tokens", false),
        ("llama3", false, "max_tokens", true),
        ("olmo", false, "max_tokens", true),
    ] {
        let body = body(&request, model, at_openai);
        assert_eq!(body[limit], 99, "{model}");
        assert_ne!(body.get("max_tokens").is_some(), body.get("max_completion_tokens").is_some(), "{model}");
        assert_eq!(body.get("temperature").is_some(), warm, "{model}");
    }
}

#[test]
fn tool_choice_and_parallel_calls_have_the_api_format() {
    let choice = |tool_choice| body(&ModelRequest { tool_choice, ..request() }, "m", false)["tool_choice"].clone();
    assert_eq!(choice(ToolChoice::Required), "required");
    assert_eq!(choice(ToolChoice::Named("f".into())), json!({"type": "function", "function": {"name": "f"}}));
    let single = ModelRequest { parallel_tool_calls: Some(false), ..request() };
    assert_eq!(body(&single, "gpt-4o", true)["parallel_tool_calls"], false);
    assert_eq!(body(&single, "o3-mini", true).get("parallel_tool_calls"), None, "such models reject the option");
    assert_eq!(body(&request(), "m", false).get("parallel_tool_calls"), None);
}

#[test]
fn carried_data_goes_back_to_its_origin_only() {
    let signature = json!({"google": {"thought_signature": "abc"}});
    let carry = origin("gemini").label(json!({"extra_content": [null, signature], "reasoning_content": "hm"}));
    let mut messages = (*request().messages).clone();
    let Message::Assistant { carry: stored, .. } = &mut messages[1] else { panic!("an assistant message") };
    *stored = carry;
    let request = ModelRequest { messages: Arc::new(messages), ..request() };
    let message = &body(&request, "gemini", false)["messages"][2];
    assert_eq!((&message["tool_calls"][1]["extra_content"], &message["reasoning_content"]), (&signature, &json!("hm")));
    assert_eq!(message["tool_calls"][0].get("extra_content"), None);
    let other = &body(&request, "another", false)["messages"][2];
    assert!(other["tool_calls"][1].get("extra_content").is_none() && other.get("reasoning_content").is_none());
}

#[test]
fn client_options_and_images_are_passed_on() {
    let options = json!({"top_p": 0.5, "stop": ["x"], "seed": 7, "response_format": {"type": "json_object"}, "unknown_option": 1});
    let parts = vec![json!({"type": "text", "text": "look"}), json!({"type": "image_url", "image_url": {"url": "data:x"}})];
    let mut request = request();
    request.options = std::sync::Arc::new(options.as_object().unwrap().clone());
    request.messages = std::sync::Arc::new(vec![Message::User { content: "look".into(), parts: parts.clone() }]);
    let plain = body(&request, "m", false);
    assert_eq!(
        (&plain["top_p"], &plain["stop"], &plain["seed"], plain.get("unknown_option")),
        (&json!(0.5), &json!(["x"]), &json!(7), None)
    );
    assert_eq!((&plain["response_format"]["type"], &plain["messages"][1]["content"]), (&json!("json_object"), &json!(parts)));
    let reasoning = body(&request, "gpt-5", false);
    assert_eq!(
        (reasoning.get("top_p"), reasoning.get("stop"), &reasoning["seed"]),
        (None, None, &json!(7)),
        "reasoning models reject some options"
    );
}
