//! Further routes: embeddings, stored completions, compaction, token counts; and the manners of addresses and headers.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, answer, own_tool, user};
use crate::support::{TestServer, body, refusal};

async fn post(server: &TestServer, path: &str, request: Value) -> Response {
    server.as_user(CLARA, Method::POST, path).json(&request).send().await.unwrap()
}

async fn posted(server: &TestServer, path: &str, request: Value) -> Value {
    let response = post(server, path, request).await;
    let status = response.status();
    let answer = body(response).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

fn vectors(vectors: &Value) -> Reply {
    let data: Vec<Value> =
        vectors.as_array().unwrap().iter().enumerate().map(|(index, vector)| json!({"index": index, "embedding": vector})).collect();
    Reply::bytes("application/json", json!({"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).to_string())
}

#[tokio::test]
async fn vectors_need_no_module() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::open_as_written("", &[("OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")], folder).await;
    server.model.script(vec![vectors(&json!([[0.5]]))]);
    let response =
        server.operator(Method::POST, "/v1/embeddings").header("X-User-Id", "3").json(&json!({"input": "hello"})).send().await.unwrap();
    let (status, answer) = (response.status(), body(response).await);
    assert_eq!((status.as_u16(), &answer["data"][0]["embedding"]), (200, &json!([0.5])), "{answer}");
    let ready = body(server.operator(Method::GET, "/readyz").send().await.unwrap()).await;
    assert_eq!(ready["loops"]["embedder"], json!({"last_progress_ms": null, "ok": true}), "no documents, so nothing to embed");
}

#[tokio::test]
async fn texts_have_vectors_of_the_configured_model_and_a_usage_row() {
    let server = TestServer::open_in("", &[("OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")]).await;
    let one = json!([[0.5, -1.0]]);
    server.model.script(vec![vectors(&one), vectors(&one), vectors(&json!([[1.0], [2.0]])), vectors(&one), vectors(&one)]);
    let response = post(&server, "/v1/embeddings", json!({"model": "ada", "input": "hello world"})).await;
    assert_eq!(response.headers()["x-werkruf-model"], "text-embedding-3-small");
    let expected = json!({"object": "list", "model": "ada", "usage": {"prompt_tokens": 7, "total_tokens": 7},
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}]});
    assert_eq!(body(response).await, expected);
    assert_eq!(server.model.requests()[0].body, json!({"model": "text-embedding-3-small", "input": ["hello world"]}));
    let packed = posted(&server, "/v1/embeddings", json!({"input": [15339, 1917], "encoding_format": "base64"})).await;
    assert_eq!(packed["data"][0]["embedding"], "AAAAPwAAgL8=", "two numbers of four bytes, the lowest first");
    assert_eq!(server.model.requests()[1].body["input"], json!(["hello world"]), "tokens are decoded");
    let two = posted(&server, "/v1/embeddings", json!({"model": "e", "input": ["a", "b"], "dimensions": 1})).await;
    assert_eq!(two["data"][1], json!({"object": "embedding", "index": 1, "embedding": [2.0]}));
    assert_eq!(server.model.requests()[2].body["dimensions"], 1);
    let other = post(&server, "/v1/embeddings", json!({"input": "a", "dimensions": 3})).await;
    assert_eq!(refusal(other).await, (400, "unsupported_parameter".to_owned()), "the model did not shorten its vectors");
    let rows = body(server.operator(Method::GET, "/api/usage/requests").send().await.unwrap()).await;
    let rows = rows["requests"].as_array().unwrap().clone();
    assert!(rows.len() == 4 && rows.iter().all(|row| row["operation"] == "embedding" && row["tokens_prompt"] == 7), "{rows:?}");
    for wrong in [
        json!({}),
        json!({"input": ""}),
        json!({"input": []}),
        json!({"input": ["a", 1]}),
        json!({"input": [[4_294_967_295_u32]]}),
        json!({"input": "a", "encoding_format": "int8"}),
        json!({"input": "a", "dimensions": 0}),
    ] {
        assert_eq!(refusal(post(&server, "/v1/embeddings", wrong.clone()).await).await, (400, "invalid_request".to_owned()), "{wrong}");
    }
}

#[tokio::test]
async fn vectors_count_for_budgets_and_need_a_model() {
    let server = TestServer::open_in("", &[("OPENAI_EMBEDDING_MODEL", "e")]).await;
    let budget = json!({"scope": "user", "subject": CLARA, "period": "day", "unit": "tokens", "limit": 10});
    assert_eq!(server.operator(Method::POST, "/api/budgets").json(&budget).send().await.unwrap().status(), 201);
    server.model.script(vec![vectors(&json!([[1.0]])), vectors(&json!([[1.0]]))]);
    posted(&server, "/v1/embeddings", json!({"input": "hello world"})).await;
    let long = "hello world ".repeat(10);
    let (status, code) = refusal(post(&server, "/v1/embeddings", json!({"input": long})).await).await;
    assert_eq!((status, code.as_str()), (429, "budget_exceeded"));
    assert_eq!(server.model.requests().len(), 1, "nothing was sent");
    let refused = TestServer::open_in("", &[("OPENAI_EMBEDDING_MODEL", "e")]).await;
    refused.model.script(vec![Reply::status(400).message("too long"), Reply::status(401).message("key")]);
    assert_eq!(refusal(post(&refused, "/v1/embeddings", json!({"input": "a"})).await).await, (400, "model_refused".to_owned()));
    assert_eq!(refusal(post(&refused, "/v1/embeddings", json!({"input": "a"})).await).await.0, 502, "the operator's key is wrong");
    let without = TestServer::open().await;
    assert_eq!(refusal(post(&without, "/v1/embeddings", json!({"input": "a"})).await).await, (400, "not_configured".to_owned()));
}

#[tokio::test]
async fn a_completion_can_be_retrieved_by_its_user() {
    let server = TestServer::open().await;
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me look. "),
        Reply::text("It is 1."),
        Reply::calls(vec![call("weather", json!({"city": "Rome"}))]),
        Reply::text("Not kept."),
    ]);
    let (first, _) = answer(&server, json!({"model": "gpt-x", "messages": [user("What is it?")], "metadata": {"case": "7"}})).await;
    let show = async |who: i64, id: &Value| {
        server.as_user(who, Method::GET, &format!("/v1/chat/completions/{}", id.as_str().unwrap())).send().await.unwrap()
    };
    let mut again = body(show(CLARA, &first["id"]).await).await;
    assert_eq!(again["metadata"], json!({"case": "7"}));
    again.as_object_mut().unwrap().remove("metadata");
    assert_eq!(again, first, "the same object");
    let (calls, _) = answer(&server, json!({"messages": [user("Weather?")], "tools": [own_tool("weather")]})).await;
    assert_eq!(body(show(CLARA, &calls["id"]).await).await["choices"], calls["choices"]);
    let (hidden, _) = answer(&server, json!({"messages": [user("x")], "store": false})).await;
    for (who, id) in [(CLARA, &hidden["id"]), (4, &first["id"]), (CLARA, &json!("chatcmpl-1"))] {
        assert_eq!(refusal(show(who, id).await).await, (404, "not_found".to_owned()));
    }
}

