//! What requests cost: web searches, calls of tools with a price, vectors, and the same usage in a stream and in a body.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::service::Service;
use crate::support::{TestServer, body};

const GPT: (&str, &str) = ("OPENAI_MODEL", "gpt-5");
const RESPONSES: (&str, &str) = ("OPENAI_API", "responses");

/// These fields of every request, in the order in which the requests left.
async fn requests<const N: usize>(server: &TestServer, fields: [&str; N]) -> Vec<[Value; N]> {
    let response = server.operator(Method::GET, "/api/usage/requests").send().await.unwrap();
    let mut rows = body(response).await["requests"].as_array().unwrap().clone();
    rows.sort_by_key(|row| (row["at"].as_str().unwrap().to_owned(), row["id"].as_str().unwrap().to_owned()));
    rows.iter().map(|row| fields.map(|name| row[name].clone())).collect()
}

async fn sums(server: &TestServer, query: &str) -> Value {
    body(server.operator(Method::GET, &format!("/api/usage?{query}")).send().await.unwrap()).await
}

async fn invoke(server: &TestServer, tool: &str, input: Value) -> Value {
    let request = server.as_user(3, Method::POST, &format!("/api/tools/{tool}/invoke"));
    body(request.json(&json!({"input": input})).send().await.unwrap()).await
}

fn search(id: &str, action: &str) -> Value {
    json!({"type": "web_search_call", "id": id, "status": "completed", "action": {"type": action, "query": "tea"}})
}

/// A stream that begins to search and then breaks.
fn broken_search() -> Reply {
    let added = json!({"type": "response.output_item.added", "output_index": 0,
        "item": {"type": "web_search_call", "id": "ws_0", "status": "in_progress"}});
    Reply::bytes("text/event-stream", format!("data: {added}\n\n"))
}

/// A model whose tokens cost nothing, with this fee for searches.
async fn priced(server: &TestServer, fee: Value) {
    let prices = json!({"models": [{"model": "gpt-5", "usd_per_million": {"input": "0", "output": "0"}, "search_usd_per_query": fee}]});
    std::fs::write(server.folder.path().join("prices.json"), prices.to_string()).unwrap();
    server.app.reload().await.unwrap();
}

#[tokio::test]
async fn searches_of_the_provider_are_in_the_cost_of_their_request() {
    let server = TestServer::open_in("", &[GPT, RESPONSES]).await;
    let searching =
        Reply::text("Tea is hot.").runs(search("ws_1", "search")).runs(search("ws_2", "open_page")).runs(search("ws_3", "search"));
    server.model.script(vec![broken_search(), searching.usage(1000, 100)]);
    let answer = body(server.chat(3, json!({"message": "What is tea?"})).await).await;
    let rows = requests(&server, ["operation", "tool_name", "tokens_prompt", "tokens_completion", "estimated", "cost_nano_usd"]).await;
    let (lost, tokens) = (&rows[0], rows[0][2].as_i64().unwrap());
    assert_eq!((&lost[4], lost[5].as_i64()), (&json!(true), Some(tokens * 1250 + 10_000_000)), "the search had begun");
    assert_eq!(rows[1], [json!("chat"), Value::Null, json!(1000), json!(100), json!(false), json!(2_250_000 + 20_000_000)]);
    let total = lost[5].as_i64().unwrap() + 22_250_000;
    assert_eq!((rows.len(), &answer["usage"]["cost_usd"]), (2, &json!(total as f64 / 1e9)));
}

