//! A server that is built without the module `flights` does not know it; everything else works.

#![cfg(not(feature = "flights"))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, also outside its own function")]

#[expect(dead_code, reason = "shared with the tests of the command line, which use all of it")]
#[path = "cli/support.rs"]
mod binary;
#[expect(dead_code, reason = "shared with the tests of the API, which use all of it")]
mod support;

use std::collections::BTreeSet;

use binary::TestFolder;
use reqwest::Method;
use serde_json::{Value, json};
use support::{TestServer, body, refusal};

#[tokio::test]
async fn tools_routes_and_tables_of_flights_are_not_there() {
    let server = TestServer::open().await;
    let listed = body(server.as_user(1, Method::GET, "/api/tools").send().await.unwrap()).await;
    let names: Vec<&str> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for (name, there) in [("search_flights", false), ("select_itinerary", false), ("get_requests", true), ("remember", true)] {
        assert_eq!(names.contains(&name), there, "{name} in {names:?}");
    }
    let search = server.as_user(1, Method::POST, "/functions/v1/seatsaero-flight-search").json(&json!({})).send().await.unwrap();
    assert_eq!(refusal(search).await, (404, "unknown_route".to_owned()));
    let file = tables(&server.folder.path().join("werkruf.db"));
    assert!(file.contains(&"requests".to_owned()) && !file.contains(&"provider_quota".to_owned()), "{file:?}");
    assert_eq!(server.chat(1, json!({"message": "hello"})).await.status(), 200);
}

#[tokio::test]
async fn the_api_document_has_the_routes_of_this_server_only() {
    let server = TestServer::open().await;
    let response = server.bare(Method::GET, "/openapi.json").send().await.unwrap();
    let served: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let generated: Value = serde_json::from_str(&werkruf::api::openapi()).unwrap();
    let paths = |document: &Value| document["paths"].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(paths(&served), paths(&generated));
    assert!(!paths(&served).iter().any(|path| path.contains("flight")));
    for component in ["schemas", "responses"].iter().flat_map(|kind| served["components"][kind].as_object().unwrap().keys()) {
        assert!(!component.contains("Flight"), "{component}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
fn tables(path: &std::path::Path) -> Vec<String> {
    let file = rusqlite::Connection::open(path).unwrap();
    let mut statement = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn the_command_and_the_config_section_are_refused() {
    let folder = TestFolder::new();
    let refused = folder.run(&["flights", "inspect", "x.json"]).exits(2);
    assert!(refused.stderr.contains("unrecognized subcommand"), "{refused:?}");
    std::fs::write(folder.path().join("werkruf.toml"), "[flights]\n").unwrap();
    let report: Value = folder.run(&["--config", "werkruf.toml", "config", "check", "--json"]).exits(1).json();
    let paths: Vec<&str> = report["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/flights"]);
}
