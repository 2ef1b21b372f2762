//! `werkruf doctor` of the real binary: with a server, without one, and on installations with something wrong.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{CommandOutput, TestFolder};

fn findings(output: &CommandOutput) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let of = |finding: &Value| (text(&finding["severity"]), text(&finding["check"]), text(&finding["code"]));
    output.json()["findings"].as_array().unwrap().iter().map(of).collect()
}

fn is(severity: &str, check: &str, code: &str) -> (String, String, String) {
    (severity.to_owned(), check.to_owned(), code.to_owned())
}

/// Names and contents of all files below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path().display().to_string(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn a_healthy_installation_has_only_notes_and_stays_as_it_is() {
    let folder = TestFolder::new();
    let nothing = folder.run(&["doctor", "--json"]).exits(0);
    let notes = [is("note", "model", "model_not_configured"), is("note", "embedder", ""), is("note", "database", "database_missing")];
    assert_eq!(findings(&nothing), notes);
    assert!(!folder.path().join("data").exists(), "doctor makes no database");

    let server = folder.serve(&[]);
    let running = folder.run(&["doctor", "--json"]).exits(0);
    assert_eq!(findings(&running), notes[..2]);
    let checked = running.json()["checked"].to_string();
    for what in ["server: http://127.0.0.1", "database: SQLite 3.", "background loops: recovery, outbox", "MiB free"] {
        assert!(checked.contains(what), "{what}: {checked}");
    }
    server.signal("-TERM");
    assert!(server.ended().success());

    let before = files(folder.path());
    let stopped = folder.run(&["doctor"]).exits(0);
    assert!(stopped.stdout.ends_with("Nothing is wrong.\n"), "{stopped:?}");
    assert!(stopped.stdout.contains("docs/errors/model_not_configured.md"), "{stopped:?}");
    assert_eq!(files(folder.path()).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(files(folder.path()) == before, "doctor changed a file");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let key = folder.path().join("data/werkruf.db.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let found = folder.run(&["doctor", "--json"]).exits(1);
    assert_eq!(findings(&found)[0], is("warning", "files", ""));
    let first = &found.json()["findings"][0];
    assert!(first["advice"].as_str().unwrap().starts_with("chmod 600 "), "{first}");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();

    // A server that was killed.
    server.signal("-KILL");
    let _ = server.ended();
    let found = folder.run(&["doctor", "--json"]).exits(1);
    assert_eq!(findings(&found)[0], is("warning", "server", "server_unavailable"), "{found:?}");

    // A file that is no database, a config with errors, a server that does not answer.
    folder.file("other.db", "not a database at all");
    let found = folder.run(&["doctor", "--json", "--database", "sqlite:other.db"]).exits(1);
    assert!(findings(&found).contains(&is("error", "database", "database_unusable")), "{found:?}");
    folder.file("wrong.toml", "listen = \"nowhere\"\n[[webhooks]]\nurl = \"https://crm.example.org/x\"\nevents = [\"turn_failed\"]\n");
    let found = folder.run(&["doctor", "--json", "--config", "wrong.toml"]).exits(1);
    let wrong = findings(&found);
    assert!(wrong.len() >= 2 && wrong.iter().all(|finding| *finding == is("error", "config", "invalid_config")), "{found:?}");
    assert!(found.stdout.contains("secret_env"), "a webhook without a secret: {found:?}");
    let found = folder.run(&["doctor", "--json", "--server", "127.0.0.1:9", "--key", "wk_x"]).exits(1);
    assert_eq!(findings(&found), [is("error", "server", "server_unavailable")]);
    let text = folder.run(&["doctor", "--server", "127.0.0.1:9", "--key", "wk_x"]).exits(1).stdout;
    assert!(text.contains("ERROR     ") && !text.contains("Nothing is wrong"), "{text}");
}

#[test]
fn the_models_are_asked_only_with_live() {
    let folder = TestFolder::new().with("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").with("OPENAI_MODEL", "mine");
    folder.run(&["doctor"]).exits(0);
    let found = folder.run(&["doctor", "--json", "--live"]).exits(1);
    assert_eq!(findings(&found)[0], is("error", "model", "model_unavailable"));
    assert_eq!(found.json()["ok"], json!(false));
}