/// The model reads the schemas of tools, so a request whose usage never came counts them too: by their length, or as a budget counted them.
#[tokio::test]
async fn an_estimate_counts_everything_that_was_sent() {
    let server = TestServer::open_in("", &[GPT]).await;
    let silent = || Reply::text("Hot.").cut_before_finish();
    server.model.script(vec![silent(), Reply::text("Hot."), silent(), Reply::text("Hot.")]);
    assert_eq!(server.chat(3, json!({"message": "tea"})).await.status(), 200);
    let request = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("x-budget-tokens", "1000000");
    assert_eq!(request.json(&json!({"message": "tea"})).send().await.unwrap().status(), 200);
    let rows = requests(&server, ["tokens_prompt", "tokens_completion", "estimated"]).await;
    let sent = server.model.requests()[0].body.to_string().len();
    let tokens = |row: usize| usize::try_from(rows[row][0].as_i64().unwrap()).unwrap();
    assert_eq!(([&rows[0][2], &rows[1][2], &rows[2][2]], &rows[0][1]), ([&json!(true), &json!(false), &json!(true)], &json!(1)));
    assert!(tokens(0).abs_diff(sent.div_ceil(4)) < 20, "{} for {sent} bytes", tokens(0));
    assert!((sent / 6..sent / 2).contains(&tokens(2)) && tokens(2) != tokens(0), "counted: {} for {sent} bytes", tokens(2));
}

#[tokio::test]
async fn a_search_without_a_known_fee_has_no_cost() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prices.json"), r#"{"models": []}"#).unwrap();
    let server = TestServer::open_in_folder("prices = 'prices.json'\n", &[GPT, RESPONSES], folder).await;
    let fees = [Value::Null, json!("0.0000000005"), json!({"search_context_size_low": 0.03, "search_context_size_medium": 0.035})];
    for fee in fees {
        priced(&server, fee).await;
        server.model.script(vec![Reply::text("Hot.").runs(search("ws_1", "search")), Reply::text("Cold.")]);
        for message in ["tea", "ice"] {
            assert_eq!(server.chat(3, json!({"message": message})).await.status(), 200);
        }
    }
    let costs: Vec<Value> = requests(&server, ["cost_nano_usd"]).await.into_iter().flatten().collect();
    assert_eq!(costs, [Value::Null, json!(0), json!(1), json!(0), json!(35_000_000), json!(0)], "half a nano-dollar is one");
    let total = sums(&server, "group_by=model").await["total"].clone();
    assert_eq!((&total["calls"], &total["unpriced_calls"], &total["cost_nano_usd"]), (&json!(6), &json!(1), &json!(35_000_001)));
}

#[tokio::test]
async fn a_web_search_of_a_tool_has_its_fee_and_its_tool() {
    let server = TestServer::open_in("", &[GPT]).await;
    let output = json!([search("ws_1", "search"), search("ws_2", "find_in_page"),
        {"type": "message", "content": [{"type": "output_text", "text": "Hot.", "annotations": []}]}]);
    let usage = json!({"input_tokens": 40, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 46});
    let answer = json!({"id": "resp_1", "status": "completed", "model": "gpt-5-2025-08-07", "usage": usage, "output": output});
    server.model.script(vec![
        Reply::bytes("application/json", answer.to_string()).request_id("req_search"),
        Reply::status(503).request_id("req_down"),
        Reply::text("Plain.").usage(10, 1),
    ]);
    let found = invoke(&server, "ask_gpt", json!({"query": "tea?", "web_search": true})).await;
    assert_eq!((&found["data"]["searches"], &found["data"]["message"]), (&json!(1), &json!("Hot.")), "{found}");
    invoke(&server, "ask_gpt", json!({"query": "coffee?", "web_search": true})).await;
    invoke(&server, "ask_gpt", json!({"query": "water?"})).await;
    let fields = ["request_id", "operation", "tool_name", "model", "tokens_prompt", "tokens_cached", "tokens_completion", "cost_nano_usd"];
    let rows = requests(&server, fields).await;
    let tool = [json!("ask_gpt"), json!("ask_gpt")];
    let row = |id: &str, model: &str, numbers: [i64; 4]| {
        let [operation, tool_name] = tool.clone();
        let [prompt, cached, completion, cost] = numbers.map(Value::from);
        [json!(id), operation, tool_name, json!(model), prompt, cached, completion, cost]
    };
    assert_eq!(rows[0], row("req_search", "gpt-5-2025-08-07", [40, 8, 6, 32 * 1250 + 8 * 125 + 60_000 + 10_000_000]));
    // A refused request costs nothing. The tool is allowed to ask again.
    assert_eq!(rows[1], row("req_down", "gpt-5", [0, 0, 0, 0]));
    assert_eq!(rows.last().unwrap()[4..], [json!(10), json!(0), json!(1), json!(22_500)]);
    let by_tool = sums(&server, "group_by=tool").await;
    assert_eq!((&by_tool["rows"][0]["key"], by_tool["rows"].as_array().unwrap().len()), (&json!("ask_gpt"), 1));
}

