//! Clients that leave their streams: the turn stops after two seconds, unless something else needs it.

use std::sync::Arc;

use axum::Router;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::client::{CLARA, completion, user};
use crate::responses::client::{get, resumed, send, streamed};
use crate::support::{Stream, TestServer, body};

/// Reads until this text has come. The client leaves when the response is dropped.
async fn read_until(response: &mut Response, part: &str) -> String {
    let mut text = String::new();
    while !text.contains(part) {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().expect("more of the stream")).unwrap());
    }
    text
}

fn id_in(text: &str, prefix: &str) -> String {
    let at = text.find(prefix).unwrap() + prefix.len();
    text[at..at + 32].to_owned()
}

/// The turn once it has ended.
async fn ended(server: &TestServer, turn: &str) -> Value {
    loop {
        let turn = body(server.as_user(CLARA, Method::GET, &format!("/api/turns/{turn}")).send().await.unwrap()).await;
        if ["completed", "failed", "canceled"].contains(&turn["status"].as_str().unwrap()) {
            return turn;
        }
    }
}

async fn messages(server: &TestServer, turn: &Value) -> Vec<(String, String)> {
    let path = format!("/api/conversations/{}/messages", turn["conversation_id"].as_str().unwrap());
    let found = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
    let text = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
    found["messages"].as_array().unwrap().iter().map(|message| (text(message, "role"), text(message, "content"))).collect()
}

/// Starts a streamed completion and leaves it in the middle of its text. Returns the turn's id.
async fn left_completion(server: &TestServer) -> String {
    let request = json!({"messages": [user("hi")], "stream": true});
    let mut response = completion(server).json(&request).send().await.unwrap();
    let text = read_until(&mut response, "Good ").await;
    id_in(&text, "chatcmpl-")
}

fn held(gate: &Gate) -> Reply {
    Reply::text("Good morning to you.").gate(gate.clone())
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_turn_and_what_was_said_is_kept_and_billed() {
    let server = TestServer::open().await;
    let gate = Gate::after(1);
    server.model.script(vec![held(&gate), held(&gate), Reply::text("Welcome back.")]);
    let chat = left_completion(&server).await;
    let mut response = send(&server, CLARA, json!({"input": "hi", "stream": true})).await;
    let text = read_until(&mut response, "response.in_progress").await;
    let id = format!("resp_{}", id_in(&text, "resp_"));
    drop(response);
    for turn in [chat.as_str(), &id[5..]] {
        let turn = ended(&server, turn).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("canceled"), &json!("canceled")));
        let kept = [("user", "hi"), ("assistant", "Good ")].map(|(role, text)| (role.to_owned(), text.to_owned()));
        assert_eq!(messages(&server, &turn).await, kept);
    }
    server.model.quiet().await;
    let object = body(get(&server, CLARA, &id).await).await;
    assert_eq!((&object["status"], &object["output"][0]["content"][0]["text"]), (&json!("cancelled"), &json!("Good ")));
    assert_eq!(object["output"][0]["status"], "incomplete", "the message agrees with its response");
    assert!(object["usage"]["total_tokens"].as_u64().unwrap() > 0, "{object}");
    let events = resumed(&server, &id, 1).await.rest().await;
    let done = events.iter().find(|event| event.name == "response.output_item.done").unwrap();
    assert_eq!((&done.data["item"], &events.last().unwrap().data["response"]), (&object["output"][0], &object));
    let usage = body(server.operator(Method::GET, "/api/usage?group_by=model").send().await.unwrap()).await;
    assert_eq!((&usage["total"]["calls"], &usage["total"]["estimated_calls"]), (&json!(2), &json!(2)), "{usage}");
    // The conversation continues after what was said.
    let next = server.as_user(CLARA, Method::POST, "/v1/responses").json(&json!({"input": "and?", "previous_response_id": id}));
    assert_eq!(next.send().await.unwrap().status(), 200);
    let request = server.model.requests().pop().unwrap();
    let sent: Vec<&Value> = request.messages().iter().skip(1).map(|message| &message["content"]).collect();
    assert_eq!(sent, ["hi", "Good ", "and?"]);
}

