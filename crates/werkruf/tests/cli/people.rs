//! `werkruf people …` with the real binary: beside a server, without one, and two servers on one database.

use serde_json::{Value, json};

use crate::support::TestFolder;
use crate::testbed::fresh_database;

#[test]
fn people_are_managed_with_and_without_a_server() {
    let folder = TestFolder::new().with("COLUMNS", "100");
    let server = folder.serve(&[]);
    let people = |arguments: &[&str]| folder.run(&[&["people"], arguments].concat());
    let json_of = |arguments: &[&str]| people(&[arguments, &["--json"]].concat()).exits(0).json();
    let listed = people(&["list"]).exits(0).stdout;
    assert!(listed.lines().all(|line| line.chars().count() <= 100) && listed.contains("Clara Vogt"), "{listed}");
    let add = ["add", "--first-name", "Gil", "--last-name", "Soto", "--locale", "es-ES", "--role", "employee", "--branch", "2"];
    let added = json_of(&add);
    assert_eq!((&added["id"], &added["role_ids"], &added["branch_id"]), (&json!(7), &json!([3]), &json!(2)));
    assert_eq!(json_of(&["set", "7", "--phone", "+34 600 111 222", "--branch", ""])["branch_id"], Value::Null);
    assert_eq!(json_of(&["roles", "7", "lead", "4"])["role_ids"], json!([2, 4]));
    assert_eq!(
        people(&["may", "7", "get_cerebro_articles"]).exits(0).stdout,
        "yes: The role lead has cerebro:cerebro:both with scope branch.\n"
    );
    let other = people(&["may", "3", "get_requests", "--of", "4"]).exits(0).stdout;
    assert_eq!(other, "no: The role employee has table_requests:table:both with scope own, which covers the user's own rows only.\n");
    drop(server);

    // Without a server the command opens the database.
    assert_eq!(json_of(&["show", "7"])["phone"], "+34 600 111 222");
    assert_eq!(json_of(&["deactivate", "7"])["active"], false);
    assert!(people(&["list"]).exits(0).stdout.contains("deactivated"));
    assert_eq!(json_of(&["activate", "7"])["active"], true);
    let role = json_of(&["role", "add", "auditor", "table_requests:table:read:all"]);
    assert_eq!((&role["id"], &role["permissions"][0]["scope"]), (&json!(5), &json!("all")));
    assert_eq!(json_of(&["role", "permissions", "auditor"])["permissions"], json!([]));
    assert_eq!(json_of(&["role", "set", "auditor", "--name", "reader"])["name"], "reader");
    assert_eq!(people(&["role", "delete", "reader"]).exits(0).stdout, "deleted 5\n");
    let used = people(&["role", "delete", "lead", "--json"]).exits(1).error();
    assert_eq!((&used["code"], &used["details"]), (&json!("in_use"), &json!({"users": 2, "tables": []})));
    assert_eq!(json_of(&["branch", "add", "Lima", "--time-zone", "America/Lima"])["id"], 3);
    assert_eq!(json_of(&["branch", "set", "Lima", "--name", "Lima Sur"])["time_zone"], "America/Lima");
    people(&["branch", "delete", "3"]).exits(0);
    let invalid = people(&["set", "7", "--email", "nobody"]).exits(1).stderr;
    assert!(invalid.contains("/email: \"nobody\" is no e-mail address"), "{invalid}");
    people(&["set", "7"]).exits(2);
    people(&["role", "add", "x", "requests"]).exits(2);
    assert_eq!(people(&["roles", "7", "nobody", "--json"]).exits(1).error()["code"], "not_found");
    assert_eq!(json_of(&["list", "branches"])["branches"].as_array().unwrap().len(), 2);
}

#[test]
fn a_change_counts_at_the_next_call_on_every_server() {
    let database = fresh_database();
    let key = "an-operator-key-of-the-test";
    let variables = [("WERKRUF_ADMIN_KEY", key), ("WERKRUF_KEY", key), ("WERKRUF_SAMPLE_DATA", "on"), ("WERKRUF_MODEL", "offline")];
    let folder = variables.iter().fold(TestFolder::new(), |folder, (name, value)| folder.with(name, value));
    let (one, two) = (folder.serve(&["--database", &database]), folder.serve(&["--database", &database]));
    let (one, two) = (one.address(), two.address());
    let people = |arguments: &[&str]| folder.run(&[&["people"], arguments, &["--server", &one, "--json"]].concat()).exits(0).json();
    // Rows of user 4 of another branch: only scope all covers them.
    let call = || {
        let output =
            folder.run(&["tools", "call", "get_requests", "--input", "{\"userId\": 4}", "--user", "3", "--server", &two, "--json"]);
        let parsed: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        if output.code == 0 {
            "ok".to_owned()
        } else {
            parsed["error"]["code"].as_str().map_or_else(|| output.error()["code"].as_str().unwrap().to_owned(), str::to_owned)
        }
    };
    assert_eq!(call(), "permission_denied");
    people(&["roles", "3", "admin"]);
    assert_eq!(call(), "ok");
    let last = folder.run(&["calls", "list", "--limit", "1", "--user", "3", "--server", &two, "--json"]).exits(0).json();
    assert_eq!(last["tool_calls"][0]["permission"]["role"], "admin");
    people(&["role", "permissions", "admin", "table_requests:table:read:branch"]);
    assert_eq!(call(), "permission_denied", "the permissions of the role");
    people(&["role", "permissions", "admin", "table_requests:table:read:all"]);
    assert_eq!(call(), "ok");
    people(&["deactivate", "3"]);
    assert_eq!(call(), "unknown_user");
    people(&["activate", "3"]);
    assert_eq!(call(), "ok");
    people(&["set", "3", "--branch", "2"]);
    people(&["roles", "3", "lead"]);
    assert_eq!(call(), "ok", "the branch counts too");
}
