//! A server that dies while it approves a call of the model's provider.

use serde_json::{Value, json};
use tokio::task::block_in_place;
use werkruf_bench::fake_model::{FakeModel, Gate, Reply};

use crate::chat::folder_with_model;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_with_an_approval_on_its_way_does_not_send_it_again() {
    let model = FakeModel::start().await;
    let gate = Gate::before_head();
    let paid = Reply::text("Paid.").runs_approved("mcpr_1", "transfer", "paid").gate(gate.clone());
    model.script(vec![Reply::asks("mcpr_1", "transfer", "{}"), paid, Reply::text("I do not know.")]);
    let folder = folder_with_model(&model).with("OPENAI_API", "responses");
    let run = |arguments: &[&str]| block_in_place(|| folder.run(arguments));
    let server = block_in_place(|| folder.serve(&[]));
    run(&["chat", "Pay.", "--json"]);
    let pending = run(&["approvals", "list", "--json"]).exits(0).json();
    run(&["approvals", "approve", pending["approvals"][0]["id"].as_str().unwrap()]).exits(0);
    gate.reached().await;
    server.signal("-KILL");
    block_in_place(|| server.ended());

    let _server = block_in_place(|| folder.serve(&[]));
    let row = loop {
        let row: Value = run(&["calls", "list", "--json"]).exits(0).json()["tool_calls"][0].clone();
        if !row["finished_at"].is_null() {
            break row;
        }
    };
    assert_eq!((&row["status"], &row["error_code"], &row["item_id"]), (&json!("failed"), &json!("outcome_unknown"), &json!("mcpr_1")));
    model.received(3).await;
    let approves = |item: &Value| item["type"] == "mcp_approval_response";
    let sent: Vec<usize> = model.requests().iter().map(|request| request.messages().iter().filter(|item| approves(item)).count()).collect();
    assert_eq!(sent, [0, 1, 0]);
    let explained = run(&["explain", row["id"].as_str().unwrap()]).exits(0).stdout;
    assert!(explained.contains("Run by\n  provider\n") && explained.contains("status: approved"), "{explained}");
}