#[tokio::test]
async fn what_is_kept_of_an_answer_after_a_search_is_marked_as_read_from_strangers() {
    let server = TestServer::open_with("[model]\napi = 'responses'\n").await;
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}});
    let gate = Gate::after(3);
    server.model.script(vec![Reply::text("Good morning to you.").runs(search).gate(gate.clone())]);
    let turn = ended(&server, &left_completion(&server).await).await;
    let path = format!("/api/conversations/{}/messages", turn["conversation_id"].as_str().unwrap());
    let found = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
    let path = format!("/api/tool-calls?conversation_id={}", turn["conversation_id"].as_str().unwrap());
    let calls = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    let read = json!([{"tool": "web_search_call", "job_id": calls["tool_calls"][0]["id"]}]);
    let kept = &found["messages"][1];
    assert_eq!((&kept["content"], &kept["metadata"]), (&json!("Good "), &json!({"canceled": true, "untrusted": read})), "{kept}");
}

#[tokio::test]
async fn a_turn_goes_on_where_something_else_needs_it() {
    let server = TestServer::open().await;
    let gate = Gate::after(1);
    server.model.script_fn({
        let gate = gate.clone();
        move |_| held(&gate)
    });
    let mut going_on = Vec::new();
    // A request that may be sent again.
    let request = json!({"messages": [user("hi")], "stream": true});
    let mut keyed = completion(&server).header("idempotency-key", "k1").json(&request).send().await.unwrap();
    going_on.push(id_in(&read_until(&mut keyed, "Good ").await, "chatcmpl-"));
    drop(keyed);
    // A request in the background.
    let mut background = send(&server, CLARA, json!({"input": "hi", "stream": true, "background": true})).await;
    going_on.push(id_in(&read_until(&mut background, "response.in_progress").await, "resp_"));
    drop(background);
    // Another reader: of the response, and of the conversation.
    let mut readers = Vec::new();
    for whole in [false, true] {
        let mut read = send(&server, CLARA, json!({"input": "hi", "stream": true})).await;
        let conversation = read.headers()["x-conversation-id"].to_str().unwrap().to_owned();
        let turn = id_in(&read_until(&mut read, "response.in_progress").await, "resp_");
        let path =
            if whole { format!("/api/conversations/{conversation}/events") } else { format!("/v1/responses/resp_{turn}?stream=true") };
        let reader = server.as_user(CLARA, Method::GET, &path).header("accept", "text/event-stream").send().await.unwrap();
        readers.push(Stream::new(reader));
        going_on.push(turn);
        drop(read);
    }
    // The native API.
    let mut native = server.stream(CLARA, json!({"message": "hi"})).await;
    let first = native.until("assistant_token").await;
    going_on.push(first[0].data["turn_id"].as_str().unwrap().to_owned());
    drop(native);
    // The last to leave is the first that may be stopped: when it is, the others were left for longer.
    let stopped = left_completion(&server).await;
    assert_eq!(ended(&server, &stopped).await["status"], "canceled");
    gate.open();
    for turn in going_on {
        let turn = ended(&server, &turn).await;
        assert_eq!((&turn["status"], &turn["message"]["content"]), (&json!("completed"), &json!("Good morning to you.")));
    }
    drop(readers);
}

#[tokio::test]
async fn the_operator_may_let_turns_finish() {
    let server = TestServer::open_in("[openai]\non_disconnect = 'finish'\n", &[]).await;
    let canceling = TestServer::open().await;
    let gate = Gate::after(1);
    for server in [&server, &canceling] {
        server.model.script(vec![held(&gate)]);
    }
    let turn = left_completion(&server).await;
    let stopped = left_completion(&canceling).await;
    assert_eq!(ended(&canceling, &stopped).await["status"], "canceled");
    gate.open();
    assert_eq!(ended(&server, &turn).await["status"], "completed");
}

