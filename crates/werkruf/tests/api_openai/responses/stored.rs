//! Stored responses: who can retrieve them, and their input items.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::Reply;

use super::client::{PATH, answered, get, refusal, send};
use crate::support::{TestServer, body};

#[tokio::test]
async fn responses_of_others_and_unstored_ones_are_not_found() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("a"), Reply::text("b")]);
    let stored = answered(&server, json!({"input": "x"})).await["id"].as_str().unwrap().to_owned();
    let unstored = answered(&server, json!({"input": "x", "store": false})).await["id"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, 3, &stored).await.status(), 200);
    for (user, id) in [(1, stored.as_str()), (3, unstored.as_str()), (3, "resp_1"), (3, "resp_00000000000070008000000000000000")] {
        for path in [id.to_owned(), format!("{id}?stream=true"), format!("{id}/input_items")] {
            assert_eq!(refusal(get(&server, user, &path).await).await, (404, "not_found".to_owned()), "{path}");
        }
        let cancel = server.as_user(user, Method::POST, &format!("{PATH}/{id}/cancel")).send().await.unwrap();
        assert_eq!(refusal(cancel).await.0, 404);
        let previous = send(&server, user, json!({"input": "x", "previous_response_id": id})).await;
        assert_eq!(refusal(previous).await, (404, "previous_response_not_found".to_owned()));
    }
    // A turn of another endpoint is not a response.
    let turn = body(server.chat(3, json!({"message": "x"})).await).await["turn_id"].as_str().unwrap().to_owned();
    assert_eq!(get(&server, 3, &turn).await.status(), 404);
    assert_eq!(refusal(send(&server, 3, json!({"input": "x", "conversation": "conv_1"})).await).await.0, 404);
    assert_eq!(refusal(send(&server, 3, json!({"model": "m"})).await).await.0, 400);
    assert_eq!(refusal(server.bare(Method::GET, &format!("{PATH}/{stored}")).send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn a_deleted_response_is_not_found_but_its_turn_stays() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("a")]);
    let object = answered(&server, json!({"input": "x"})).await;
    let id = object["id"].as_str().unwrap();
    let delete = async || server.as_user(3, Method::DELETE, &format!("{PATH}/{id}")).send().await.unwrap();
    assert_eq!(body(delete().await).await, json!({"id": id, "object": "response.deleted", "deleted": true}));
    assert_eq!(delete().await.status(), 404);
    assert_eq!(get(&server, 3, id).await.status(), 404);
    let turn = server.as_user(3, Method::GET, &format!("/api/turns/{}", id.trim_start_matches("resp_"))).send().await.unwrap();
    assert_eq!(body(turn).await["message"]["content"], "a");
}

#[tokio::test]
async fn input_items_are_the_sent_items() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Bob.")]);
    let input = json!([{"role": "user", "content": "I am Bob."}, {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "input_text", "text": "Who am I?"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]}]);
    let object = answered(&server, json!({"input": input})).await;
    let id = object["id"].as_str().unwrap();
    let list = body(get(&server, 3, &format!("{id}/input_items?order=asc")).await).await;
    let roles: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(list["data"][2]["content"][1], json!({"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}));
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    let first = body(get(&server, 3, &format!("{id}/input_items?limit=1")).await).await;
    assert_eq!((&first["data"][0], &first["has_more"]), (&list["data"][2], &json!(true)), "the newest first");
    let next = body(get(&server, 3, &format!("{id}/input_items?after={}", first["last_id"].as_str().unwrap())).await).await;
    assert_eq!(next["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn without_events_a_response_is_rebuilt_from_messages() {
    let server = TestServer::open().await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]);
    let one = werkruf_bench::fake_model::call("test_echo", json!({"value": 1}));
    let two = werkruf_bench::fake_model::call("weather", json!({"city": "Bonn"}));
    server.model.script(vec![Reply::calls(vec![one]).with_text("First."), Reply::calls(vec![two]).with_text("Then.")]);
    let object = answered(&server, json!({"input": "x", "tools": tools})).await;
    let horizon = server.app.clock.now() + jiff::SignedDuration::from_hours(1);
    assert!(server.delete_events(horizon).await > 0);
    let mut again = body(get(&server, 3, object["id"].as_str().unwrap()).await).await;
    // Messages do not have the exact text of the arguments.
    let arguments = |object: &Value| serde_json::from_str::<Value>(object["output"][2]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments(&again), arguments(&object));
    again["output"][2]["arguments"] = object["output"][2]["arguments"].clone();
    assert_eq!(again, object);
}
