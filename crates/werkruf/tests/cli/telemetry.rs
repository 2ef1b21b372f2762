//! Metrics, the access log and `/readyz` of the real binary, also while nobody reads its log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command};

use serde_json::{Value, json};

use crate::support::TestFolder;

const ADMIN: &str = "operator-key-0123456789";
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// A server whose stderr is a pipe that the test reads at the end, or never.
struct Logged {
    server: Child,
    _output: BufReader<ChildStdout>,
    printed: String,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    /// Kept as long as the server runs.
    _folder: TestFolder,
}

impl Logged {
    fn start(folder: TestFolder) -> Self {
        let mut server = folder.start(&["serve", "--listen", "127.0.0.1:0"]);
        let mut output = BufReader::new(server.stdout.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("\nKey: ") {
            assert_ne!(output.read_line(&mut printed).unwrap(), 0, "the server ended: {printed}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
        Self { server, _output: output, printed, runtime, client, _folder: folder }
    }

    fn after(&self, word: &str) -> &str {
        let rest = self.printed.split(word).nth(1).unwrap_or_else(|| panic!("{}", self.printed));
        rest.split_whitespace().next().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.after("listens on "))
    }

    /// Status and text of a request of the operator: a POST where there is a body.
    fn ask(&self, path: &str, body: Option<Value>) -> (u16, String) {
        let request = match body {
            Some(body) => self.client.post(self.url(path)).json(&body),
            None => self.client.get(self.url(path)),
        };
        self.send(request.bearer_auth(ADMIN).header("x-user-id", "1"))
    }

    fn send(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }

    /// A turn with a tool call, as a stream.
    fn talk(&self) {
        let request = self.client.post(self.url("/api/chat")).bearer_auth(ADMIN).header("x-user-id", "1");
        let (status, text) = self.send(request.header("accept", "text/event-stream").json(&json!({"message": "Which requests are open?"})));
        assert!(status == 200 && text.contains("event: final"), "{status} {text}");
    }

    fn metrics(&self) -> String {
        self.send(self.client.get(self.after("Metrics: "))).1
    }

    fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.server.id().to_string()]).status().unwrap().success());
    }

    /// Ends the server and returns its log.
    fn stop(self) -> String {
        self.terminate();
        let ended = self.server.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stderr).unwrap()
    }
}

fn folder() -> TestFolder {
    TestFolder::new().with("WERKRUF_ADMIN_KEY", ADMIN).with("WERKRUF_METRICS_LISTEN", "127.0.0.1:0").with("WERKRUF_TEST_TOOLS", "1")
}

/// Kind and labels of each metric of a scrape.
fn families(scrape: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families = BTreeMap::new();
    let mut current = String::new();
    for line in scrape.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            families.insert(current.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            families.get_mut(&current).unwrap().1.extend(names.filter(|name| name != "le"));
        }
    }
    families
}

#[test]
fn the_documentation_and_the_dashboard_name_the_metrics_of_a_scrape() {
    let server = Logged::start(folder());
    server.talk();
    // A name that a client chooses is no label.
    let _ = server.ask("/api/tools/forged_tool/invoke", Some(json!({"input": {}})));
    let _ = server.ask("/api/nowhere/forged_path?secret=forged_query", None);
    let scrape = server.metrics();
    assert!(!scrape.contains("forged"), "{scrape}");
    for line in [
        "werkruf_turns_total{status=\"completed\"} 1",
        "werkruf_tool_calls_total{tool=\"get_requests\",status=\"succeeded\"} 1",
        "werkruf_turn_seconds_count ",
        "werkruf_model_seconds_count ",
        "werkruf_queue_depth 0",
        "werkruf_outbox{status=\"dead\"} 0",
        "werkruf_streams 0",
        "werkruf_http_requests_total{method=\"POST\",route=\"/api/chat\",status=\"2xx\"} 1",
        "werkruf_http_requests_total{method=\"GET\",route=\"unknown\",status=\"4xx\"} 1",
        "werkruf_database_up 1",
    ] {
        assert!(scrape.contains(line), "{line} is missing in\n{scrape}");
    }
    let found = families(&scrape);
    let page = std::fs::read_to_string(format!("{DOCS}/metrics.md")).unwrap();
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `")).filter(|row| row.starts_with("werkruf_") || row.starts_with("process_"));
    let documented: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let labels = cells[2].split('`').filter(|part| !part.is_empty() && *part != ", ");
            (cells[0].trim_end_matches('`').to_owned(), (cells[1].to_owned(), labels.map(str::to_owned).collect()))
        })
        .collect();
    assert_eq!(documented, found);
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(format!("{DOCS}/grafana-dashboard.json")).unwrap()).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20, "{expressions:?}");
    for expression in expressions {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names: Vec<&str> = words.filter(|word| word.starts_with("werkruf_") || word.starts_with("process_")).collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(found.contains_key(name.strip_suffix("_bucket").unwrap_or(name)), "{name} of the dashboard is no metric");
        }
    }
    server.stop();
}