#[tokio::test]
async fn a_compacted_conversation_goes_on_with_its_summary() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("They launch on Tuesday.").usage(30, 5), Reply::text("On Tuesday.")]);
    let input = json!([{"role": "user", "content": "We launch on Tuesday."}, {"role": "assistant", "content": "Understood."}]);
    let compacted = posted(&server, "/v1/responses/compact", json!({"model": "m", "input": input})).await;
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["created_at"].is_i64() && compacted["id"].as_str().unwrap().starts_with("resp_"), "{compacted}");
    assert_eq!((&compacted["usage"]["input_tokens"], &compacted["usage"]["total_tokens"]), (&json!(30), &json!(35)));
    let item = &compacted["output"][0];
    assert!(item["type"] == "compaction" && item["id"].is_string() && item["encrypted_content"].is_string(), "{item}");
    let asked = &server.model.requests()[0];
    assert!(asked.user_text().contains("Person: We launch on Tuesday.") && asked.body.get("tools").is_none(), "{:?}", asked.body);
    let request = json!({"model": "m", "input": [item, {"role": "user", "content": "When?"}]});
    assert_eq!(posted(&server, "/v1/responses", request).await["output"][0]["content"][0]["text"], "On Tuesday.");
    let sent: Vec<String> =
        server.model.requests()[1].messages().iter().skip(1).map(|message| message["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sent[1..], ["They launch on Tuesday.".to_owned(), "When?".to_owned()], "{sent:?}");
    let rows = body(server.operator(Method::GET, "/api/usage/requests").send().await.unwrap()).await;
    assert!(rows["requests"].as_array().unwrap().iter().all(|row| row["operation"] == "chat"), "{rows}");
}

#[tokio::test]
async fn a_stored_conversation_is_compacted_without_the_results_of_server_tools() {
    let server = TestServer::open().await;
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": "secret of strangers"}))]),
        Reply::text("Done."),
        Reply::text("A summary."),
    ]);
    let first = posted(&server, "/v1/responses", json!({"input": "Echo."})).await;
    posted(&server, "/v1/responses/compact", json!({"model": "m", "previous_response_id": first["id"]})).await;
    let record = server.model.requests().pop().unwrap().user_text().to_owned();
    assert_eq!(record, "Person: Echo.\n\nAssistant: Done.");
    let missing = refusal(post(&server, "/v1/responses/compact", json!({"input": "x"})).await).await;
    assert_eq!(missing, (400, "invalid_request".to_owned()), "model is required");
    assert_eq!(refusal(post(&server, "/v1/responses/compact", json!({"model": "m"})).await).await.0, 400);
    let foreign =
        server.as_user(4, Method::POST, "/v1/responses/compact").json(&json!({"model": "m", "previous_response_id": first["id"]}));
    assert_eq!(refusal(foreign.send().await.unwrap()).await, (404, "previous_response_not_found".to_owned()));
}

