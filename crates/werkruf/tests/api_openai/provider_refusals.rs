//! What a model's server refuses keeps its meaning.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::client::{CLARA, completion, user};
use crate::responses::client::streamed;
use crate::support::{TestServer, body, refusal};

struct Case {
    reply: Reply,
    status: u16,
    code: &'static str,
    /// Without the provider's text.
    english: &'static str,
    german: &'static str,
    says: &'static str,
}

fn cases() -> Vec<Case> {
    let long = "This model's maximum context length is 8192 tokens.";
    let picture = "You uploaded an unsupported image.";
    vec![
        Case {
            reply: Reply::status(400).code("context_length_exceeded").message(long),
            status: 400,
            code: "context_length_exceeded",
            english: "This conversation is longer than the language model can read.",
            german: "Dieses Gespräch ist länger, als das Sprachmodell lesen kann.",
            says: long,
        },
        Case {
            reply: Reply::status(400).code("invalid_image_format").message(picture),
            status: 400,
            code: "invalid_image",
            english: "The language model cannot use a picture of this message.",
            german: "Das Sprachmodell kann ein Bild dieser Nachricht nicht verwenden.",
            says: picture,
        },
        Case {
            reply: Reply::status(404).message("The model `fake-1` does not exist."),
            status: 400,
            code: "model_not_found",
            english: "The server of the language model does not know the model.",
            german: "Der Server des Sprachmodells kennt das Modell nicht.",
            says: "The model `fake-1` does not exist.",
        },
        Case {
            reply: Reply::status(422).message("No such parameter; the key was secret-model-key-0815."),
            status: 400,
            code: "model_refused",
            english: "The language model refused the request.",
            german: "Das Sprachmodell hat die Anfrage abgelehnt.",
            says: "No such parameter; the key was [redacted].",
        },
        Case {
            reply: Reply::status(413).message("x"),
            status: 400,
            code: "model_refused",
            english: "The language model refused the request.",
            german: "Das Sprachmodell hat die Anfrage abgelehnt.",
            says: "x",
        },
        Case {
            reply: Reply::status(401).message("Incorrect API key provided: sk-1***2."),
            status: 502,
            code: "model_credentials",
            english: "The language model does not accept this server's key.",
            german: "Das Sprachmodell nimmt den Schlüssel dieses Servers nicht an.",
            says: "",
        },
    ]
}

#[tokio::test]
async fn a_refusal_of_the_provider_is_sent_once_and_keeps_its_meaning() {
    let server = TestServer::open_in("", &[("OPENAI_API_KEY", "secret-model-key-0815"), ("OPENAI_EMBEDDING_MODEL", "e")]).await;
    for Case { reply, status, code, english, german, says } in cases() {
        let with_text = |sentence: &str| format!("{sentence} {says}").trim().to_owned();
        // The question is German; programs get English all the same.
        let requests = [
            ("/v1/chat/completions", json!({"messages": [user("Welche Aufgaben habe ich heute?")]}), english),
            ("/v1/chat/completions", json!({"messages": [user("Welche Aufgaben habe ich heute?")], "stream": true}), english),
            ("/v1/responses", json!({"input": "Welche Aufgaben habe ich heute?"}), english),
            ("/v1/responses", json!({"input": "Welche Aufgaben habe ich heute?", "stream": true}), english),
            ("/v1/responses/compact", json!({"model": "m", "input": "Welche Aufgaben habe ich heute?"}), english),
            ("/v1/embeddings", json!({"input": "Welche Aufgaben habe ich heute?"}), english),
            ("/api/chat", json!({"message": "Welche Aufgaben habe ich heute?"}), german),
        ];
        for (path, request, sentence) in requests {
            let sent_before = server.model.requests().len();
            server.model.script(vec![reply.clone()]);
            let sent = server.as_user(CLARA, Method::POST, path).header("accept", "application/json").json(&request).send().await.unwrap();
            assert_eq!(sent.status().as_u16(), status, "{path} {code}");
            let should_retry = sent.headers().get("x-should-retry").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(should_retry.as_deref(), (status == 502).then_some("false"), "{path} {code}");
            let error = body(sent).await["error"].clone();
            assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(with_text(sentence))), "{path}");
            let kind = match (path, status) {
                ("/api/chat", 400) => "VALIDATION",
                ("/api/chat", _) => "UPSTREAM",
                (_, 400) => "invalid_request_error",
                _ => "server_error",
            };
            assert_eq!(error["type"], kind, "{path} {code}");
            assert_eq!(server.model.requests().len(), sent_before + 1, "{path} {code}: sent once");
        }
    }
}

#[tokio::test]
async fn a_refusal_inside_a_stream_is_an_event() {
    let server = TestServer::open().await;
    let refused = Reply::status(400).code("context_length_exceeded").message("too long");
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), refused]);
    let request = json!({"input": "hi", "stream": true});
    let streamed = server.as_user(CLARA, Method::POST, "/v1/responses").json(&request).send().await.unwrap();
    assert_eq!(streamed.status(), 200);
    let text = streamed.text().await.unwrap();
    let data: Vec<Value> =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|line| serde_json::from_str(line).unwrap()).collect();
    let [.., error, failed] = data.as_slice() else { panic!("{data:?}") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("context_length_exceeded")));
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!((&failed["type"], &failed["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(failed["response"]["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn a_refusal_that_comes_late_is_an_event_and_the_stream_begins_without_it() {
    let server = TestServer::open().await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::status(400).message("no").gate(gate.clone())]);
    // The stream begins although the model has not answered yet.
    let mut streamed = streamed(&server, json!({"input": "hi"})).await;
    assert_eq!(streamed.next().await.unwrap().name, "response.created");
    gate.open();
    let names: Vec<String> = streamed.rest().await.into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["response.in_progress", "error", "response.failed"]);
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_refusal() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::status(400).message("no")]);
    for replayed in [false, true] {
        let request = server.as_user(CLARA, Method::POST, "/v1/responses").header("idempotency-key", "k");
        let answer = request.json(&json!({"input": "hi", "stream": true})).send().await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        assert_eq!(refusal(answer).await, (400, "model_refused".to_owned()));
    }
}

#[tokio::test]
async fn texts_for_the_user_follow_the_conversation() {
    let server = TestServer::open_in("", &[("WERKRUF_MODEL", "offline")]).await;
    let answered = completion(&server).json(&json!({"messages": [user("Wer bin ich?")]})).send().await.unwrap();
    let content = body(answered).await["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(content.contains("Offline-Planer"), "{content}");
}
