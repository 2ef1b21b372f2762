use serde_json::{Value, json};
use werkruf_llm::history_formats::HistoryFormat;

use super::{Input, UserMessage};
use crate::openai::transcript::TranscriptDigest;

fn read(values: &Value) -> Input {
    let mut count = 0;
    let mut new_call_id = || {
        count += 1;
        format!("fresh_{count}")
    };
    Input::read(HistoryFormat::Openai, values.as_array().unwrap(), &mut new_call_id).unwrap()
}

fn call(id: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]})
}

#[test]
fn instructions_history_and_new_input_are_separated() {
    let input = read(&json!([
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"},
        {"role": "developer", "content": "Be short."}, {"role": "user", "content": "Three"}, {"role": "user", "content": "Four"},
    ]));
    assert_eq!(input.instructions, ["Be kind.", "Be short."]);
    assert_eq!(input.new_user_message(), UserMessage { text: "Three\n\nFour".to_owned(), parts: vec![] });
    let (history, message) = input.split_history();
    assert_eq!((history.len(), message.text.as_str()), (3, "Four"));
    assert_eq!(history[2], json!({"role": "user", "content": "Three"}));
    assert!(input.results().is_empty());
}

#[test]
fn results_are_new_input_or_history_of_a_new_conversation() {
    let input = read(&json!([
        {"role": "user", "content": "Go"}, call("a"), {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "42"}]},
    ]));
    let results = input.results();
    assert_eq!((results.len(), results[0].call_id.as_str(), results[0].content.as_str()), (1, "a", "42"));
    assert_eq!(input.new_user_message(), UserMessage::default());
    let (history, message) = input.split_history();
    assert_eq!((history.len(), message), (3, UserMessage::default()));
}

#[test]
fn pictures_are_content_parts() {
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let input = read(&json!([{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]));
    let message = input.new_user_message();
    assert_eq!((message.text.as_str(), message.parts.len()), ("What is it?", 2));
    let plain = read(&json!([{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}]));
    assert!(plain.new_user_message().parts.is_empty());
    assert_ne!(input.digest(TranscriptDigest::default()), plain.digest(TranscriptDigest::default()));
}

#[test]
fn the_last_of_only_instructions_is_the_user_message() {
    let input = read(&json!([{"role": "system", "content": "Be kind."}, {"role": "system", "content": "Say hi."}]));
    assert_eq!((input.instructions.len(), input.new_user_message().text.as_str()), (1, "Say hi."));
}

#[test]
fn a_resent_history_has_the_digest_of_the_answer() {
    let first = read(&json!([{"role": "system", "content": "x"}, {"role": "user", "content": "One "}]));
    let after = werkruf_runtime::digest_after_answer(&first.digest(TranscriptDigest::default()), "Two", &["a"]);
    let mut answer = call("a");
    answer["content"] = json!("Two");
    let again = read(&json!([{"role": "user", "content": "One"}, answer, {"role": "user", "content": "Three"}]));
    assert_eq!(again.digest_up_to_last_answer(), Some(after.clone()));
    // Two assistant messages in a row are the same answer.
    let split = read(&json!([{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, call("a")]));
    assert_eq!(split.digest_up_to_last_answer(), Some(after));
    assert_eq!(first.digest_up_to_last_answer(), None);
}
