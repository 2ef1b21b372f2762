//! What a turn costs, in its answer and in its rows.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Uuid;

use crate::support::{House, body};

/// The answer to a turn with two requests, and what the rows of the turn add up to.
async fn turn(house: &House) -> (Value, Option<f64>) {
    let first = Reply::calls(vec![call("test_echo", json!({"value": 1}))]).usage(750, 150);
    house.model.script(vec![first, Reply::text("Done.").usage(1000, 1)]);
    let answer = body(house.chat(3, json!({"message": "once"})).await).await;
    let demo = house.app.people().tenant("demo".to_owned()).await.unwrap().unwrap().id;
    let turn_id = Uuid::parse_str(answer["turn_id"].as_str().unwrap()).unwrap();
    let booked = house.app.turns().turn_usage(demo, turn_id).await.unwrap();
    assert_eq!(booked.model_calls, 2);
    (answer["usage"]["cost_usd"].clone(), booked.cost_usd)
}

#[tokio::test]
async fn a_priced_model_is_booked_to_the_nano_dollar() {
    let house = House::open_in("", &[("OPENAI_MODEL", "gpt-5")]).await;
    assert_eq!(turn(&house).await, (json!(0.0036975), Some(0.0036975)), "0.0024375 + 0.00126");
}

#[tokio::test]
async fn an_operators_price_comes_with_a_reload() {
    let house = House::open_in("", &[("OPENAI_MODEL", "ours")]).await;
    assert_eq!(turn(&house).await, (Value::Null, None), "unknown, not free");
    std::fs::write(house.folder.path().join("werkruf.toml"), "prices = 'prices.json'\n").unwrap();
    let file = json!({"models": [{"model": "ours", "usd_per_million": {"input": "0.000001", "output": "1"}}]});
    std::fs::write(house.folder.path().join("prices.json"), file.to_string()).unwrap();
    house.app.reload().await.unwrap();
    assert_eq!(turn(&house).await, (json!(0.000151002), Some(0.000151002)), "0.75 and 1 nano-dollars of input are rounded per request");
}
