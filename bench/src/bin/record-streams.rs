//! `record-streams FOLDER`: records streams of the fake model for the decoder's tests, and writes beside them what each one contains.
//!
//! The facts are written here by hand, next to the script of each stream. The decoder takes no part in them.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use futures_util::StreamExt;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Api, Call, FakeModel, Reply, call, call_raw};

/// A stream and what it contains.
struct Recording {
    name: &'static str,
    reply: Reply,
    fact: Fact,
}

/// What a stream contains, as far as both APIs have it.
#[derive(Default)]
struct Fact {
    text: &'static str,
    refusal: Option<&'static str>,
    /// Name, id and arguments. An empty id was not sent.
    calls: Vec<(&'static str, &'static str, &'static str)>,
    /// What the provider ran before the calls: whole items. Responses only.
    ran: Vec<Value>,
    /// Other items before the calls, which are no calls.
    skipped: usize,
    finish: Option<&'static str>,
    status: Option<&'static str>,
    must_not_execute: bool,
    without_usage: bool,
    error: Option<Value>,
}

fn recording(name: &'static str, reply: Reply, fact: Fact) -> Recording {
    Recording { name, reply, fact }
}

const CITY: (&str, &str, &str) = ("get_weather", "call_1", "{\"city\":\"Köln\"}");
const TASK: (&str, &str, &str) = ("get_todos", "call_2", "{\"status\":\"open\",\"limit\":3}");

fn stopped() -> Fact {
    Fact { finish: Some("stop"), status: Some("completed"), ..Fact::default() }
}

fn called(calls: Vec<(&'static str, &'static str, &'static str)>) -> Fact {
    Fact { calls, finish: Some("tool_calls"), status: Some("completed"), ..Fact::default() }
}

fn city() -> Call {
    call("get_weather", json!({"city": "Köln"}))
}

fn todos() -> Call {
    call_raw("get_todos", TASK.2)
}

/// Streams that both APIs can carry.
fn common() -> Vec<Recording> {
    let text = "Grüße aus 東京 🚆 – alles da.";
    let overloaded = json!({"message": "The server is overloaded.", "type": "server_error", "code": "server_error"});
    vec![
        recording("text", Reply::text(text), Fact { text, ..stopped() }),
        recording("no-text", Reply::text(""), stopped()),
        recording("one-call", Reply::calls(vec![city()]), called(vec![CITY])),
        recording("two-calls", Reply::calls(vec![city(), todos()]), called(vec![CITY, TASK])),
        recording(
            "text-then-call",
            Reply::calls(vec![city()]).with_text("I look."),
            Fact { text: "I look.", skipped: 1, ..called(vec![CITY]) },
        ),
        recording("no-arguments", Reply::calls(vec![call_raw("now", "")]), called(vec![("now", "call_1", "")])),
        recording("broken-arguments", Reply::calls(vec![call_raw("now", "{\"a\":")]), called(vec![("now", "call_1", "{\"a\":")])),
        recording("refusal", Reply::refusal("I cannot help."), Fact { refusal: Some("I cannot help."), ..stopped() }),
        recording(
            "too-long",
            Reply::calls(vec![call_raw("now", "{\"zone\": \"Eur")]).finish("length"),
            Fact {
                calls: vec![("now", "call_1", "{\"zone\": \"Eur")],
                finish: Some("length"),
                status: Some("incomplete"),
                must_not_execute: true,
                ..Fact::default()
            },
        ),
        recording(
            "filtered",
            Reply::calls(vec![city()]).finish("content_filter"),
            Fact {
                calls: vec![CITY],
                finish: Some("content_filter"),
                status: Some("incomplete"),
                must_not_execute: true,
                ..Fact::default()
            },
        ),
        recording(
            "error-after-text",
            Reply::text("Half an").error_in_stream(overloaded.clone()),
            Fact { text: "Half an", status: Some("failed"), must_not_execute: true, error: Some(overloaded), ..Fact::default() },
        ),
        recording(
            "ends-early",
            Reply::text("Half an answer").cut_before_finish(),
            Fact { text: "Half an answer", must_not_execute: true, error: Some(json!({"message": "cut"})), ..Fact::default() },
        ),
    ]
}

/// Ways in which servers other than OpenAI's send calls.
fn chat_quirks() -> Vec<Recording> {
    let both = || vec![city(), todos()];
    let framed = ": keep-alive\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Line\"},\"finish_reason\":null}]}\r\n\r\n\
                  data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\" ends\"},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    vec![
        recording("without-index", Reply::calls(both()).without_index(), called(vec![CITY, TASK])),
        recording("index-zero", Reply::calls(both()).index_zero(), called(vec![CITY, TASK])),
        recording("repeated-ids", Reply::calls(both()).repeat_ids(), called(vec![CITY, TASK])),
        recording("object-arguments", Reply::calls(both()).object_arguments(), called(vec![CITY, TASK])),
        recording("without-id", Reply::calls(vec![city().with_id("")]), called(vec![(CITY.0, "", CITY.2)])),
        recording("without-done", Reply::calls(vec![city()]).without_done(), called(vec![CITY])),
        recording("line-ends", Reply::bytes("text/event-stream", framed), Fact { text: "Line ends", without_usage: true, ..stopped() }),
    ]
}

/// Items that only Responses has.
fn responses_items() -> Vec<Recording> {
    let search =
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "weather Köln"}});
    let remote = json!({"type": "mcp_call", "id": "mcp_1", "status": "completed", "server_label": "files", "name": "read", "error": null,
        "arguments": "{\"path\":\"a.txt\"}", "output": "contents"});
    let text = "It rains.";
    vec![
        recording("reasoning", Reply::calls(vec![city()]).thinks("c2VhbGVk"), Fact { skipped: 1, ..called(vec![CITY]) }),
        recording("web-search", Reply::text(text).runs(search.clone()), Fact { text, ran: vec![search], ..stopped() }),
        recording("mcp-call", Reply::text(text).runs(remote.clone()), Fact { text, ran: vec![remote], ..stopped() }),
    ]
}

