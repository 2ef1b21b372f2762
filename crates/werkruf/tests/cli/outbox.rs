//! `werkruf outbox` with the real binary, beside a server and without one.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::TestFolder;

/// Nobody listens there.
const WEBHOOK: &str = "[[webhooks]]\nname = 'crm'\nurl = 'http://127.0.0.1:9/crm'\nevents = ['turn_finished']\nsecret_env = 'CRM_SECRET'\n";

fn rows(folder: &TestFolder, arguments: &[&str]) -> Vec<Value> {
    let listed = folder.run(&[&["outbox", "list", "--json"], arguments].concat()).exits(0).json();
    assert_eq!(listed["next_after"], json!(null));
    listed["outbox"].as_array().unwrap().clone()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test waits for the server's first attempt")]
fn rows_are_listed_shown_retried_and_released() {
    let folder = TestFolder::new().with("CRM_SECRET", "0123456789abcdef").with("WERKRUF_SAMPLE_DATA", "on");
    folder.file("werkruf.toml", &format!("{WEBHOOK}[workspace]\n"));
    assert!(folder.run(&["outbox", "list"]).exits(1).stderr.contains("database_missing"));
    let server = folder.serve(&[]);
    assert!(folder.run(&["outbox", "list"]).exits(0).stdout.contains("The outbox is empty."));
    folder.run(&["chat", "Who am I?", "--user", "1"]).exits(0);
    let started = Instant::now();
    let row = loop {
        let found = rows(&folder, &["--status", "pending"]);
        match found.as_slice() {
            [row] if row["attempts"].as_i64() >= Some(1) => break row.clone(),
            _ => assert!(started.elapsed() < Duration::from_secs(60), "{found:?}"),
        }
    };
    assert_eq!(
        (&row["channel"], &row["recipient"], &row["error_code"]),
        (&json!("webhook"), &json!("crm"), &json!("upstream_unreachable"))
    );
    let id = row["id"].as_str().unwrap();
    let table = folder.run(&["outbox", "list"]).exits(0).stdout;
    assert!(table.contains("webhook") && table.contains(&id[id.len() - 8..]), "{table}");
    let shown = folder.run(&["outbox", "show", &id[id.len() - 8..], "--json"]).exits(0).json();
    assert_eq!((&shown["id"], &shown["body"]["event"]["type"]), (&row["id"], &json!("turn_finished")));
    assert_eq!(folder.run(&["outbox", "retry", id, "--json"]).exits(1).error()["code"], "not_dead");
    assert_eq!(folder.run(&["outbox", "release", id, "--json"]).exits(1).error()["code"], "not_held");
    assert_eq!(folder.run(&["outbox", "release"]).exits(0).stdout.trim(), "released: 0");
    server.signal("-TERM");
    assert!(server.ended().success());

    // Without a server: a backup holds what was not sent, and an operator releases it.
    folder.run(&["backup", "copy.db"]).exits(0);
    folder.run(&["restore", "copy.db", "--force"]).exits(0);
    let held = rows(&folder, &["--status", "held"]);
    assert_eq!(held.iter().map(|row| &row["id"]).collect::<Vec<_>>(), [&row["id"]]);
    assert_eq!(folder.run(&["outbox", "release", id, "--json"]).exits(0).json(), json!({"released": 1}));
    assert_eq!(rows(&folder, &["--status", "pending"]).len(), 1);
    let acts = folder.run(&["audit", "list", "--tenant", "demo", "--json"]).exits(0).json();
    let last = acts["audit"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["action"], &last["subject"], &last["actor"]["operator"]), (&json!("outbox.release"), &row["id"], &json!(true)));
}