/// A service that answers when the test lets it.
struct Holding {
    url: String,
    arrived: Arc<Notify>,
    released: Arc<Semaphore>,
}

impl Holding {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    async fn start() -> Self {
        let (arrived, released) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (noted, waited) = (Arc::clone(&arrived), Arc::clone(&released));
        let handler = move || {
            let (noted, waited) = (Arc::clone(&noted), Arc::clone(&waited));
            async move {
                noted.notify_one();
                waited.acquire().await.unwrap().forget();
                axum::Json(json!({"done": true}))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
        Self { url, arrived, released }
    }

    fn tool(&self, name: &str, effect: &str) -> String {
        format!(
            "[[tools]]\nname = '{name}'\ndescription = 'Does {name}.'\nurl = '{}'\neffect = '{effect}'\npermission = 'none'\ntimeout_ms = 30000\n\
             parameters = '{{\"type\": \"object\"}}'\n",
            self.url
        )
    }
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_ends_first() {
    let service = Holding::start().await;
    let file = service.tool("book", "once") + &service.tool("look", "read");
    let server = TestServer::open_in(&file, &[]).await;
    server.model.script_fn(|request| match request.user_text() {
        "book" => Reply::calls(vec![call("book", json!({}))]).with_text("Wait. "),
        _ => Reply::calls(vec![call("look", json!({}))]).with_text("Wait. "),
    });
    let mut turns = Vec::new();
    for text in ["book", "look"] {
        let mut response = completion(&server).json(&json!({"messages": [user(text)], "stream": true})).send().await.unwrap();
        turns.push(id_in(&read_until(&mut response, "Wait. ").await, "chatcmpl-"));
        service.arrived.notified().await;
    }
    // The read is stopped at once; the booking was left before it, and goes on.
    let looked = ended(&server, &turns[1]).await;
    assert_eq!(looked["status"], "canceled");
    let booking = body(server.as_user(CLARA, Method::GET, &format!("/api/turns/{}", turns[0])).send().await.unwrap()).await;
    assert_eq!(booking["status"], "acting");
    service.released.add_permits(8);
    let booked = ended(&server, &turns[0]).await;
    assert_eq!(booked["status"], "canceled");
    let calls = async |turn: &Value| {
        let path = format!("/api/tool-calls?conversation_id={}", turn["conversation_id"].as_str().unwrap());
        let found = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
        let call = found["tool_calls"][0].clone();
        (call["tool_name"].as_str().unwrap_or_default().to_owned(), call["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(calls(&booked).await.1, "succeeded");
    assert_eq!(calls(&looked).await.1, "canceled");
    assert_eq!(server.model.requests().len(), 2, "no model is asked for a client that is gone");
}

#[tokio::test]
async fn a_turn_that_waits_in_the_queue_ends_when_its_client_leaves() {
    let server = TestServer::open().await;
    let gate = Gate::after(1);
    server.model.script(vec![held(&gate)]);
    let request = json!({"messages": [user("hi")], "stream": true});
    let mut first = completion(&server).header("idempotency-key", "k1").json(&request).send().await.unwrap();
    let conversation = first.headers()["x-conversation-id"].to_str().unwrap().to_owned();
    let running = id_in(&read_until(&mut first, "Good ").await, "chatcmpl-");
    let second = streamed(&server, json!({"input": "and?", "conversation": conversation})).await;
    let mut second = second.response;
    let waiting = id_in(&read_until(&mut second, "response.in_progress").await, "resp_");
    drop(second);
    assert_eq!(ended(&server, &waiting).await["status"], "canceled");
    gate.open();
    assert_eq!(ended(&server, &running).await["status"], "completed");
    assert_eq!(server.model.requests().len(), 1);
}
