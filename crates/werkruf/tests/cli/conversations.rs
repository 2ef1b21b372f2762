//! `werkruf conversations` of the real binary.

use serde_json::{Value, json};
use tokio::task::block_in_place;
use werkruf_bench::fake_model::{FakeModel, Reply, call};

use crate::chat::folder_with_model;
use crate::support::{CommandOutput, TestFolder};

/// A folder with one conversation of two turns, and the conversation's id.
async fn folder_with_conversation() -> (TestFolder, String) {
    let model = FakeModel::start().await;
    model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": "tea"})), call("test_panic", json!({}))]).with_text("I look."),
        Reply::text("Here is tea."),
        Reply::text("You are welcome."),
    ]);
    let folder = folder_with_model(&model);
    block_in_place(|| folder.run_with_input(&["chat"], "tea please\nthanks\n")).exits(0);
    let listed = block_in_place(|| folder.run(&["conversations", "list", "--json"])).exits(0).json();
    let id = listed["conversations"][0]["id"].as_str().unwrap().to_owned();
    (folder, id)
}

fn run(folder: &TestFolder, arguments: &[&str]) -> CommandOutput {
    block_in_place(|| folder.run(arguments))
}

fn length(value: &Value) -> usize {
    value.as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_listed_and_read() {
    let (folder, id) = folder_with_conversation().await;
    let listed = run(&folder, &["conversations", "list"]).exits(0).stdout;
    assert!(
        listed.trim_start().starts_with("CONVERSATION")
            && listed.contains(&id[28..])
            && !listed.contains(&id)
            && listed.contains("tea please"),
        "{listed}"
    );
    let read = run(&folder, &["conversations", "show", &id[..13]]).exits(0).stdout;
    // Results are in the order of completion, so either call may be first.
    for result in ["  ✓ test_echo ", "  ✗ test_panic "] {
        let expected = ["user\n  tea please", "assistant\n  I look.\n  ⚙ test_echo {\"value\":\"tea\"}\n", result, "  Here is tea."];
        let positions: Vec<Option<usize>> = expected.iter().map(|part| read.find(part)).collect();
        assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?} {read}");
    }
    let json = run(&folder, &["conversations", "show", &id, "--json"]).exits(0).json();
    assert_eq!((json["conversation"]["id"].as_str(), length(&json["messages"])), (Some(id.as_str()), 7));
    assert_eq!(run(&folder, &["conversations", "show", "ffffffff", "--json"]).exits(1).error()["code"], "not_found");
    run(&folder, &["conversations", "show", "../keys"]).exits(2);
    assert_eq!(run(&folder, &["conversations", "list", "--user", "2"]).exits(0).stdout, "No conversations.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_complete() {
    let (folder, id) = folder_with_conversation().await;
    let whole = run(&folder, &["conversations", "export", &id[..13]]).exits(0).json();
    assert_eq!(whole["conversation"]["id"], id.as_str());
    assert_eq!((length(&whole["messages"]), length(&whole["turns"]), length(&whole["tool_calls"])), (7, 2, 2));
    assert!(whole["state"].is_object() && length(&whole["tool_calls"][0]["attempts"]) == 1, "{whole}");
    let numbers: Vec<i64> = whole["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<i64>>(), "without a gap");
    assert_eq!(whole["events"].as_array().unwrap().last().unwrap()["type"], "final");

    let written = run(&folder, &["conversations", "export", &id, "talk.md", "--format", "markdown", "--json"]).exits(0).json();
    assert_eq!(written, json!({"written": "talk.md"}));
    let text = std::fs::read_to_string(folder.path().join("talk.md")).unwrap();
    assert!(text.starts_with("# tea please\n") && text.contains("⚙ `test_echo`") && text.contains("\nYou are welcome.\n"), "{text}");
    assert_eq!(run(&folder, &["conversations", "export", &id, "--format", "markdown"]).exits(0).stdout, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_needs_confirmation() {
    let (folder, id) = folder_with_conversation().await;
    assert_eq!(run(&folder, &["conversations", "delete", &id, "--json"]).exits(1).error()["code"], "not_confirmed");
    run(&folder, &["conversations", "show", &id]).exits(0);
    assert_eq!(run(&folder, &["conversations", "delete", &id[..13], "--yes"]).exits(0).stdout, format!("deleted {id}\n"));
    run(&folder, &["conversations", "show", &id]).exits(1);
    run(&folder, &["conversations", "delete", &id, "--yes"]).exits(1);
}

#[test]
fn a_conversation_is_imported_and_exported_in_other_formats() {
    let folder = TestFolder::new().with("WERKRUF_SAMPLE_DATA", "on");
    let history = r#"[{"role":"user","content":"hi","name":"Ana"},{"role":"assistant","content":"Hello."}]"#;
    std::fs::write(folder.path().join("history.json"), history).unwrap();
    let made = folder.run(&["conversations", "import", "history.json", "--format", "openai", "--user", "3", "--json"]).exits(0).json();
    let id = made["id"].as_str().unwrap();
    folder.run(&["conversations", "export", id, "--format", "langchain", "chain.json"]).exits(0);
    let made = folder.run(&["conversations", "import", "chain.json", "--format", "langchain", "--user", "3", "--json"]).exits(0).json();
    let back = folder.run(&["conversations", "export", made["id"].as_str().unwrap(), "--format", "openai"]).exits(0).json();
    assert_eq!(back, serde_json::from_str::<serde_json::Value>(history).unwrap());
    std::fs::write(folder.path().join("bad.json"), r#"[{"role":"chef"}]"#).unwrap();
    let refused = folder.run(&["conversations", "import", "bad.json", "--format", "openai", "--user", "3", "--json"]).exits(1).error();
    assert_eq!(refused["details"][0]["path"], "/messages/0");
}
