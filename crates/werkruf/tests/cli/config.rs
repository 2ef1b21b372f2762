//! `config check`, `init`, `prices`, and a check that the documentation names every variable.

use std::collections::BTreeSet;

use crate::support::TestFolder;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Reply, call};

fn violations(report: &Value) -> Vec<(String, u64)> {
    let list = report["violations"].as_array().unwrap();
    list.iter().map(|one| (one["path"].as_str().unwrap().to_owned(), one["line"].as_u64().unwrap_or(0))).collect()
}

#[test]
fn init_writes_a_file_that_passes_and_never_overwrites() {
    let folder = TestFolder::new();
    folder.run(&["init"]).exits(0);
    folder.run(&["config", "check"]).exits(0);
    let refused = folder.run(&["init", "--json"]).exits(1);
    assert_eq!(refused.error()["code"], "file_exists");
    folder.file("werkruf.toml", "broken");
    folder.run(&["init", "--force"]).exits(0);
    assert_eq!(folder.run(&["config", "check", "--json"]).exits(0).json(), json!({"valid": true, "violations": []}));
}

#[test]
fn a_number_needs_an_assistant_that_speaks_there_and_keywords_need_tools() {
    let secrets = ["WHATSAPP_ACCESS_TOKEN", "WHATSAPP_APP_SECRET", "WHATSAPP_VERIFY_TOKEN"];
    let folder = secrets.iter().fold(TestFolder::new(), |folder, name| folder.with(name, "0123456789"));
    let number =
        |id: &str, assistant: &str| format!("[[whatsapp.numbers]]\nphone_number_id = '{id}'\ntenant = 'demo'\nassistant = '{assistant}'\n");
    let assistants =
        "[workspace]\n[[assistants]]\nname = 'desk'\nchannels = ['web']\n[[assistants]]\nname = 'phone'\nchannels = ['whatsapp']\n";
    let keywords = "[whatsapp.keywords.de]\ntickets = 'get_requets'\nsuche = 'search_knowledge_base'\nget_todos = ['liste']\n";
    folder.file("werkruf.toml", &format!("{}{}{}{keywords}{assistants}", number("1", "desk"), number("2", "nobody"), number("3", "phone")));
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--config", "werkruf.toml"]].concat());
    let report = run(&["config", "check", "--json"]).exits(1).json();
    let at = |path: &str, line| (path.to_owned(), line);
    let expected = [
        at("/whatsapp/keywords/de/suche", 15),
        at("/whatsapp/keywords/de/tickets", 14),
        at("/whatsapp/numbers/0/assistant", 4),
        at("/whatsapp/numbers/1/assistant", 8),
    ];
    assert_eq!(violations(&report), expected);
    let messages: Vec<&str> = report["violations"].as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert!(messages[0].contains("[knowledge]") && messages[1].contains("get_requests"), "{messages:?}");
    assert!(messages[2].contains("does not speak on `whatsapp`") && messages[3].contains("`nobody`"), "{messages:?}");
    folder.file("werkruf.toml", &format!("{}{assistants}", number("3", "phone")));
    run(&["config", "check"]).exits(0);
    let checked = run(&["whatsapp", "check", "--json"]).exits(1).json();
    assert_eq!((&checked["ok"], &checked["findings"][1]["what"]), (&json!(false), &json!("public address")), "{checked}");
}

#[test]
fn every_violation_is_listed_with_its_place() {
    let folder = TestFolder::new();
    folder.file(
        "werkruf.toml",
        "colour = 'red'\n[limits]\nsteps = 0\n[[tools]]\nname = 'a'\ndescription = 'A.'\nurl = 'nowhere'\neffect = 'read'\npermission = 'none'\nparameters = '{}'\n",
    );
    let report = folder.run(&["config", "check", "--json"]).exits(1).json();
    let at = |path: &str, line| (path.to_owned(), line);
    let expected = [at("/colour", 1), at("/limits/steps", 3), at("/tools/0/parameters", 10), at("/tools/0/url", 7)];
    assert_eq!(violations(&report), expected, "every fault of a tool, not only its first");
    folder.file(
        "werkruf.toml",
        "[[tools]]\nname = 'a'\ndescription = 'A.'\nurl = 'nowhere'\neffect = 'read'\npermission = 'none'\nparameters = '{\"type\": \"object\"}'\n\
         [[assistants]]\nname = 'x'\ntools = ['a', 'b']\n[safety.strict]\ntools_denied = ['c']\n",
    );
    let report = folder.run(&["config", "check", "--json"]).exits(1).json();
    let expected =
        [("/tools/0/url".to_owned(), 4), ("/assistants/0/tools/1".to_owned(), 10), ("/safety/strict/tools_denied/0".to_owned(), 12)];
    assert_eq!(violations(&report), expected);
    let output = folder.run(&["config", "check"]).exits(1).stdout;
    assert!(output.contains("/tools/0/url (line 4): "), "{output}");
    let refused = folder.run(&["serve", "--json"]).exits(1);
    assert_eq!(refused.error()["code"], "invalid_config");
}

