//! The limits of programs: they count by key, and headers say what is left.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, own_tool, user};
use crate::support::{TestServer, body};

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

fn room(response: &Response) -> (Option<String>, Option<String>) {
    (header(response, "x-ratelimit-limit-requests"), header(response, "x-ratelimit-remaining-requests"))
}

fn left(limit: &str, remaining: &str) -> (Option<String>, Option<String>) {
    (Some(limit.to_owned()), Some(remaining.to_owned()))
}

async fn limited() -> (TestServer, String) {
    let variables = [("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "3"), ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "1")];
    let server = TestServer::open_in("", &variables).await;
    let key = server.key(Some(CLARA), &["chat"]).await;
    (server, key)
}

#[tokio::test]
async fn a_key_has_its_own_limit_and_headers_say_what_is_left() {
    let (server, key) = limited().await;
    let chat = json!({"messages": [user("hi")]});
    let post = async |path: &str, request: &Value| {
        let origin = server.with_key(&key, Method::POST, path).header("origin", "https://app.example");
        origin.json(request).send().await.unwrap()
    };
    // More than a person may write: the key counts.
    let first = post("/v1/chat/completions", &chat).await;
    assert_eq!((first.status().as_u16(), room(&first)), (200, left("3", "2")));
    assert!(header(&first, "x-ratelimit-reset-requests").unwrap().ends_with('s'));
    assert!(header(&first, "openai-processing-ms").unwrap().parse::<u64>().is_ok());
    assert_eq!(header(&first, "x-ratelimit-limit-tokens"), None, "there is no such limit");
    let exposed = header(&first, "access-control-expose-headers").unwrap();
    for name in ["openai-processing-ms", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"] {
        assert!(exposed.contains(name), "{exposed}");
    }
    let second = post("/v1/responses", &json!({"input": "hi"})).await;
    assert_eq!((second.status().as_u16(), room(&second)), (200, left("3", "1")));
    let third = post("/v1/chat/completions", &json!({"messages": [user("hi")], "stream": true})).await;
    assert_eq!((third.status().as_u16(), room(&third)), (200, left("3", "0")));
    let fourth = post("/v1/responses", &json!({"input": "hi"})).await;
    assert_eq!((fourth.status().as_u16(), room(&fourth)), (429, left("3", "0")));
    assert!(header(&fourth, "retry-after").is_some() && header(&fourth, "openai-processing-ms").is_some());
    assert_eq!(body(fourth).await["error"]["code"], "too_many_turns");
    // The operator has no limit, and no header that names one.
    let operator = server.as_user(CLARA, Method::POST, "/v1/chat/completions").json(&chat).send().await.unwrap();
    assert_eq!((operator.status().as_u16(), room(&operator)), (200, (None, None)));
    let native = server.as_user(CLARA, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(header(&native, "openai-processing-ms"), None);
}

#[tokio::test]
async fn a_continuation_with_results_of_the_client_is_no_new_turn() {
    let (server, key) = limited().await;
    let tools = json!([own_tool("mine")]);
    let mut messages = vec![user("hi")];
    for round in 0..6 {
        let id = format!("call_{round}");
        server.model.script(vec![Reply::calls(vec![call("mine", json!({"city": id})).with_id(&id)])]);
        let request = json!({"tools": tools, "messages": messages});
        let sent = server.with_key(&key, Method::POST, "/v1/chat/completions").json(&request).send().await.unwrap();
        assert_eq!((sent.status().as_u16(), room(&sent)), (200, left("3", "2")), "round {round}");
        messages.push(body(sent).await["choices"][0]["message"].clone());
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "sunny"}));
    }
}
