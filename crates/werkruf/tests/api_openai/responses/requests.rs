//! Recorded request bodies of real clients: those of the project's own corpus, and those beside the checkout if they exist.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use werkruf_bench::fake_model::Reply;

use super::client::send;
use crate::support::{Stream, TestServer, body};

#[tokio::test]
async fn no_recorded_request_is_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(replay(&root.join("tests/corpus/requests")).await, 9);
    let beside = root.join("../shared/fixtures/wire/requests");
    if beside.exists() {
        assert!(replay(&beside).await > 50);
    }
}

/// Sends the requests of a folder; returns how many there are.
async fn replay(folder: &Path) -> usize {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("responses-"));
    names.sort();
    let server = TestServer::open().await;
    server.model.script_fn(|_| Reply::text("Well."));
    for path in &names {
        let mut request: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let stateful = request.get("previous_response_id").or_else(|| request.get("conversation")).is_some_and(|name| !name.is_null());
        if stateful {
            assert_eq!(send(&server, 3, request.clone()).await.status(), 404, "{} names an unknown response", path.display());
            request["previous_response_id"] = Value::Null;
            request["conversation"] = Value::Null;
        }
        let response = send(&server, 3, request.clone()).await;
        if request["input"] == json!([]) {
            assert_eq!(response.status(), 400, "{}: without a history it has no message", path.display());
            continue;
        }
        assert_eq!(response.status(), 200, "{}", path.display());
        let object = if request["stream"] == json!(true) {
            Stream::new(response).rest().await.pop().unwrap().data["response"].clone()
        } else {
            body(response).await
        };
        let status = object["status"].as_str().unwrap();
        assert!(status == "completed" || status == "queued", "{}: {object}", path.display());
        assert_eq!(object["model"], request["model"]);
    }
    names.len()
}
