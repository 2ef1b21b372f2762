//! The log of function calls, as the real binary writes it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command};

use serde_json::{Value, json};
use tokio::task::block_in_place;
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call, call_raw};

use crate::chat::folder_with_model;
use crate::support::TestFolder;

/// What a model may try to write a line of its own.
const FORGED: &str = "x\n{\"target\":\"werkruf::function_calling\",\"function\":\"forged\"}\u{2028}\u{1b}[31m";

/// A running server whose log is read at its end.
struct Logged {
    server: Child,
    _output: BufReader<ChildStdout>,
    printed: String,
}

impl Logged {
    fn start(folder: &TestFolder) -> Self {
        let mut server = folder.start(&["serve", "--listen", "127.0.0.1:0"]);
        let mut output = BufReader::new(server.stdout.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("curl ") {
            assert_ne!(output.read_line(&mut printed).unwrap(), 0, "the server ended: {printed}");
        }
        Self { server, _output: output, printed }
    }

    /// What stands between these two in the printed lines.
    fn between(&self, start: &str, end: &str) -> &str {
        self.printed.split(start).nth(1).and_then(|rest| rest.split(end).next()).unwrap_or_else(|| panic!("{}", self.printed)).trim()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let address = self.between("http://", "\n").split_whitespace().next().unwrap();
        let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
        let request = client.post(format!("http://{address}{path}")).bearer_auth(self.between("Bearer ", "'"));
        let response = request.json(body).send().await.unwrap();
        assert_eq!(response.status(), 202);
        response.json().await.unwrap()
    }

    /// Lets running turns end, and returns the log.
    fn stop(self) -> String {
        assert!(Command::new("kill").args(["-TERM", &self.server.id().to_string()]).status().unwrap().success());
        String::from_utf8(self.server.wait_with_output().unwrap().stderr).unwrap()
    }
}

/// Starts a server, sends it a message, stops it, and returns its log.
fn log_of_one_message(folder: &TestFolder) -> String {
    let server = Logged::start(folder);
    folder.run(&["chat", "What is open?"]).exits(0);
    server.stop()
}

fn script(model: &FakeModel) {
    let requests = call("get_requests", json!({"status": "open"}));
    let echo = call("test_echo", json!({"value": FORGED}));
    model.script(vec![
        Reply::calls(vec![requests, echo]).usage(100, 10),
        Reply::calls(vec![call_raw(FORGED, "{broken")]).usage(200, 20),
        Reply::text("Three.").usage(300, 30),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_and_every_turn_is_one_line_of_the_log() {
    let model = FakeModel::start().await;
    script(&model);
    let folder = folder_with_model(&model).with("WERKRUF_LOG_FORMAT", "json");
    let log = block_in_place(|| log_of_one_message(&folder));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    let lines: Vec<&Value> = lines.iter().filter(|line| line["target"] == "werkruf::function_calling").collect();
    let of = |function: &str| *lines.iter().find(|line| line["function"] == function).unwrap_or_else(|| panic!("{function}: {log}"));
    let used = |line: &Value| json!([line["api_calls"], line["tokens_input"], line["tokens_output"]]);

    let requests = of("get_requests");
    assert_eq!((&requests["arguments"], &used(requests)), (&json!(r#"["status"]"#), &json!([1, 100, 10])), "{requests}");
    assert!(requests["result_count"].as_u64().unwrap() > 0 && requests.get("error").is_none(), "{requests}");
    let echo = of("test_echo");
    assert_eq!((&echo["arguments"], &echo["turn_id"]), (&json!(r#"["value"]"#), &requests["turn_id"]), "{echo}");
    assert!(!echo.to_string().contains("forged"), "values of arguments are not logged: {echo}");
    let invented = lines.iter().find(|line| line["error"] == "unknown_tool").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&invented["result_count"], &used(invented)), (&json!(0), &json!([2, 300, 30])), "{invented}");
    assert_eq!(invented["arguments"], "unreadable", "{invented}");
    let turn = lines.iter().find(|line| line["message"] == "a turn ended").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&turn["calls"], &used(turn), &turn["status"]), (&json!(3), &json!([3, 600, 60]), &json!("completed")), "{turn}");
    for line in &lines {
        assert_eq!((&line["turn_id"], &line["conversation_id"]), (&turn["turn_id"], &turn["conversation_id"]), "{line}");
    }
    assert_eq!(lines.len(), 4, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_logged_where_the_operator_wants_it_and_forge_no_line() {
    let model = FakeModel::start().await;
    script(&model);
    let folder = folder_with_model(&model).with("WERKRUF_LOG_FORMAT", "text").with("WERKRUF_LOG_ARGUMENTS", "on");
    let log = block_in_place(|| log_of_one_message(&folder));
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("function_calling")).collect();
    assert_eq!(lines.len(), 4, "{log}");
    let requests = lines.iter().find(|line| line.contains(r#"function="get_requests""#)).unwrap_or_else(|| panic!("{log}"));
    assert!(requests.contains(r#"arguments="{\"status\":\"open\"}""#), "{requests}");
    assert!(lines.iter().any(|line| line.contains("forged") && line.contains(r#"function="test_echo""#)), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{2028}']), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_canceled_while_it_waits_is_a_line_of_the_log() {
    let model = FakeModel::start().await;
    let gate = Gate::before_head();
    model.script(vec![Reply::text("One.").gate(gate.clone())]);
    let folder = folder_with_model(&model).with("WERKRUF_LOG_FORMAT", "json");
    let server = block_in_place(|| Logged::start(&folder));
    let first = server.post("/api/chat", &json!({"message": "one", "background": true})).await;
    gate.reached().await;
    let next = json!({"message": "two", "background": true, "conversation_id": first["conversation_id"]});
    let turn = server.post("/api/chat", &next).await["turn_id"].clone();
    server.post(&format!("/api/turns/{}/cancel", turn.as_str().unwrap()), &json!({})).await;
    gate.open();
    let log = block_in_place(|| server.stop());
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    let ends: Vec<&Value> = lines.iter().filter(|line| line["message"] == "a turn ended").collect();
    assert_eq!(ends.len(), 2, "{log}");
    let end = ends.iter().find(|line| line["turn_id"] == turn).unwrap_or_else(|| panic!("{log}"));
    let shown = ["conversation_id", "calls", "api_calls", "error", "status"].map(|field| &end[field]);
    assert_eq!(shown, [&first["conversation_id"], &json!(0), &json!(0), &json!("canceled"), &json!("canceled")], "{end}");
}