fn chat_fact(fact: &Fact) -> Value {
    let call = |(position, (name, id, arguments)): (usize, &(&str, &str, &str))| json!({"position": position, "name": name, "id": id, "arguments": arguments});
    let complete = fact.error.is_none() && !fact.without_usage;
    json!({
        "api": "chat", "final_text": fact.text, "refusal": fact.refusal, "finish_reason": fact.finish,
        "tool_calls": fact.calls.iter().enumerate().map(call).collect::<Vec<_>>(),
        "usage": if complete { json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}) } else { Value::Null },
        "must_not_execute_tools": fact.must_not_execute,
        "errors": fact.error.iter().collect::<Vec<_>>(),
    })
}

fn responses_fact(fact: &Fact) -> Value {
    let ran = fact.ran.iter().enumerate().map(|(at, item)| {
        json!({"type": item["type"], "item_id": item["id"], "call_id": null, "output_index": at, "name": item["name"], "status": item["status"],
            "error": item["error"], "output": item["output"], "arguments": item["arguments"]})
    });
    let calls = fact.calls.iter().enumerate().map(|(nth, (name, id, arguments))| {
        let at = fact.ran.len() + fact.skipped + nth;
        json!({"type": "function_call", "item_id": format!("fc_fake_1_{at}"), "call_id": id, "output_index": at, "name": name,
            "arguments": arguments, "status": "completed", "error": null})
    });
    json!({
        "api": "responses", "final_text": fact.text, "refusal": fact.refusal, "status": fact.status,
        "tool_calls": ran.chain(calls).collect::<Vec<_>>(),
        "usage": if fact.error.is_none() { json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}) } else { Value::Null },
        "must_not_execute_tools": fact.must_not_execute,
        "error": fact.error, "error_events": [],
    })
}

/// The bytes of one response, as they arrive.
#[expect(clippy::disallowed_methods, reason = "the recorder reads only from its own fake")]
async fn bytes(api: Api, reply: Reply) -> Result<Vec<u8>, Box<dyn Error>> {
    let model = FakeModel::start().await;
    model.script(vec![reply]);
    let (path, input) = match api {
        Api::Chat => ("chat/completions", "messages"),
        Api::Responses => ("responses", "input"),
    };
    let request = json!({"model": "fake", "stream": true, input: [{"role": "user", "content": "Go on."}]});
    let response = reqwest::Client::new().post(format!("{}/{path}", model.base_url())).json(&request).send().await?;
    let mut stream = response.error_for_status()?.bytes_stream();
    let mut received = Vec::new();
    while let Some(piece) = stream.next().await {
        received.extend_from_slice(&piece?);
    }
    Ok(received)
}

async fn record(folder: &Path) -> Result<usize, Box<dyn Error>> {
    fs::create_dir_all(folder.join("streams"))?;
    let mut entries = Vec::new();
    let chat = common().into_iter().chain(chat_quirks()).map(|one| (Api::Chat, one));
    let responses = common().into_iter().chain(responses_items()).map(|one| (Api::Responses, one));
    for (api, Recording { name, reply, fact }) in chat.chain(responses) {
        let (prefix, expected) = match api {
            Api::Chat => ("chat", chat_fact(&fact)),
            Api::Responses => ("responses", responses_fact(&fact)),
        };
        let file = format!("streams/{prefix}-{name}.sse");
        fs::write(folder.join(&file), bytes(api, reply).await?)?;
        entries.push(json!({"file": file, "expected": expected}));
    }
    let count = entries.len();
    fs::write(folder.join("index.json"), format!("{:#}\n", json!({"entries": entries})))?;
    Ok(count)
}

#[tokio::main]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: record-streams FOLDER");
        return ExitCode::from(2);
    };
    werkruf_bench::install_tls();
    match record(Path::new(&folder)).await {
        Ok(count) => println!("{count} streams recorded in {folder}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
