//! Results that are too large for the model: it gets the beginning, and reads on with `read_result`.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::service::Service;
use crate::support::{TestServer, body, refusal};

/// A tool with a result of 200 kB that strangers may have written, one with a small result, and one that happens once.
async fn server(assistant: &str) -> (TestServer, Service) {
    let text: String = (0..20_000).map(|n| format!("{n:09}\n")).collect();
    let bodies = [("web", json!({"text": text})), ("small", json!({"text": "x".repeat(3000)})), ("pay", json!({"paid": true}))];
    let service = Service::start(&bodies).await;
    let tools = [service.tool("web", "read", "trust = 'untrusted'"), service.tool("small", "read", ""), service.tool("pay", "once", "")];
    let file = format!("[[assistants]]\nname = 'default'\n{assistant}\n{}", tools.concat());
    (TestServer::open_with(&file).await, service)
}

fn read(job_id: &Value, offset: &Value) -> Reply {
    Reply::calls(vec![call("read_result", json!({"job_id": job_id, "offset": offset}))])
}

/// The tools that the model was offered in a request, and what its last tool message says.
fn seen(request: &Value) -> (Vec<String>, String) {
    let names = request["tools"].as_array().into_iter().flatten().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    let last = request["messages"].as_array().unwrap().iter().rev().find(|message| message["role"] == "tool");
    (names.collect(), last.map(|message| message["content"].as_str().unwrap().to_owned()).unwrap_or_default())
}

async fn say(server: &TestServer, conversation: &Value, text: &str) -> Value {
    let mut request = json!({"message": text});
    if !conversation.is_null() {
        request["conversation_id"] = conversation.clone();
    }
    body(server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").json(&request).send().await.unwrap()).await
}

#[tokio::test]
async fn a_large_result_is_read_in_parts_that_fit_the_window() {
    // The assistant names its tools; read_result is offered only when there is something to read on.
    let (server, _service) = server("tools = ['web', 'small']\ncontext_tokens = 2000").await;
    server.model.script(vec![Reply::calls(vec![call("web", json!({}))]), Reply::text("Long.")]);
    let first = say(&server, &Value::Null, "Look it up.").await;
    let conversation = first["conversation_id"].clone();
    let whole = first["tool_results"][0]["data"].to_string();
    assert!(whole.len() > 200_000, "the client gets the whole result");
    let requests = server.model.requests();
    assert_eq!(seen(&requests[0].body).0, ["web", "small"]);
    let (tools, shown) = seen(&requests[1].body);
    assert_eq!(tools, ["web", "small", "read_result"]);
    assert!(shown.len() < 1400, "{} bytes", shown.len());
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let job_id = first["tool_results"][0]["job_id"].clone();
    assert_eq!((&shown["truncated"], &shown["bytes"], &shown["job_id"]), (&json!(true), &json!(whole.len()), &job_id));

    // A later turn reads on, in a part that fits.
    let beginning = shown["beginning"].as_str().unwrap();
    assert_eq!((&shown["next_offset"], &whole[..beginning.len()]), (&json!(beginning.len()), beginning));
    server.model.script(vec![read(&job_id, &shown["next_offset"]), Reply::text("Read.")]);
    say(&server, &conversation, "Go on.").await;
    let (_, part) = seen(&server.model.requests().last().unwrap().body);
    assert!((3000..=4000).contains(&part.len()), "{} bytes", part.len());
    let part: Value = serde_json::from_str(&part).unwrap();
    assert_eq!((&part["offset"], &part["bytes"], &part["tool"]), (&shown["next_offset"], &json!(whole.len()), &json!("web")));

    // Programs read it to the last byte.
    let (mut offset, mut text) = (json!(0), String::new());
    while !offset.is_null() {
        let input = json!({"input": {"job_id": job_id, "offset": offset}, "conversation_id": conversation});
        let part = body(server.as_user(3, Method::POST, "/api/tools/read_result/invoke").json(&input).send().await.unwrap()).await;
        text.push_str(part["data"]["text"].as_str().unwrap());
        offset = part["data"]["next_offset"].clone();
    }
    assert_eq!(text, whole);
}

#[tokio::test]
async fn without_a_window_results_up_to_32_kib_are_whole() {
    let (server, _service) = server("").await;
    server.model.script(vec![Reply::calls(vec![call("small", json!({})), call("web", json!({}))]), Reply::text("Done.")]);
    say(&server, &Value::Null, "Both.").await;
    let requests = server.model.requests();
    assert!(!seen(&requests[0].body).0.contains(&"read_result".to_owned()), "nothing to read on");
    let contents: Vec<usize> = requests[1].body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap().len())
        .collect();
    assert!(contents[0] > 3000 && (8000..8600).contains(&contents[1]), "{contents:?}");
    assert!(seen(&requests[1].body).0.contains(&"read_result".to_owned()));
    let listed = body(server.operator(Method::GET, "/api/tools").send().await.unwrap()).await;
    let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "read_result").unwrap().clone();
    assert_eq!((&tool["effect"], &tool["trust"]), (&json!("read"), &json!("trusted")));
}

#[tokio::test]
async fn a_result_is_read_in_its_own_conversation_and_keeps_its_taint() {
    let (server, service) = server("").await;
    server.model.script(vec![Reply::calls(vec![call("web", json!({}))]), Reply::text("Long.")]);
    let first = say(&server, &Value::Null, "Look it up.").await;
    let (conversation, job_id) = (first["conversation_id"].clone(), first["tool_results"][0]["job_id"].clone());
    let own = server.conversation(3).await;
    let foreign = server.conversation(4).await;
    let invoke = async |user: i64, conversation: Value| {
        let call = json!({"input": {"job_id": job_id}, "conversation_id": conversation});
        body(server.as_user(user, Method::POST, "/api/tools/read_result/invoke").json(&call).send().await.unwrap()).await
    };
    for (user, conversation) in [(3, json!(own)), (4, json!(foreign)), (3, Value::Null)] {
        let refused = invoke(user, conversation).await;
        assert_eq!((&refused["status"], &refused["error"]["code"]), (&json!("error"), &json!("invalid_arguments")), "{refused}");
    }
    let stranger = server.key(Some(4), &["tools", "chat"]).await;
    let input = json!({"input": {"job_id": job_id}, "conversation_id": conversation});
    let strange = server.with_key(&stranger, Method::POST, "/api/tools/read_result/invoke").json(&input).send().await.unwrap();
    assert_eq!(refusal(strange).await, (404, "not_found".to_owned()), "another person's conversation");
    let read_again = invoke(3, conversation.clone()).await;
    assert_eq!((&read_again["status"], &read_again["data"]["offset"]), (&json!("ok"), &json!(0)));
    assert_eq!(read_again["meta"]["routing"]["untrusted"], true, "{}", read_again["meta"]);

    // Whoever read a part of it needs an approval for a call with consequences.
    server.model.script(vec![read(&job_id, &json!(9000)), Reply::calls(vec![call("pay", json!({}))])]);
    let waiting = say(&server, &conversation, "Read on and pay.").await;
    assert!(waiting["approval_id"].is_string() && service.received("pay") == 0, "{waiting}");
    let path = format!("/api/approvals/{}", waiting["approval_id"].as_str().unwrap());
    let approval = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    let sources: Vec<&str> = approval["taint"].as_array().unwrap().iter().map(|source| source["tool"].as_str().unwrap()).collect();
    assert_eq!(sources, ["web", "read_result"]);
}