#[cfg(feature = "flights")]
#[test]
fn a_default_of_an_assistant_must_fit_its_tool() {
    let file = "[workspace]\n[flights]\n[[assistants]]\nname = 'a'\n[assistants.defaults.search_flights]\naward_only = 'yes'\norigin = 'FRA'\n\
                [assistants.defaults.get_todos]\nuserId = 3\n[assistants.defaults.serch_flights]\naward_only = true\n";
    let folder = TestFolder::new();
    folder.file("werkruf.toml", file);
    let report = folder.run(&["config", "check", "--json"]).exits(1).json();
    let places: Vec<String> = violations(&report).into_iter().map(|(place, _)| place).collect();
    let tool = "/assistants/0/defaults";
    let expected = ["get_todos/userId", "search_flights/award_only", "search_flights/origin", "serch_flights"];
    assert_eq!(places, expected.map(|place| format!("{tool}/{place}")), "{report}");
}

#[test]
fn every_fault_of_every_tool_is_listed_at_once_in_its_own_line() {
    let folder = TestFolder::new();
    folder.file(
        "werkruf.toml",
        "[[tools]]\nname = 'a'\nkind = 5\n\n[[tools]]\nname = 'bb'\ndescription = 'B.'\nurl = 'nowhere'\nefect = 'read'\npermission = 'none'\n\
         parameters = '{\"type\": \"object\"}'\n\n[[assistants]]\nname = 'x'\ntools = ['a', 'bbb', 'get_todo']\n[workspace]\n",
    );
    let report = folder.run(&["config", "check"]).exits(1).stdout;
    let expected = "/tools/0/kind (line 3): invalid type: integer `5`, expected a string
/tools/1/efect (line 9): unknown key `efect`; did you mean `effect`?
/tools/0/description (line 1): is missing; say in a sentence what the tool does, the model chooses by it
/tools/0/parameters (line 1): is missing; write a JSON Schema, such as '{\"type\": \"object\", \"properties\": {}}'
/tools/0/url (line 1): is missing; write a whole address such as http://127.0.0.1:9000/tool
/tools/0/effect (line 1): is missing; write \"read\" (changes nothing), \"idempotent\" (repeatable with the same Idempotency-Key) or \"once\" (never sent twice)
/tools/0/permission (line 1): is missing; write \"entity:entity_type:access\", or \"none\" for a tool that every person may call
/tools/1/url (line 8): relative URL without a base; write a whole address such as http://127.0.0.1:9000/tool
/tools/1/effect (line 5): is missing; write \"read\" (changes nothing), \"idempotent\" (repeatable with the same Idempotency-Key) or \"once\" (never sent twice)
/assistants/0/tools/1 (line 15): there is no tool named `bbb`; did you mean `bb`?
/assistants/0/tools/2 (line 15): there is no tool named `get_todo`; did you mean `get_todos`?
";
    assert_eq!(report, expected);
}

#[test]
fn variables_that_nothing_reads_are_named() {
    let folder = TestFolder::new()
        .with("DATABASE_URL", "postgres://db/other")
        .with("WERKRUF_DATABSE", "x.db")
        .with("WERKRUF_TOOL_TOKEN", "geheim")
        .with("WERKRUF_ZZ", "1");
    folder.file("werkruf.toml", "[model.headers]\nX-Token = '${WERKRUF_TOOL_TOKEN}'\n");
    let warnings = "warning: WERKRUF_DATABSE: is set, but this release does not read it; did you mean `WERKRUF_DATABASE`?
warning: WERKRUF_ZZ: is set, but this release does not read it; docs/configuration.md lists the variables
warning: DATABASE_URL: is set, but not read; set WERKRUF_DATABASE to the same value to use that database
";
    let listed = folder.run(&["calls", "list", "--config", "werkruf.toml"]).exits(1);
    let missing = "error: database_missing: there is no database data/werkruf.db; `werkruf serve` makes it, or name another with --database (WERKRUF_DATABASE)\n";
    assert_eq!(listed.stderr, format!("{warnings}{missing}"));
    assert!(!folder.path().join("data").exists(), "a command that reads makes no database");
    let report = folder.run(&["config", "check", "--config", "werkruf.toml", "--json"]).exits(0).json();
    let named: Vec<&str> = report["warnings"].as_array().unwrap().iter().map(|warning| warning["path"].as_str().unwrap()).collect();
    assert_eq!(named, ["WERKRUF_DATABSE", "WERKRUF_ZZ", "DATABASE_URL"]);
    let named = folder.run(&["config", "check", "--config", "werkruf.toml", "--database", "y.db", "--json"]).json();
    assert_eq!(named["warnings"].as_array().unwrap().len(), 2, "the database is named, so DATABASE_URL is another program's");
}

