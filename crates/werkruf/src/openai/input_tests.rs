use serde_json::{Value, json};
use werkruf_llm::history_formats::HistoryFormat;

use super::{Input, Said};
use crate::openai::seen::Sight;

fn read(values: &Value) -> Input {
    let mut made = 0;
    let mut fresh = || {
        made += 1;
        format!("fresh_{made}")
    };
    Input::read(HistoryFormat::Openai, values.as_array().unwrap(), &mut fresh).unwrap()
}

fn call(id: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
}

#[test]
fn instructions_history_and_new_input_are_told_apart() {
    let input = read(&json!([
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"},
        {"role": "developer", "content": "Be short."}, {"role": "user", "content": "Three"}, {"role": "user", "content": "Four"},
    ]));
    assert_eq!(input.instructions, ["Be kind.", "Be short."]);
    assert_eq!(input.said(), Said { text: "Three\n\nFour".to_owned(), parts: vec![] });
    let (history, said) = input.apart();
    assert_eq!((history.len(), said.text.as_str()), (3, "Four"));
    assert_eq!(history[2], json!({"role": "user", "content": "Three"}));
    assert!(input.results().is_empty());
}

#[test]
fn results_are_new_input_and_history_of_a_stranger() {
    let input = read(&json!([
        {"role": "user", "content": "Go"}, call("a"), {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "42"}]},
    ]));
    let results = input.results();
    assert_eq!((results.len(), results[0].call_id.as_str(), results[0].content.as_str()), (1, "a", "42"));
    assert_eq!(input.said(), Said::default());
    let (history, said) = input.apart();
    assert_eq!((history.len(), said), (3, Said::default()));
}

#[test]
fn pictures_stay_parts() {
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let input = read(&json!([{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]));
    let said = input.said();
    assert_eq!((said.text.as_str(), said.parts.len()), ("What is it?", 2));
    let plain = read(&json!([{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}]));
    assert!(plain.said().parts.is_empty());
    assert_ne!(input.seen(Sight::default()), plain.seen(Sight::default()));
}

#[test]
fn instructions_alone_are_a_question() {
    let input = read(&json!([{"role": "system", "content": "Be kind."}, {"role": "system", "content": "Say hi."}]));
    assert_eq!((input.instructions.len(), input.said().text.as_str()), (1, "Say hi."));
}

#[test]
fn what_is_resent_is_seen_as_what_was_answered() {
    let asked = read(&json!([{"role": "system", "content": "x"}, {"role": "user", "content": "One "}]));
    let after = werkruf_runtime::digest_after_answer(&asked.seen(Sight::default()), "Two", &["a"]);
    let mut answer = call("a");
    answer["content"] = json!("Two");
    let again = read(&json!([{"role": "user", "content": "One"}, answer, {"role": "user", "content": "Three"}]));
    assert_eq!(again.seen_before(), Some(after.clone()));
    // In two messages it is the same answer.
    let split = read(&json!([{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, call("a")]));
    assert_eq!(split.seen_before(), Some(after));
    assert_eq!(asked.seen_before(), None);
}
