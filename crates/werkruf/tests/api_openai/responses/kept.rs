//! What can be retrieved, by whom, and what it was made from.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::Reply;

use super::talk::{PATH, answered, ask, get, refusal};
use crate::support::{House, body};

#[tokio::test]
async fn what_is_not_ones_own_or_not_stored_is_not_there() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("a"), Reply::text("b")]);
    let kept = answered(&house, json!({"input": "x"})).await["id"].as_str().unwrap().to_owned();
    let unkept = answered(&house, json!({"input": "x", "store": false})).await["id"].as_str().unwrap().to_owned();
    assert_eq!(get(&house, 3, &kept).await.status(), 200);
    for (user, id) in [(1, kept.as_str()), (3, unkept.as_str()), (3, "resp_1"), (3, "resp_00000000000070008000000000000000")] {
        for path in [id.to_owned(), format!("{id}?stream=true"), format!("{id}/input_items")] {
            assert_eq!(refusal(get(&house, user, &path).await).await, (404, "not_found".to_owned()), "{path}");
        }
        let cancel = house.as_user(user, Method::POST, &format!("{PATH}/{id}/cancel")).send().await.unwrap();
        assert_eq!(refusal(cancel).await.0, 404);
        let gone = ask(&house, user, json!({"input": "x", "previous_response_id": id})).await;
        assert_eq!(refusal(gone).await, (404, "previous_response_not_found".to_owned()));
    }
    // A turn of another door is no response.
    let turn = body(house.chat(3, json!({"message": "x"})).await).await["turn_id"].as_str().unwrap().to_owned();
    assert_eq!(get(&house, 3, &turn).await.status(), 404);
    assert_eq!(refusal(ask(&house, 3, json!({"input": "x", "conversation": "conv_1"})).await).await.0, 404);
    assert_eq!(refusal(ask(&house, 3, json!({"model": "m"})).await).await.0, 400);
    assert_eq!(refusal(house.bare(Method::GET, &format!("{PATH}/{kept}")).send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn a_response_that_was_taken_back_is_gone_and_the_records_stay() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("a")]);
    let object = answered(&house, json!({"input": "x"})).await;
    let id = object["id"].as_str().unwrap();
    let delete = async || house.as_user(3, Method::DELETE, &format!("{PATH}/{id}")).send().await.unwrap();
    assert_eq!(body(delete().await).await, json!({"id": id, "object": "response.deleted", "deleted": true}));
    assert_eq!(delete().await.status(), 404);
    assert_eq!(get(&house, 3, id).await.status(), 404);
    let turn = house.as_user(3, Method::GET, &format!("/api/turns/{}", id.trim_start_matches("resp_"))).send().await.unwrap();
    assert_eq!(body(turn).await["message"]["content"], "a");
}

#[tokio::test]
async fn input_items_are_what_came_in() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("Bob.")]);
    let input = json!([{"role": "user", "content": "I am Bob."}, {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "input_text", "text": "Who am I?"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]}]);
    let object = answered(&house, json!({"input": input})).await;
    let id = object["id"].as_str().unwrap();
    let list = body(get(&house, 3, &format!("{id}/input_items?order=asc")).await).await;
    let roles: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(list["data"][2]["content"][1], json!({"type": "input_image", "image_url": "data:image/png;base64,AA"}));
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    let first = body(get(&house, 3, &format!("{id}/input_items?limit=1")).await).await;
    assert_eq!((&first["data"][0], &first["has_more"]), (&list["data"][2], &json!(true)), "the newest first");
    let next = body(get(&house, 3, &format!("{id}/input_items?after={}", first["last_id"].as_str().unwrap())).await).await;
    assert_eq!(next["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_the_events_no_longer_say_the_messages_do() {
    let house = House::open().await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]);
    let one = werkruf_bench::fake_model::call("test_echo", json!({"value": 1}));
    let two = werkruf_bench::fake_model::call("weather", json!({"city": "Bonn"}));
    house.model.script(vec![Reply::calls(vec![one]).with_text("First."), Reply::calls(vec![two]).with_text("Then.")]);
    let object = answered(&house, json!({"input": "x", "tools": tools})).await;
    let horizon = house.app.clock.now() + jiff::SignedDuration::from_hours(1);
    assert!(house.app.store.delete_events(horizon, None).await.unwrap().events > 0);
    let mut again = body(get(&house, 3, object["id"].as_str().unwrap()).await).await;
    // The exact spelling of the arguments is not among the messages.
    let arguments = |object: &Value| serde_json::from_str::<Value>(object["output"][2]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments(&again), arguments(&object));
    again["output"][2]["arguments"] = object["output"][2]["arguments"].clone();
    assert_eq!(again, object);
}