#[test]
fn a_tool_of_the_operator_is_accepted_with_its_approval() {
    let folder = TestFolder::new().with("TOKEN", "geheim");
    folder.file(
        "werkruf.toml",
        "[[tools]]\nname = 'a'\ndescription = 'A.'\nkind = 'http'\nurl = 'http://127.0.0.1:9/a'\neffect = 'once'\napproval = 'lead'\n\
         permission = 'table_requests:table:write'\nheaders = { Authorization = 'Bearer ${TOKEN}' }\nparameters = '{\"type\": \"object\"}'\n",
    );
    folder.run(&["config", "check"]).exits(0);
}

#[test]
fn unusable_variables_are_reported() {
    let folder =
        TestFolder::new().with("WERKRUF_DATABASE", "mysql://localhost/x").with("OPENAI_API", "soap").with("WERKRUF_ADMIN_KEY", "short");
    let report = folder.run(&["config", "check", "--json"]).exits(1).json();
    let paths: BTreeSet<&str> = report["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, BTreeSet::from(["OPENAI_API", "WERKRUF_ADMIN_KEY", "WERKRUF_DATABASE"]));
}

#[test]
fn public_addresses_refuse_test_tools_and_need_a_key() {
    let folder = TestFolder::new().with("WERKRUF_TEST_TOOLS", "1");
    assert_eq!(folder.run(&["serve", "--listen", "0.0.0.0:0", "--json"]).exits(1).error()["code"], "invalid_config");
    let folder = TestFolder::new();
    assert_eq!(folder.run(&["serve", "--listen", "0.0.0.0:0", "--json"]).exits(1).error()["code"], "key_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_check_requests_one_call() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::calls(vec![call("ping", json!({}))]), Reply::text("I would rather talk.")]);
    let folder = TestFolder::new().with("OPENAI_BASE_URL", &model.base_url()).with("OPENAI_MODEL", "fake");
    let report = tokio::task::block_in_place(|| folder.run(&["config", "check", "--live", "--json"])).exits(0).json();
    assert_eq!((&report["live"]["ok"], &report["live"]["tool_calls"][0]["name"]), (&json!(true), &json!("ping")));
    let report = tokio::task::block_in_place(|| folder.run(&["config", "check", "--live", "--json"])).exits(1).json();
    assert!(report["live"]["text"].as_str().unwrap().contains("I would rather talk."), "{report}");
}

#[test]
fn a_live_check_without_a_model_fails() {
    let report = TestFolder::new().run(&["config", "check", "--live", "--json"]).exits(1).json();
    assert_eq!(report["live"]["ok"], false);
}

#[test]
fn the_documentation_names_exactly_the_variables_that_are_read() {
    let documentation = include_str!("../../../../docs/configuration.md");
    let named: BTreeSet<String> = documentation
        .split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| {
            ["OPENAI_", "WERKRUF_", "SUPABASE_", "SEATSAERO_", "AMADEUS_", "DUFFEL_", "FLIGHTS_", "WHATSAPP_", "OTEL_"]
                .iter()
                .any(|start| word.starts_with(start))
                && !word.ends_with('_')
        })
        // The documentation names these only to say that they are not needed.
        .filter(|word| !["SUPABASE_ANON_KEY", "SUPABASE_SERVICE_ROLE_KEY"].contains(word))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, werkruf::config::variable_names().into_iter().collect());
}

#[test]
fn the_operators_prices_override_the_listed_ones() {
    let folder = TestFolder::new();
    let known = folder.run(&["prices", "--json"]).exits(0).json();
    let of = |prices: &serde_json::Value, name: &str| prices["models"].as_array().unwrap().iter().find(|row| row["model"] == name).cloned();
    assert_eq!(of(&known, "gpt-5").unwrap()["usd_per_million"], json!({"input": "1.25", "cached_input": "0.125", "output": "10"}));
    std::fs::write(
        folder.path().join("prices.json"),
        r#"{"models": [{"model": "gpt-5", "usd_per_million": {"input": "1", "output": "2"}}]}"#,
    )
    .unwrap();
    let folder = folder.with("WERKRUF_PRICES", "prices.json");
    let own = of(&folder.run(&["prices", "list", "--json"]).exits(0).json(), "gpt-5").unwrap();
    assert_eq!((&own["usd_per_million"]["cached_input"], &own["source"]), (&serde_json::Value::Null, &json!("file")));
    assert!(folder.run(&["prices"]).exits(0).stdout.contains("text-embedding-3-small"));
}
