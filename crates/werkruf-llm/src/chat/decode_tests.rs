use super::*;

fn chunk(payload: &str) -> Chunk {
    decode(payload, false).unwrap()
}

fn fragment(call: &str) -> CallFragment {
    let mut chunk = chunk(&format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#));
    assert_eq!(chunk.calls.len(), 1);
    chunk.calls.remove(0)
}

#[test]
fn reads_a_plain_chunk() {
    let chunk = chunk(
        r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":null}"#,
    );
    let expected = Chunk {
        response_id: Some("c1".into()),
        model: Some("m".into()),
        text: "Hi".into(),
        finish: Some("stop".into()),
        ..Chunk::default()
    };
    assert_eq!(chunk, expected);
}

#[test]
fn reads_calls_in_every_format() {
    let named = |index, id: Option<&str>, name: Option<&str>, arguments: &str| CallFragment {
        index,
        id: id.map(Into::into),
        name: name.map(Into::into),
        arguments: arguments.into(),
        extra: None,
    };
    assert_eq!(fragment(r#"{"index":1,"id":"a","function":{"name":"f","arguments":""}}"#), named(Some(1), Some("a"), Some("f"), ""));
    assert_eq!(fragment(r#"{"id":"","function":{"name":"","arguments":null}}"#), named(None, None, None, ""));
    assert_eq!(fragment(r#"{"index":"2","id":0,"function":{"name":"f"}}"#), named(Some(2), Some("0"), Some("f"), ""));
    assert_eq!(fragment(r#"{"function":{"arguments":{"a": [1, "x"]}}}"#).arguments, r#"{"a": [1, "x"]}"#);
    assert_eq!(fragment(r#"{"index":0,"function":{"arguments":"{\"a\":\"\\u00e4\"}"}}"#).arguments, r#"{"a":"\u00e4"}"#);
    assert_eq!(fragment(r#"{"index":0,"function":null}"#), named(Some(0), None, None, ""));
}

#[test]
fn reads_text_parts_but_not_thinking() {
    let parts = r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"A"},{"text":"B"},{"type":"reference","text":"no"}]"#;
    assert_eq!(chunk(&format!(r#"{{"choices":[{{"delta":{{"content":{parts},"reasoning_content":"hm"}}}}]}}"#)).text, "AB");
}

#[test]
fn ignores_other_choices() {
    let chunk = chunk(r#"{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"},{"index":0,"delta":{"content":"yes"}}]}"#);
    assert_eq!((chunk.text.as_str(), chunk.finish), ("yes", None));
}

#[test]
fn an_invalid_field_does_not_affect_the_others() {
    let chunk = chunk(
        r#"{"id":{"odd":1},"model":7,"usage":"none","x_groq":[],"choices":[null,3,{"index":null,"delta":{"content":"ok","refusal":false,"tool_calls":"x"},"finish_reason":[]}]}"#,
    );
    assert_eq!((chunk.text.as_str(), chunk.usage, chunk.error), ("ok", None, None));
    assert!(decode("{\"choices\":", false).is_err());
}

#[test]
fn reads_usage_from_every_field() {
    let plain = chunk(
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3.0,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
    );
    let expected = TokenUsage { input_tokens: 7, cached_tokens: 2, output_tokens: 3, reasoning_tokens: 1, total_tokens: 10 };
    assert_eq!(plain.usage, Some(expected));
    let groq = chunk(r#"{"choices":[],"x_groq":{"usage":{"prompt_tokens":1,"completion_tokens":-4}}}"#);
    assert_eq!(groq.usage, Some(TokenUsage { input_tokens: 1, total_tokens: 1, ..TokenUsage::default() }));
    assert_eq!(chunk(r#"{"usage":{}}"#).usage, None);
}

#[test]
fn finds_errors_in_every_place() {
    for payload in [
        r#"{"error":{"message":"no","code":400}}"#,
        r#"{"code":400,"error":"no"}"#,
        r#"{"object":"error","message":"no","code":400}"#,
        r#"{"choices":[{"index":0,"delta":{},"error":{"code":400,"message":"no"},"finish_reason":"error"}]}"#,
    ] {
        assert_eq!(chunk(payload).error, Some(StreamError { status: 400, message: "no".into() }), "{payload}");
    }
    assert!(decode(r#"{"message":"no"}"#, true).unwrap().error.is_some());
    assert_eq!(chunk(r#"{"error":null,"choices":[]}"#).error, None);
}

#[test]
fn an_undecodable_string_is_marked_as_damage() {
    let chunk = chunk(r#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#);
    assert!(chunk.damaged && chunk.text.is_empty());
}
