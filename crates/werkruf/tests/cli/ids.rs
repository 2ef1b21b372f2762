//! Short ids, and what the next command is, with the real binary.

use serde_json::{Value, json};

use crate::support::{CommandOutput, TestFolder};

fn testing() -> TestFolder {
    TestFolder::new().with("WERKRUF_TEST_TOOLS", "1")
}

fn echo(folder: &TestFolder, value: &str) -> CommandOutput {
    folder.run(&["tools", "call", "test_echo", "--input", &json!({"value": value}).to_string()]).exits(0)
}

fn ids(folder: &TestFolder, list: &str, field: &str) -> Vec<String> {
    let rows = folder.run(&[list, "list", "--json"]).exits(0).json()[field].take();
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_part_of_an_id_that_fits_several_calls_is_answered_with_the_candidates() {
    let folder = testing();
    echo(&folder, "one");
    echo(&folder, "two");
    let calls = ids(&folder, "calls", "tool_calls");
    let common: String = calls[0].chars().zip(calls[1].chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    assert!(common.len() >= 4, "both calls were made within a day: {calls:?}");

    let error = folder.run(&["explain", &common, "--json"]).exits(1).error();
    assert_eq!(error["code"], "ambiguous_id");
    let named: Vec<&str> = error["details"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(named, calls, "the newest first");
    assert_eq!(error["details"][0]["name"], "test_echo");
    let text = folder.run(&["calls", "show", &common]).exits(1).stderr;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "error: ambiguous_id: More than one tool call has an id that begins or ends like this; give more characters of the id."
    );
    assert!(lines[1].starts_with(&format!("  {}  20", calls[0])) && lines[1].ends_with("  test_echo"), "{text}");
    assert_eq!(lines.len(), 3);

    for part in [&calls[1][28..], &calls[1][..35], &calls[1].to_uppercase()[24..]] {
        assert_eq!(folder.run(&["calls", "show", part, "--json"]).exits(0).json()["id"], calls[1].as_str(), "{part}");
    }
    assert_eq!(folder.run(&["explain", "0000000f", "--json"]).exits(1).error()["code"], "not_found");
}

#[test]
fn a_call_that_waits_for_approval_says_so_and_what_to_do() {
    let folder = testing();
    folder.file(
        "werkruf.toml",
        "[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\nkind = \"http\"\nurl = \"http://127.0.0.1:9/\"\neffect = \"once\"\n\
         permission = \"none\"\napproval = \"admin\"\nparameters = '{\"type\": \"object\"}'\n\n[workspace]\n",
    );
    let folder = folder.with("WERKRUF_SAMPLE_DATA", "on");
    let waiting = folder.run(&["tools", "call", "pay"]).exits(0);
    let approval = ids(&folder, "approvals", "approvals").remove(0);
    let call = ids(&folder, "calls", "tool_calls").remove(0);
    let (short, result) = (&approval[28..], &call[28..]);
    let expected = format!(
        "The call waits for approval {approval}.\n\
         Decide: `werkruf approvals approve {short}` or `deny {short}`; the result: `werkruf calls show {result}`\n"
    );
    assert_eq!((waiting.stdout.as_str(), waiting.stderr.as_str()), (expected.as_str(), ""));
    let denied: Value = folder.run(&["approvals", "deny", short, "--json"]).exits(0).json();
    assert_eq!((denied["id"].as_str(), denied["status"].as_str()), (Some(approval.as_str()), Some("denied")));
    assert_eq!(folder.run(&["calls", "show", result, "--json"]).exits(0).json()["error_code"], "approval_denied");
}
