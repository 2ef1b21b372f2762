//! Traces over OTLP: what nests in what, what spans say, and what they must not say.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::collector::{Collector, Span};
use crate::support::{ADMIN, TestServer, body};

const CANARY: &str = "otlp-token-of-the-tests";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn serve(collector: &Collector, more: &[(&str, &str)]) -> TestServer {
    let headers = format!("authorization=Bearer%20{CANARY}");
    let usual = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let variables: Vec<(&str, &str)> = usual.into_iter().chain(more.iter().copied()).collect();
    TestServer::open_in("[safety.asking]\napproval_required_for = ['test_echo']\n[approvals]\nfour_eyes = false\n", &variables).await
}

/// Name and parent's name of every span, the turn first.
fn nested(spans: &[Span]) -> Vec<(&str, &str)> {
    let name = |id: &str| spans.iter().find(|span| span.id == id).map_or("", |span| span.name.as_str());
    let mut pairs: Vec<(&str, &str)> = spans.iter().map(|span| (span.name.as_str(), name(&span.parent))).collect();
    pairs.sort_unstable_by_key(|(name, parent)| (*name != "invoke_agent", *name, *parent));
    pairs
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap()
}

fn of<'a>(span: &'a Span, attributes: &[&str]) -> Vec<&'a Value> {
    attributes.iter().map(|name| span.attributes.get(*name).unwrap_or(&Value::Null)).collect()
}

#[tokio::test]
async fn a_turn_with_two_tools_and_two_model_requests_nests() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[]).await;
    let first = Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("c1"), call("test_bytes", json!({"n": 1}))]);
    server.model.script(vec![first.usage(70, 15), Reply::text("A secret answer.").usage(100, 3)]);
    let answer = body(server.chat(3, json!({"message": "A secret question."})).await).await;
    let (turn, conversation) = (answer["turn_id"].as_str().unwrap(), &answer["conversation_id"]);
    let spans = collector.turns(1).await;
    let root = "invoke_agent";
    let expected =
        [(root, ""), ("chat fake-1", root), ("chat fake-1", root), ("execute_tool test_bytes", root), ("execute_tool test_echo", root)];
    assert_eq!(nested(&spans), expected);
    assert!(spans.iter().all(|span| span.trace_id == turn.replace('-', "")), "the turn names its trace");
    let whole = named(&spans, root);
    assert!(spans.iter().all(|span| whole.started <= span.started && span.started <= span.ended && span.ended <= whole.ended));
    for span in &spans {
        let ids = of(span, &["werkruf.turn_id", "werkruf.conversation_id", "gen_ai.conversation.id", "werkruf.takeover", "error.type"]);
        assert_eq!(ids, [&json!(turn), conversation, conversation, &Value::Null, &Value::Null]);
        assert!(!span.failed);
    }
    assert_eq!(of(whole, &["gen_ai.operation.name", "gen_ai.agent.name"]), [&json!("invoke_agent"), &json!("default")]);
    let mut chats: Vec<&Span> = spans.iter().filter(|span| span.name == "chat fake-1").collect();
    chats.sort_by_key(|span| span.attributes["gen_ai.usage.input_tokens"].as_i64());
    let asked = ["gen_ai.operation.name", "gen_ai.request.model", "gen_ai.provider.name", "gen_ai.system", "gen_ai.usage.input_tokens"];
    assert_eq!(of(chats[0], &asked), [&json!("chat"), &json!("fake-1"), &json!("127.0.0.1"), &json!("127.0.0.1"), &json!(70)]);
    let answered = ["gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"];
    assert_eq!(of(chats[0], &answered), [&json!(15), &json!(["tool_calls"])]);
    assert_eq!(of(chats[1], &answered), [&json!(3), &json!(["stop"])]);
    assert!(
        chats.iter().all(|span| span.attributes["gen_ai.response.id"].is_string() && span.attributes["gen_ai.response.model"].is_string())
    );
    let tool = named(&spans, "execute_tool test_echo");
    let names = ["gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"];
    assert_eq!(of(tool, &names), [&json!("execute_tool"), &json!("test_echo"), &json!("c1"), &json!("function")]);
    assert!(tool.attributes["werkruf.call_id"].is_string() && tool.attributes["werkruf.tenant_id"].is_string());
    let resource = collector.resource();
    assert_eq!((&resource["service.name"], &resource["deployment.environment.name"]), (&json!("werkruf"), &json!("test")));
    assert!(resource.contains_key("service.version") && resource.contains_key("service.instance.id"));
    assert_eq!(collector.headers()["authorization"], format!("Bearer {CANARY}"));
    assert!(!collector.has_received("secret"), "no content without the operator's consent");
}

