use serde_json::{Value, json};

use super::*;
use crate::HistoryCall;

fn request() -> ModelRequest {
    let call = |id: &str| HistoryCall { id: id.into(), name: "f".into(), arguments: "{\"a\": \"ä\\n\"}".into() };
    ModelRequest {
        model: None,
        system: "Be \"kind\".".into(),
        messages: Arc::new(vec![
            Message::User { content: "Hallo\n\u{1}🙂".into() },
            Message::Assistant { content: String::new(), calls: vec![call("c1"), call("c2")] },
            Message::Tool { call_id: "c1".into(), name: "f".into(), content: "{}".into() },
            Message::Tool { call_id: "c2".into(), name: "f".into(), content: "no".into() },
            Message::Assistant { content: "Done".into(), calls: vec![] },
        ]),
        tools: Arc::new(vec![
            ToolDefinition { name: "f".into(), description: "F.".into(), parameters: json!({"type": "object"}), strict: true },
            ToolDefinition { name: "g".into(), description: "G.".into(), parameters: json!({"type": "object"}), strict: false },
        ]),
        tool_choice: ToolChoice::Auto,
        locale: "en-US".to_owned(),
        today: jiff::civil::Date::constant(2026, 1, 1),
        temperature: Some(0.5),
        max_output_tokens: None,
    }
}

fn body(request: &ModelRequest, model: &str, at_openai: bool) -> Value {
    serde_json::from_slice(&encode(request, model, 16384, Dialect { at_openai }, &ToolCache::default()).unwrap()).unwrap()
}

#[test]
fn writes_what_the_api_wants() {
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
fn the_last_word_offers_no_tools() {
    let body = body(&ModelRequest { tool_choice: ToolChoice::None, system: String::new(), ..request() }, "m", false);
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    assert_eq!(body["messages"][0]["role"], "user");
}

#[test]
fn names_the_limit_as_the_model_wants_it() {
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
fn keeps_encoded_tools_by_identity_and_not_for_ever() {
    let (cache, first) = (ToolCache::default(), request());
    let bytes = cache.encoded(&first.tools).unwrap();
    assert!(Arc::ptr_eq(&bytes, &cache.encoded(&Arc::clone(&first.tools)).unwrap()));
    for _ in 0..KEPT_LISTS {
        cache.encoded(&request().tools).unwrap();
    }
    assert!(!Arc::ptr_eq(&bytes, &cache.encoded(&first.tools).unwrap()), "the oldest list was let go");
}
