//! `serve` and the commands beside it, through the real binary.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Place, Server};
use serde_json::{Value, json};

fn testing() -> Place {
    Place::new().with("WERKRUF_TEST_TOOLS", "1")
}

/// What the server answers to this key.
fn list_tools(server: &Server, key: &str) -> u16 {
    let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = client.get(format!("{}/api/tools", server.address())).bearer_auth(key).send();
    runtime.block_on(request).unwrap().status().as_u16()
}

fn names(tools: &Value) -> Vec<&str> {
    tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn the_first_start_prints_a_key_that_works_once() {
    let place = testing();
    let server = place.serve(&[]);
    assert!(server.said.contains("Model: offline"), "{}", server.said);
    assert!(server.said.contains("Database: data/werkruf.db"), "{}", server.said);
    let key = server.key();
    assert!(key.starts_with("wk_"));
    assert_eq!((list_tools(&server, &key), list_tools(&server, "wk_wrong")), (200, 401));
    server.signal("-TERM");
    assert!(server.ended().success());
    let again = place.serve(&[]);
    assert!(!again.said.contains("curl ") && again.said.contains("werkruf keys create"), "{}", again.said);
    assert_eq!(list_tools(&again, &key), 200, "the first key lives on");
}

#[test]
fn the_note_is_private_and_gone_after_an_interrupt() {
    let place = testing();
    let server = place.serve(&[]);
    let note = place.path().join("data/werkruf.db.lock");
    assert_eq!(std::fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
    let written: Value = serde_json::from_slice(&std::fs::read(&note).unwrap()).unwrap();
    assert_eq!(written["address"], server.address().as_str());
    assert!(written["token"].is_string() && written["pid"].is_u64());
    server.signal("-INT");
    assert!(server.ended().success());
    assert!(!note.exists());
}

#[test]
fn one_server_per_database() {
    let place = testing();
    let _server = place.serve(&[]);
    let second = place.run(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(1);
    assert_eq!(second.error()["code"], "database_in_use");
    let told = place.run(&["serve", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(told.stderr.contains("database_in_use"), "{told:?}");
}

#[test]
fn a_killed_server_leaves_a_note_nobody_believes() {
    let place = testing();
    let server = place.serve(&[]);
    server.signal("-KILL");
    assert!(!server.ended().success());
    assert!(place.path().join("data/werkruf.db.lock").exists());
    assert!(names(&place.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_echo"));
    let _again = place.serve(&[]);
}

#[test]
fn tools_are_called_with_and_without_a_server() {
    let place = testing();
    let call = ["tools", "call", "test_echo", "--input", "{\"value\": \"hallo\"}", "--json"];
    let alone = place.run(&call).exits(0).json();
    let server = place.serve(&[]);
    let beside = place.run(&call).exits(0).json();
    assert_eq!((&alone["status"], &alone["data"]), (&beside["status"], &beside["data"]));
    assert!(alone["data"].to_string().contains("hallo"), "{alone}");
    let calls = place.run(&["calls", "list", "--tool", "test_echo", "--json"]).exits(0).json();
    assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 2, "both are in the same registry: {calls}");
    drop(server);
    assert!(place.run(&["tools", "schema", "test_echo"]).exits(0).json()["properties"]["value"].is_object());
    place.run(&["tools", "schema", "nothing"]).exits(1);
    place.run(&["tools", "call", "test_echo", "--input", "{"]).exits(2);
    assert_eq!(place.run(&["tools", "call", "nothing", "--json"]).exits(1).error()["code"], "unknown_tool");
}

#[test]
fn a_failed_call_is_listed_explained_and_retried() {
    let place = testing();
    let _server = place.serve(&[]);
    let failed = place.run(&["tools", "call", "test_panic", "--json"]).exits(1).json();
    assert_eq!(failed["error"]["code"], "tool_panicked");
    let calls = place.run(&["calls", "list", "--status", "failed", "--json"]).exits(0).json();
    let id = calls["tool_calls"][0]["id"].as_str().unwrap().to_owned();
    // All but the last letter: long enough to be unique, and no whole id.
    let prefix = &id[..id.len() - 1];
    assert_eq!(place.run(&["calls", "show", prefix, "--json"]).exits(0).json()["id"], id.as_str());
    let told = place.run(&["explain", prefix, "--json"]).exits(0).json();
    for field in ["message", "model_answer", "raw_arguments", "repairs", "arguments", "permission", "attempts", "outcome", "events"] {
        assert!(told.get(field).is_some(), "{field} is missing: {told}");
    }
    assert!(place.run(&["explain", &id]).exits(0).stdout.contains("Outcome\n  status: failed"));
    let retried = place.run(&["calls", "retry", prefix, "--json"]).exits(0).json();
    assert_ne!(retried["job_id"], id.as_str());
    assert_eq!(place.run(&["calls", "show", "ffffffff", "--json"]).exits(1).error()["code"], "not_found");
    assert!(place.run(&["calls", "list"]).exits(0).stdout.contains("tool_panicked"));
}

#[test]
fn keys_are_made_listed_used_and_deleted() {
    let place = testing();
    let server = place.serve(&[]);
    let made = place
        .run(&["keys", "create", "--tenant", "demo", "--user", "3", "--scopes", "chat,read,tools", "--name", "c", "--json"])
        .exits(0)
        .json();
    let key = made["key"].as_str().unwrap();
    assert_eq!((&made["user_id"], list_tools(&server, key)), (&json!("3"), 200));
    let listed = place.run(&["keys", "list", "--json"]).exits(0).json();
    assert!(listed["keys"].as_array().unwrap().iter().any(|row| row["id"] == made["id"]), "{listed}");
    assert!(!listed.to_string().contains(key), "a key is shown once");
    let id = made["id"].as_str().unwrap();
    place.run(&["keys", "delete", &id[..35]]).exits(0);
    assert_eq!(list_tools(&server, key), 401);
    place.run(&["keys", "delete", id]).exits(1);
}

#[test]
fn another_server_is_spoken_to_with_a_key() {
    let place = testing();
    let server = place.serve(&[]);
    let elsewhere = Place::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", &server.key());
    assert!(names(&elsewhere.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_echo"));
    assert!(elsewhere.run(&["tools", "call", "test_echo", "--input", "{\"value\": \"da\"}"]).exits(0).stdout.contains("da"));
    assert!(!elsewhere.path().join("data").exists(), "no database is made beside a named server");
    let stranger = Place::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", "wk_wrong");
    stranger.run(&["tools", "list"]).exits(1);
}

#[test]
fn a_hangup_reads_the_tools_again() {
    let place = Place::new();
    place.file("werkruf.toml", "");
    let server = place.serve(&[]);
    let listed = || place.run(&["tools", "list", "--json"]).exits(0).json();
    assert!(!names(&listed()).contains(&"fresh"));
    place.file(
        "werkruf.toml",
        "[[tools]]\nname = 'fresh'\ndescription = 'F.'\nurl = 'http://127.0.0.1:9/'\neffect = 'read'\nparameters = '{\"type\": \"object\"}'\n",
    );
    server.signal("-HUP");
    // A hangup is not answered; the list is asked until it has arrived.
    let arrived = (0..200).any(|_| names(&listed()).contains(&"fresh"));
    assert!(arrived);
}

#[test]
fn sample_people_come_with_a_new_database_unless_decided_otherwise() {
    let call = ["tools", "call", "test_echo", "--input", "{\"value\": \"x\"}", "--user", "6", "--json"];
    let by_itself = testing();
    by_itself.run(&call).exits(0);
    let off = testing().with("WERKRUF_SAMPLE_DATA", "off");
    assert_eq!(off.run(&call).exits(1).error()["code"], "unknown_user");
    let configured = testing();
    configured.file("werkruf.toml", "disabled_tools = ['test_panic']");
    assert_eq!(configured.run(&call).exits(1).error()["code"], "unknown_user");
    assert!(!names(&configured.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_panic"));
    configured.file("werkruf.toml", "sample_data = true");
    configured.run(&call).exits(0);
}