#[tokio::test]
async fn vectors_have_a_row_per_request_also_when_they_fail() {
    let variables = [GPT, ("OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")];
    let server = TestServer::open_in("", &variables).await;
    let vectors = json!({"data": [{"index": 0, "embedding": [0.5, 0.5]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}});
    let silent = json!({"data": [{"index": 0, "embedding": [0.5, 0.5]}]});
    server.model.script(vec![
        Reply::bytes("application/json", vectors.to_string()).request_id("req_vectors"),
        Reply::status(500).request_id("req_failed"),
        Reply::bytes("application/json", silent.to_string()).request_id("req_silent"),
        Reply::bytes("text/html", "<html>").request_id("req_page"),
    ]);
    let search = async |server: &TestServer| {
        let request = server.as_user(3, Method::POST, "/api/knowledge/search").json(&json!({"query": "tea time"}));
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    for _ in 0..4 {
        search(&server).await;
    }
    let rows = requests(&server, ["request_id", "operation", "tool_name", "tokens_prompt", "estimated", "cost_nano_usd"]).await;
    let row = |id: &str, tokens: i64, estimated: bool| {
        [json!(id), json!("embedding"), Value::Null, json!(tokens), json!(estimated), json!(tokens * 20)]
    };
    let expected = [row("req_vectors", 7, false), row("req_failed", 0, false), row("req_silent", 2, true), row("req_page", 2, true)];
    assert_eq!(rows, expected, "eight bytes are two tokens where the provider said nothing");
    let unreachable = [GPT, ("OPENAI_EMBEDDING_MODEL", "m"), ("OPENAI_EMBEDDING_BASE_URL", "http://127.0.0.1:1/v1")];
    let server = TestServer::open_in("", &unreachable).await;
    search(&server).await;
    assert_eq!(requests(&server, ["id"]).await.len(), 0, "it never left");
}

#[tokio::test]
async fn every_attempt_of_a_tool_with_a_price_has_a_row() {
    let busy = json!({"status": "error", "error": {"type": "RETRYABLE", "code": "busy", "message": "Later."}});
    let refused = json!({"status": "error", "error": {"type": "FATAL", "code": "no", "message": "No."}});
    let service = Service::start(&[("rate", json!({"rate": 2})), ("busy", busy), ("no", refused), ("free", json!({}))]).await;
    let price = "price_usd = '0.0123456785'";
    let config = [
        service.tool("rate", "read", price),
        service.tool("busy", "idempotent", "price_usd = '0.5'\nattempts = 2"),
        service.tool("no", "once", price),
        service.tool("free", "read", ""),
        "[[tools]]\nname = 'gone'\ndescription = 'Gone.'\nurl = 'http://127.0.0.1:1/'\neffect = 'read'\npermission = 'none'\nattempts = 1\n\
         parameters = '{\"type\": \"object\"}'\nprice_usd = '1'\n"
            .to_owned(),
    ];
    let server = TestServer::open_in(&config.concat(), &[GPT]).await;
    let twice = vec![call("rate", json!({})), call("rate", json!({})), call("free", json!({}))];
    server.model.script(vec![Reply::calls(twice), Reply::calls(vec![call("rate", json!({}))]), Reply::text("Two.")]);
    let turn = body(server.chat(3, json!({"message": "What is the rate?"})).await).await;
    assert_eq!(
        (&turn["message"]["content"], &turn["usage"]["model_calls"]),
        (&json!("Two."), &json!(3)),
        "calls of tools are no model calls"
    );
    for tool in ["busy", "no", "gone"] {
        assert_eq!(invoke(&server, tool, json!({})).await["status"], "error", "{tool}");
    }
    let rows =
        requests(&server, ["operation", "tool_name", "provider", "model", "tokens_prompt", "estimated", "request_id", "cost_nano_usd"])
            .await;
    let tools: Vec<_> = rows.into_iter().filter(|row| row[0] == "tool").collect();
    let row =
        |tool: &str, cost: i64| [json!("tool"), json!(tool), json!("tool"), json!(""), json!(0), json!(false), Value::Null, json!(cost)];
    let expected = [row("rate", 12_345_679), row("busy", 500_000_000), row("busy", 500_000_000), row("no", 12_345_679)];
    assert_eq!(tools, expected, "an identical call joins the first, and a service that cannot be reached costs nothing");
    assert_eq!((service.received("rate"), service.received("busy"), service.received("free")), (1, 2, 1));
    let by_tool = sums(&server, "group_by=tool").await;
    let keys: Vec<_> = by_tool["rows"].as_array().unwrap().iter().map(|row| (row["key"].clone(), row["calls"].clone())).collect();
    assert_eq!(keys[0], (json!("busy"), json!(2)), "by cost: {by_tool}");
    let calls = body(server.operator(Method::GET, "/api/tool-calls?tool=busy").send().await.unwrap()).await;
    assert_eq!(calls["tool_calls"][0]["attempt"], 2);
}

/// The same usage, once in a stream and once in a body.
#[tokio::test]
async fn a_streamed_answer_costs_what_the_same_body_costs() {
    let tokens = ["tokens_prompt", "tokens_cached", "tokens_completion", "estimated", "cost_nano_usd"];
    let chat_usage = json!({"prompt_tokens": 101, "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens": 33,
        "completion_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 134});
    let whole = json!({"id": "c1", "object": "chat.completion", "model": "gpt-5", "usage": chat_usage,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hot."}}]});
    let chunk = json!({"id": "c1", "object": "chat.completion.chunk", "model": "gpt-5",
        "choices": [{"index": 0, "finish_reason": "stop", "delta": {"role": "assistant", "content": "Hot."}}]});
    let last = json!({"id": "c1", "object": "chat.completion.chunk", "model": "gpt-5", "choices": [], "usage": chat_usage});
    let chat = [whole.to_string(), format!("data: {chunk}\n\ndata: {last}\n\ndata: [DONE]\n\n")];
    let usage = json!({"input_tokens": 101, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 33,
        "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 134});
    let message = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hot.", "annotations": []}]});
    let response = json!({"id": "r1", "object": "response", "status": "completed", "model": "gpt-5",
        "output": [search("ws_1", "search"), message], "usage": usage});
    let done = json!({"type": "response.completed", "response": response});
    let responses = [response.to_string(), format!("event: response.completed\ndata: {done}\n\n")];
    for (api, [whole, stream], fees) in [("chat", chat, 0), ("responses", responses, 10_000_000)] {
        let server = TestServer::open_in("", &[GPT, ("OPENAI_API", api)]).await;
        server.model.script(vec![Reply::bytes("application/json", whole), Reply::bytes("text/event-stream", stream)]);
        for _ in 0..2 {
            let turn = body(server.chat(3, json!({"message": "tea"})).await).await;
            assert_eq!(turn["message"]["content"], "Hot.", "{api}: {turn}");
        }
        let rows = requests(&server, tokens).await;
        let cost = 37 * 1250 + 64 * 125 + 33 * 10_000 + fees;
        assert_eq!(rows[0], [json!(101), json!(64), json!(33), json!(false), json!(cost)], "{api}");
        assert_eq!(rows[0], rows[1], "{api}");
    }
}