#[test]
fn only_the_operator_reads_metrics_beside_the_other_routes() {
    let server = Logged::start(folder());
    let made = server.ask("/api/keys", Some(json!({"tenant": "demo", "scopes": ["admin", "chat", "tools", "read"]}))).1;
    let key = serde_json::from_str::<Value>(&made).unwrap()["key"].as_str().unwrap().to_owned();
    let url = server.url("/metrics");
    let status = |request: reqwest::RequestBuilder| server.send(request).0;
    let statuses = [
        status(server.client.get(&url)),
        status(server.client.get(&url).bearer_auth(key)),
        status(server.client.get(&url).bearer_auth(ADMIN)),
        // The other address has nothing else.
        status(server.client.get(server.after("Metrics: "))),
        status(server.client.get(server.after("Metrics: ").replace("/metrics", "/readyz"))),
    ];
    assert_eq!(statuses, [401, 403, 200, 200, 404]);
    let openmetrics = server.client.get(&url).bearer_auth(ADMIN).header("accept", "application/openmetrics-text;version=1.0.0,text/plain");
    assert!(server.send(openmetrics).1.ends_with("# EOF\n"));
    server.stop();
}

#[test]
fn the_access_log_has_a_line_per_request_and_no_secret() {
    let server = Logged::start(folder().with("WERKRUF_LOG", "off,werkruf::access=info"));
    server.talk();
    let _ = server.ask("/api/nowhere/path-secret?q=query-secret", None);
    let refused = server.client.get(server.url("/api/turns/id-secret")).bearer_auth("wk_bearer-secret").header("x-request-id", "mine-1");
    assert_eq!(server.send(refused).0, 401);
    assert_eq!(server.ask("/readyz", None).0, 200);
    let log = server.stop();
    assert!(!log.contains("secret") && !log.contains(ADMIN), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts = |line: &Value| json!([line["method"], line["route"], line["status"], line["key_id"], line["address"], line["complete"]]);
    let expected = json!([
        ["POST", "/api/chat", 200, "operator", "127.0.0.1", true],
        ["GET", "unknown", 404, "operator", "127.0.0.1", true],
        ["GET", "/api/turns/{id}", 401, null, "127.0.0.1", true],
    ]);
    assert_eq!(Value::Array(lines.iter().map(facts).collect()), expected, "{log}");
    for line in &lines {
        assert!(line["bytes"].as_u64().unwrap() > 0 && line["took_ms"].is_u64() && line["request_id"].is_string(), "{line}");
        assert_eq!((&line["target"], &line["message"]), (&json!("werkruf::access"), &json!("a request ended")));
    }
    assert_eq!(lines[2]["request_id"], "mine-1");
}

#[test]
fn the_access_log_can_be_switched_off() {
    let server = Logged::start(folder().with("WERKRUF_LOG", "info,werkruf::access=off"));
    server.talk();
    let log = server.stop();
    assert!(log.contains("a turn ended") && !log.contains("werkruf::access"), "{log}");
}

/// F40: a log that nobody reads and scrapers that do not read their answers block no request, and not the end of the server.
#[test]
fn a_blocked_log_and_blocked_scrapers_block_no_request() {
    let server = Logged::start(folder().with("WERKRUF_LOG", "trace"));
    let address = server.after("Metrics: ").trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let scrapers: Vec<TcpStream> = (0..8)
        .map(|at| {
            let mut scraper = TcpStream::connect(&address).unwrap();
            // Half of them do not even finish their request.
            let request: &[u8] = if at % 2 == 0 { b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" } else { b"GET /metrics HT" };
            scraper.write_all(request).unwrap();
            scraper
        })
        .collect();
    // Far more lines than the pipe holds. A panic must not wait for the log either.
    for _ in 0..300 {
        assert_eq!(server.ask("/healthz", None).0, 200);
    }
    server.talk();
    assert!(server.ask("/api/tools/test_panic/invoke", Some(json!({"input": {}}))).1.contains("tool_panicked"));
    let scrape = server.metrics();
    assert!(scrape.contains("werkruf_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"2xx\"} 300"), "{scrape}");
    drop(scrapers);
    server.terminate();
    let Logged { mut server, _folder, .. } = server;
    // Its stderr is still unread.
    assert!(server.wait().unwrap().success());
}

#[test]
fn readiness_tells_the_progress_of_every_loop() {
    let server = Logged::start(folder());
    // The first scan comes after a few seconds, the first round of alerts at the start.
    let loops = loop {
        let ready: Value = serde_json::from_str(&server.ask("/readyz", None).1).unwrap();
        assert_eq!((&ready["ready"], &ready["warnings"]), (&json!(true), &json!([])));
        if ["recovery", "alerts"].iter().all(|name| ready["loops"][name]["last_progress_ms"].is_u64()) {
            break ready["loops"].clone();
        }
    };
    let names: Vec<&str> = loops.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["writer", "recovery", "outbox", "alerts", "embedder"]);
    for name in ["writer", "recovery", "outbox", "alerts"] {
        assert!(loops[name]["ok"] == true && loops[name]["last_progress_ms"].is_u64(), "{name}: {loops}");
    }
    assert_eq!(loops["embedder"], json!({"last_progress_ms": null, "ok": true}), "without an embedding model it has nothing to do");
    server.stop();
}