#[tokio::test]
async fn the_requests_of_a_tool_are_inside_its_call_and_each_send_is_a_span() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[]).await;
    let asks = Reply::calls(vec![call("ask_gpt", json!({"query": "Why?"}))]);
    server.model.script(vec![Reply::status(500), asks, Reply::text("Because.")]);
    assert_eq!(server.chat(3, json!({"message": "why"})).await.status(), 200);
    let spans = collector.turns(1).await;
    let (root, tool, chat) = ("invoke_agent", "execute_tool ask_gpt", "chat fake-1");
    assert_eq!(nested(&spans), [(root, ""), (chat, tool), (chat, root), (chat, root), (tool, root)]);
    let failed: Vec<&Value> = spans.iter().filter(|span| span.failed).map(|span| &span.attributes["error.type"]).collect();
    assert_eq!(failed, [&json!("500")]);
    let inner = spans.iter().find(|span| span.parent == named(&spans, tool).id).unwrap();
    assert_eq!(inner.attributes["werkruf.call_id"], named(&spans, tool).attributes["werkruf.call_id"]);
}

#[tokio::test]
async fn the_callers_span_is_the_parent_unless_it_is_not_sampled() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[]).await;
    let send = async |path: &str, request: Value, parent: &str| {
        let request = server.as_user(3, Method::POST, path).header("accept", "application/json").json(&request);
        body(request.header("traceparent", parent).header("x-trace-id", "t-1").send().await.unwrap()).await
    };
    server.model.script(vec![Reply::text("One."), Reply::text("Two.")]);
    send("/api/chat", json!({"message": "one"}), PARENT).await;
    send("/api/chat", json!({"message": "two"}), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").await;
    let called = send("/api/tools/test_echo/invoke", json!({"input": {"value": 7}}), PARENT).await;
    assert_eq!(called["status"], "ok");
    let spans = collector.turns(2).await;
    let root = "invoke_agent";
    assert_eq!(nested(&spans), [(root, ""), (root, ""), ("chat fake-1", root), ("execute_tool test_echo", root)]);
    assert!(spans.iter().all(|span| span.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert!(spans.iter().filter(|span| span.name == root).all(|span| span.parent == "00f067aa0ba902b7"));
    let calls = body(server.operator(Method::GET, "/api/tool-calls").send().await.unwrap()).await;
    let row = &calls["tool_calls"][0];
    assert_eq!((&row["trace_id"], &row["context"]["traceparent"]), (&json!("t-1"), &json!(PARENT)), "a takeover reads it there");
    assert!(!called.to_string().contains("traceparent"), "a tool does not get it: {called}");
}

#[tokio::test]
async fn errors_are_codes_and_names_that_a_model_invents_are_not_shown() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[]).await;
    let calls = Reply::calls(vec![call("my_password_is_hunter2", json!({})), call("test_echo", json!({"wrong": 1}))]);
    server.model.script(vec![calls, Reply::status(400)]);
    assert_ne!(body(server.chat(3, json!({"message": "x"})).await).await["status"], "completed");
    let spans = collector.turns(1).await;
    assert!(spans.iter().filter(|span| span.name != "chat fake-1").all(|span| span.failed), "{spans:?}");
    let errors =
        ["execute_tool unknown", "execute_tool test_echo", "invoke_agent"].map(|name| &named(&spans, name).attributes["error.type"]);
    assert_eq!(errors, [&json!("unknown_tool"), &json!("invalid_arguments"), &json!("model_refused")]);
    assert!(!collector.has_received("hunter2"));
}

