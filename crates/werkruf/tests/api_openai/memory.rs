//! What requests may take of the server's memory, measured on a server of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use werkruf_llm::{HttpLimits, http_client};

use crate::client::user;
use crate::support::refusal;

const MIB: usize = 1024 * 1024;

/// The program with its own database and its built-in model.
struct Server {
    process: Child,
    address: String,
    key: String,
    client: Client,
    _folder: TempDir,
}

impl Server {
    fn start(limits: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_werkruf"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .current_dir(&folder)
            .env_clear()
            .env("WERKRUF_TEST_TOOLS", "1")
            .envs(limits.iter().copied());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let printed: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| printed[name].as_str().unwrap().to_owned();
        Self { process, address: text("address"), key: text("key"), client: http_client(&HttpLimits::default()).unwrap(), _folder: folder }
    }

    async fn post(&self, path: &str, body: String) -> Response {
        let request = self.client.post(format!("{}{path}", self.address)).bearer_auth(&self.key);
        request.header("content-type", "application/json").header("accept", "application/json").body(body).send().await.unwrap()
    }

    /// The most memory that the process ever had, in bytes.
    fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What bodies one after another may take, as a multiple of one: the buffer while it grows, its copy, and pages that the allocator keeps. As values
/// the same lists would take forty times their bytes.
const MULTIPLE: usize = 10;

/// A list of zeros of this many bytes: each takes two bytes here, and many times that as a value.
fn zeros(bytes: usize) -> String {
    format!("[0{}]", ",0".repeat(bytes / 2))
}

#[tokio::test]
async fn a_field_that_is_not_known_takes_no_more_than_its_bytes() {
    let server = Server::start(&[]);
    let hi = json!([user("hi")]).to_string();
    // What the first turn needs is not what the bodies take.
    assert_eq!(server.post("/v1/chat/completions", format!(r#"{{"messages": {hi}}}"#)).await.status(), 200);
    let before = server.peak();
    let large = zeros(15 * MIB);
    for (path, field) in [("/v1/chat/completions", "messages"), ("/v1/responses", "input")] {
        assert_eq!(server.post(path, format!(r#"{{"unknown": {large}, "{field}": {hi}}}"#)).await.status(), 200);
    }
    let chat = format!(r#"{{"unknown": {}, "message": "hi"}}"#, zeros(999 * 1024));
    assert_eq!(server.post("/api/chat", chat).await.status(), 200);
    let taken = server.peak() - before;
    assert!(taken < MULTIPLE * large.len(), "{} MiB for a body of {} MiB", taken / MIB, large.len() / MIB);
}

#[tokio::test]
async fn values_that_are_kept_are_counted_before_they_are_built() {
    let server = Server::start(&[]);
    let before = server.peak();
    let (large, small) = (zeros(15 * MIB), zeros(999 * 1024));
    let part = format!(r#"[{{"role": "user", "content": {large}}}]"#);
    for (path, body) in [
        ("/v1/chat/completions", format!(r#"{{"messages": {large}}}"#)),
        ("/v1/chat/completions", format!(r#"{{"messages": {part}}}"#)),
        ("/v1/chat/completions", format!(r#"{{"messages": [], "metadata": {large}}}"#)),
        ("/v1/responses", format!(r#"{{"input": {large}}}"#)),
        ("/api/conversations", format!(r#"{{"format": "openai", "messages": {part}}}"#)),
        ("/api/tools/test_sleep/invoke", format!(r#"{{"input": {{"list": {small}}}}}"#)),
    ] {
        assert_eq!(refusal(server.post(path, body).await).await, (400, "invalid_request".to_owned()), "{path}");
    }
    let taken = server.peak() - before;
    assert!(taken < MULTIPLE * large.len(), "{} MiB for a body of {} MiB", taken / MIB, large.len() / MIB);
}

#[tokio::test]
async fn bodies_above_the_budget_are_refused_and_the_others_answered() {
    let server = Server::start(&[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", "8388608")]);
    let request = |bytes: usize| json!({"messages": [user("hi")], "unknown": "a".repeat(bytes)}).to_string();
    let refused = server.post("/v1/chat/completions", request(4 * MIB)).await;
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refusal(refused).await, (503, "memory_busy".to_owned()));
    // Every request gives back what it took.
    for _ in 0..8 {
        assert_eq!(server.post("/v1/chat/completions", request(MIB)).await.status(), 200);
    }
}

#[tokio::test]
async fn four_large_bodies_at_once_stay_within_the_budget() {
    let budget = 64 * MIB;
    let server = Server::start(&[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", &budget.to_string())]);
    assert_eq!(server.post("/v1/chat/completions", json!({"messages": [user("hi")]}).to_string()).await.status(), 200);
    let before = server.peak();
    let body = json!({"messages": [user("hi")], "unknown": "a".repeat(15 * MIB)}).to_string();
    let post = || server.post("/v1/chat/completions", body.clone());
    let answers = tokio::join!(post(), post(), post(), post());
    let statuses = [answers.0, answers.1, answers.2, answers.3].map(|answer| answer.status().as_u16());
    assert!(statuses.iter().all(|status| [200, 503].contains(status)) && statuses.contains(&200), "{statuses:?}");
    let taken = server.peak() - before;
    assert!(taken < budget, "{} MiB with a budget of {} MiB", taken / MIB, budget / MIB);
}