#[tokio::test]
async fn input_tokens_are_counted_without_a_turn() {
    let server = TestServer::open().await;
    let count = async |request: Value| posted(&server, "/v1/responses/input_tokens", request).await["input_tokens"].as_u64().unwrap();
    let short = count(json!({"model": "m", "input": "hello world"})).await;
    let long = count(json!({"model": "m", "input": "hello world ".repeat(100)})).await;
    assert!(short > 2 && (190..=230).contains(&(long - short)), "{short} {long}");
    assert!(count(json!({"input": "hello world", "instructions": "Be brief."})).await > short);
    assert_eq!(server.model.requests().len(), 0);
    server.model.script(vec![Reply::text(&"word ".repeat(50))]);
    let first = posted(&server, "/v1/responses", json!({"input": "hello world"})).await;
    assert!(count(json!({"input": "hello world", "previous_response_id": first["id"]})).await > short + 50);
    let foreign = server
        .as_user(4, Method::POST, "/v1/responses/input_tokens")
        .json(&json!({"conversation": first["conversation"]["id"], "input": "x"}));
    assert_eq!(refusal(foreign.send().await.unwrap()).await, (404, "not_found".to_owned()));
    let list = body(server.as_user(CLARA, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(list["conversations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn addresses_and_headers_of_careless_clients_are_accepted() {
    let server = TestServer::open().await;
    let key = server.key(Some(CLARA), &["chat"]).await;
    for header in ["api-key", "x-api-key"] {
        let list = server.bare(Method::GET, "/v1/models/").header(header, &key).send().await.unwrap();
        assert_eq!(list.status(), 200, "{header}");
        assert_eq!(body(list).await["data"][0]["id"], "default");
    }
    assert_eq!(server.with_key(&key, Method::GET, "/v1/models/default/").send().await.unwrap().status(), 200);
    server.model.script(vec![Reply::text("Hi.")]);
    assert_eq!(posted(&server, "/v1/chat/completions/", json!({"messages": [user("x")]})).await["object"], "chat.completion");
    assert_eq!(refusal(server.with_key(&key, Method::GET, "/v1/none/").send().await.unwrap()).await, (404, "unknown_route".to_owned()));
    assert_eq!(server.with_key(&key, Method::GET, "/api/conversations/").send().await.unwrap().status(), 404, "only under /v1");
}

#[tokio::test]
async fn a_websocket_is_refused_with_a_reason() {
    let server = TestServer::open().await;
    for path in ["/v1/responses", "/v1/responses/"] {
        let upgrade = server.as_user(CLARA, Method::GET, path).header("connection", "upgrade").header("upgrade", "websocket");
        let upgrade = upgrade.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(refusal(upgrade.send().await.unwrap()).await, (400, "websocket_unsupported".to_owned()));
    }
    let plain = server.as_user(CLARA, Method::GET, "/v1/responses").send().await.unwrap();
    assert_eq!(refusal(plain).await, (405, "method_not_allowed".to_owned()));
}
