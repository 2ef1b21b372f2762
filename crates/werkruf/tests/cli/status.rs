//! `werkruf status`, tables, help and manual pages of the real binary.

use serde_json::json;

use crate::support::TestFolder;

#[test]
fn the_status_is_told_with_and_without_a_server() {
    let folder = TestFolder::new().with("WERKRUF_TEST_TOOLS", "1");
    let nothing = folder.run(&["status"]).exits(1).stdout;
    let modules = if cfg!(feature = "flights") { "workspace, flights, knowledge, ask_gpt" } else { "workspace, knowledge, ask_gpt" };
    let expected = "Server    none runs on this database; `werkruf serve` starts one
Model     offline (no language model, free; set OPENAI_API_KEY or OPENAI_BASE_URL to connect one)
Database  data/werkruf.db: does not exist yet; `werkruf serve` makes it
";
    assert_eq!(nothing.split_once('\n').unwrap().1, format!("{expected}Modules   {modules}\n"));
    assert!(!folder.path().join("data").exists(), "the status makes no database");

    let server = folder.serve(&[]);
    folder.run(&["tools", "call", "test_panic"]).exits(1);
    let report = folder.run(&["status", "--json"]).exits(0).json();
    let version = folder.run(&["--version", "--json"]).exits(0).json();
    assert_eq!((&report["version"], &report["commit"]), (&version["version"], &version["commit"]));
    let running = &report["server"];
    assert_eq!((&running["address"], &running["answers"], &running["ready"]), (&json!(server.address()), &json!(true), &json!(true)));
    let counts = json!({
        "tenants": 1, "users": 6, "api_keys": 1, "conversations": 0, "open_turns": 0, "pending_approvals": 0, "recent_calls": 1,
        "recent_failed_calls": 1,
    });
    assert_eq!((&running["status"]["counts"], &running["status"]["commit"]), (&counts, &version["commit"]));
    let text = folder.run(&["status"]).exits(0).stdout;
    assert!(text.contains(&format!("Server    {} ready\n", server.address())), "{text}");
    let rows = "1 tenants · 6 users · 1 keys · 0 conversations · 0 open turns · 0 pending approvals · 1 calls in 24 h · 1 of these failed";
    assert!(text.ends_with(&format!("Rows      {rows}\n")), "{text}");
    drop(server);

    let down = folder.run(&["status", "--json"]).exits(1).json();
    assert_eq!((&down["server"], &down["database"]["counts"]), (&json!(null), &counts), "{down}");
    assert_eq!(down["database"]["schema"]["pending"], json!([]));
    let silent = folder.run(&["status", "--server", "127.0.0.1:9", "--key", "wk_x"]).exits(1).stdout;
    assert!(silent.contains("Server    http://127.0.0.1:9 does not answer\n"), "{silent}");
}

#[test]
fn tables_fit_the_terminal() {
    let folder = TestFolder::new().with("WERKRUF_TEST_TOOLS", "1").with("COLUMNS", "60");
    folder.run(&["tools", "call", "test_echo", "--input", "{\"value\": \"tea\"}"]).exits(0);
    for list in [["tools", "list"], ["calls", "list"], ["keys", "list"], ["prices", "list"]] {
        let table = folder.run(&list).exits(0).stdout;
        let widest = table.lines().filter(|line| !line.starts_with("US dollars")).map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 60 && !table.contains('\x1b'), "{table}");
    }
    let calls = folder.run(&["calls", "list"]).exits(0).stdout;
    let id = folder.run(&["calls", "list", "--json"]).exits(0).json()["tool_calls"][0]["id"].as_str().unwrap().to_owned();
    assert!(calls.contains(&id[28..]) && !calls.contains(&id) && !calls.contains('Z'), "short ids and local times: {calls}");
}

#[test]
fn usage_errors_are_json_with_json() {
    let folder = TestFolder::new();
    let error = folder.run(&["calls", "list", "--limt", "3", "--json"]).exits(2).error();
    let expected = json!({"code": "usage", "message": "unexpected argument '--limt' found; tip: a similar argument exists: '--limit'"});
    assert_eq!(error, expected);
    let plain = folder.run(&["calls", "list", "--limt", "3"]).exits(2);
    assert!(plain.stderr.starts_with("error: unexpected argument '--limt' found\n"), "{plain:?}");
    assert!(folder.run(&["--help", "--json"]).exits(0).stdout.contains("Usage: werkruf"), "help is no error");
}

#[test]
fn help_shows_the_options_of_the_command_first() {
    let help = TestFolder::new().run(&["calls", "list", "--help"]).exits(0).stdout;
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} is missing: {help}"));
    let own = [at("Options:\n"), at("--conversation"), at("--limit"), at("--help")];
    let global = [at("Global options:\n"), at("--config"), at("--tenant"), at("--json")];
    assert!(own.iter().max() < global.iter().min(), "{help}");
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = TestFolder::new();
    folder.run(&["man", "."]).exits(0);
    for name in ["werkruf.1", "werkruf-serve.1", "werkruf-calls.1", "werkruf-calls-list.1"] {
        let page = std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH "), "{name}");
    }
    let refused = folder.run(&["man", "missing", "--json"]).exits(1).error();
    assert_eq!(refused["code"], "io");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_address_is_the_server_of_the_api_document() {
    let folder = TestFolder::new().with("WERKRUF_PUBLIC_URL", "https://chat.example.org/");
    let server = tokio::task::block_in_place(|| folder.serve(&[]));
    assert!(server.output.contains("\nPublic address: https://chat.example.org\n"), "{}", server.output);
    let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
    let document = client.get(format!("{}/openapi.json", server.address())).send().await.unwrap().text().await.unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["servers"], json!([{"url": "https://chat.example.org"}]));
}
