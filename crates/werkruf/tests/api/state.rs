//! The size of session states and of lists.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::service::Service;
use crate::support::{TestServer, body, refusal};

const CLARA: i64 = 3;

#[tokio::test]
async fn a_state_has_a_largest_size() {
    let server = TestServer::open_with("[limits]\nstate_bytes = 1000\n").await;
    let id = server.conversation(CLARA).await;
    let patch = async |patch: Value| {
        server.as_user(CLARA, Method::PATCH, &format!("/api/conversations/{id}/state")).json(&patch).send().await.unwrap()
    };
    let kept = json!({"note": "x".repeat(800)});
    assert_eq!(body(patch(kept.clone()).await).await, kept);
    assert_eq!(refusal(patch(json!({"more": "x".repeat(200)})).await).await, (409, "state_too_large".to_owned()));
    let state = body(server.as_user(CLARA, Method::GET, &format!("/api/conversations/{id}/state")).send().await.unwrap()).await;
    assert_eq!(state, kept, "a refused patch changes nothing");
    assert_eq!(patch(json!({"note": null, "more": "x".repeat(200)})).await.status(), 200);
}

#[tokio::test]
async fn many_patches_at_once_do_not_exceed_the_size_together() {
    let server = TestServer::open_with("[limits]\nstate_bytes = 1000\n").await;
    let id = server.conversation(CLARA).await;
    let patches = (0..20).map(|n| {
        let patch = json!({format!("field{n}"): "x".repeat(200)});
        server.as_user(CLARA, Method::PATCH, &format!("/api/conversations/{id}/state")).json(&patch).send()
    });
    let answers = futures_util::future::join_all(patches).await;
    let accepted = answers.into_iter().filter(|answer| answer.as_ref().unwrap().status() == 200).count();
    assert_eq!(accepted, 4, "each has 213 to 214 bytes");
}

#[tokio::test]
async fn a_tools_patch_that_makes_the_state_too_large_is_dropped_and_the_answer_says_so() {
    let server = TestServer::open_with("[limits]\nstate_bytes = 300\n").await;
    let id = server.conversation(CLARA).await;
    let remember = async |content: String| {
        let call = json!({"input": {"content": content}, "conversation_id": id});
        let answer = server.as_user(CLARA, Method::POST, "/api/tools/remember/invoke").json(&call).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        body(answer).await
    };
    let state = async || body(server.as_user(CLARA, Method::GET, &format!("/api/conversations/{id}/state")).send().await.unwrap()).await;
    let first = remember("A window seat, please".to_owned()).await;
    assert_eq!((&first["status"], &first["meta"]["routing"].get("state_patch_dropped")), (&json!("ok"), &None));
    let before = state().await;
    let large = remember(format!("word {}", "x".repeat(250))).await;
    assert_eq!(large["status"], "ok", "{large}");
    assert_eq!(large["meta"]["routing"], json!({"state_patch_dropped": [{"reason": "state_too_large"}]}));
    assert_eq!(state().await, before);
    // Also a copy of the call.
    let note = call("remember", json!({"content": format!("word {}", "y".repeat(250))}));
    server.model.script(vec![Reply::calls(vec![note.clone(), note])]);
    let answer = body(server.chat(CLARA, json!({"message": "Merk dir das.", "conversation_id": id})).await).await;
    let results = answer["tool_results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{answer}");
    let requests = server.model.requests();
    let told = requests
        .last()
        .unwrap()
        .messages()
        .iter()
        .filter(|message| message["content"].as_str().is_some_and(|text| text.contains("state_too_large")));
    assert_eq!(told.count(), 2, "the model learns it for both");
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn the_model_learns_that_nothing_was_kept() {
    let booked = json!({"booked": 7, "message": "Booked and noted.", "state_patch": {"booking": "x".repeat(400)}});
    let service = Service::start(&[("book", booked)]).await;
    let server = TestServer::open_with(&format!("[limits]\nstate_bytes = 300\n{}", service.tool("book", "idempotent", ""))).await;
    server.model.script(vec![Reply::calls(vec![call("book", json!({}))]), Reply::text("Booked.")]);
    let answer = body(server.chat(CLARA, json!({"message": "Book."})).await).await;
    let result = &answer["tool_results"][0];
    assert_eq!((&result["status"], &result["data"]["booked"], &answer["session_state"]), (&json!("succeeded"), &json!(7), &json!({})));
    let requests = server.model.requests();
    let told: Value = serde_json::from_str(requests[1].messages().last().unwrap()["content"].as_str().unwrap()).unwrap();
    assert!(told["warning"].as_str().unwrap().starts_with("state_too_large") && told["result"]["booked"] == 7, "{told}");
    let path = format!("/api/tool-calls/{}", result["job_id"].as_str().unwrap());
    let row = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    assert_eq!(row["meta"]["routing"], json!({"state_patch_dropped": [{"reason": "state_too_large"}]}), "{row}");
    let message = row["meta"]["message"].as_str().unwrap();
    assert!(message.starts_with("Booked and noted.\n\n") && row["meta"].get("state_patch").is_none(), "{row}");
    assert_eq!(row["response"]["message"], "Booked and noted.", "{row}");
}

#[tokio::test]
async fn a_list_of_conversations_has_no_states_and_one_conversation_has() {
    let server = TestServer::open().await;
    let id = server.conversation(CLARA).await;
    let patch = json!({"note": "kept"});
    let patched = server.as_user(CLARA, Method::PATCH, &format!("/api/conversations/{id}/state")).json(&patch).send().await.unwrap();
    assert_eq!(patched.status(), 200);
    let listed = body(server.as_user(CLARA, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!((listed["conversations"][0]["id"].as_str(), listed["conversations"][0].get("state")), (Some(id.as_str()), None));
    let one = body(server.as_user(CLARA, Method::GET, &format!("/api/conversations/{id}")).send().await.unwrap()).await;
    assert_eq!(one["state"], patch);
}

#[tokio::test]
async fn a_page_of_large_messages_ends_early_and_the_next_one_continues() {
    let server = TestServer::open().await;
    let messages: Vec<Value> = (0..12).map(|n| json!({"role": "user", "content": format!("{n} {}", "x".repeat(1 << 20))})).collect();
    let import = json!({"format": "openai", "messages": messages});
    let imported = server.as_user(CLARA, Method::POST, "/api/conversations").json(&import).send().await.unwrap();
    assert_eq!(imported.status(), 201);
    let id = body(imported).await["id"].as_str().unwrap().to_owned();
    for format in ["native", "openai"] {
        let (mut after, mut pages, mut seen) = (String::new(), 0, 0);
        loop {
            let path = format!("/api/conversations/{id}/messages?format={format}&limit=1000{after}");
            let text = server.as_user(CLARA, Method::GET, &path).send().await.unwrap().text().await.unwrap();
            assert!(text.len() < 6 << 20, "{} bytes", text.len());
            let page: Value = serde_json::from_str(&text).unwrap();
            for message in page["messages"].as_array().unwrap() {
                assert!(message["content"].as_str().unwrap().starts_with(&format!("{seen} ")));
                seen += 1;
            }
            pages += 1;
            let Some(next) = page["next_after"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!((pages, seen), (4, 12), "{format}");
    }
}