#[tokio::test]
async fn a_turn_that_waits_for_an_approval_has_one_span_over_its_whole_life() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[]).await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Done.")]);
    let request = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("x-safety-mode", "asking");
    let waits = request.json(&json!({"message": "x"})).send().await.unwrap();
    assert_eq!(waits.status(), 202, "{}", waits.text().await.unwrap());
    let approvals = body(server.operator(Method::GET, "/api/approvals").send().await.unwrap()).await;
    let path = format!("/api/approvals/{}", approvals["approvals"][0]["id"].as_str().unwrap());
    let decided = server.operator(Method::POST, &path).json(&json!({"decision": "approve"})).send().await.unwrap();
    assert_eq!(decided.status(), 200, "{}", decided.text().await.unwrap());
    let spans = collector.turns(1).await;
    let root = "invoke_agent";
    assert_eq!(nested(&spans), [(root, ""), ("chat fake-1", root), ("chat fake-1", root), ("execute_tool test_echo", root)]);
    let whole = named(&spans, root);
    assert!(spans.iter().all(|span| whole.started <= span.started && span.ended <= whole.ended));
    assert!(!whole.attributes.contains_key("werkruf.takeover"), "waiting is no takeover");
}

#[tokio::test]
async fn content_is_shown_where_the_operator_wants_it_and_never_a_secret() {
    let collector = Collector::start().await;
    let server = serve(&collector, &[("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")]).await;
    let long = "long ".repeat(20_000);
    let arguments = json!({"value": format!("{ADMIN} {CANARY} visible {long}")});
    server.model.script(vec![Reply::calls(vec![call("test_echo", arguments).with_id("c1")]), Reply::text(&format!("Answer {CANARY}"))]);
    assert_eq!(server.chat(3, json!({"message": format!("Question {ADMIN}")})).await.status(), 200);
    let spans = collector.turns(1).await;
    assert!(!collector.has_received(ADMIN) && !collector.has_received(CANARY));
    let (root, tool) = (named(&spans, "invoke_agent"), named(&spans, "execute_tool test_echo"));
    let read = |span: &Span, name: &str| serde_json::from_str::<Value>(span.attributes[name].as_str().unwrap()).unwrap();
    assert_eq!(
        read(root, "gen_ai.input.messages"),
        json!([{"role": "user", "parts": [{"type": "text", "content": "Question [redacted]"}]}])
    );
    let text = json!({"type": "text", "content": "Answer [redacted]"});
    assert_eq!(read(root, "gen_ai.output.messages"), json!([{"role": "assistant", "parts": [text], "finish_reason": "stop"}]));
    for name in ["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"] {
        let shown = tool.attributes[name].as_str().unwrap();
        assert!(shown.contains("[redacted] [redacted] visible") && shown.len() <= 8 * 1024, "{name}: {} bytes", shown.len());
    }
    let chats: Vec<&Span> = spans.iter().filter(|span| span.name == "chat fake-1").collect();
    let first = chats.iter().find(|span| span.attributes["gen_ai.response.finish_reasons"] == json!(["tool_calls"])).unwrap();
    assert_eq!(read(first, "gen_ai.output.messages")[0]["parts"][0]["name"], "test_echo");
    assert!(read(first, "gen_ai.system_instructions")[0]["content"].as_str().is_some_and(|text| !text.is_empty()));
    let second = chats.iter().find(|span| span.attributes["gen_ai.response.finish_reasons"] == json!(["stop"])).unwrap();
    let roles: Vec<Value> =
        read(second, "gen_ai.input.messages").as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    assert!(spans.iter().flat_map(|span| span.attributes.values()).all(|value| value.to_string().len() < 128 * 1024));
}

#[tokio::test]
async fn a_receiver_that_is_gone_costs_no_turn_anything() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{gone}");
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "1"), ("OTEL_BSP_MAX_QUEUE_SIZE", "2")];
    let server = TestServer::open_in("", &variables).await;
    for _ in 0..20 {
        assert_eq!(server.chat(3, json!({"message": "hello"})).await.status(), 200);
    }
    tokio::time::timeout(Duration::from_secs(60), server.app.traces.flush()).await.unwrap();
}
