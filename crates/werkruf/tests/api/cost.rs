//! The cost of a turn, in its response and in its usage rows.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Uuid;

use crate::support::{TestServer, body};

/// The cost of a turn with two model calls: in the response, and as the sum of its usage rows.
async fn turn(server: &TestServer) -> (Value, Option<f64>) {
    let first = Reply::calls(vec![call("test_echo", json!({"value": 1}))]).usage(750, 150);
    server.model.script(vec![first, Reply::text("Done.").usage(1000, 1)]);
    let answer = body(server.chat(3, json!({"message": "once"})).await).await;
    let demo = server.app.people().tenant("demo".to_owned()).await.unwrap().unwrap().id;
    let turn_id = Uuid::parse_str(answer["turn_id"].as_str().unwrap()).unwrap();
    let recorded = server.app.store.turn_usage(demo, turn_id, werkruf_store::RequestsOf::Turn).await.unwrap();
    assert_eq!(recorded.model_calls, 2);
    (answer["usage"]["cost_usd"].clone(), recorded.cost_usd)
}

#[tokio::test]
async fn the_cost_of_a_priced_model_is_exact_to_the_nano_dollar() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5")]).await;
    assert_eq!(turn(&server).await, (json!(0.0036975), Some(0.0036975)), "0.0024375 + 0.00126");
}

#[tokio::test]
async fn the_operators_prices_are_read_on_reload() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "ours")]).await;
    assert_eq!(turn(&server).await, (Value::Null, None), "unknown, not free");
    std::fs::write(server.folder.path().join("werkruf.toml"), "prices = 'prices.json'\n").unwrap();
    let file = json!({"models": [{"model": "ours", "usd_per_million": {"input": "0.000001", "output": "1"}}]});
    std::fs::write(server.folder.path().join("prices.json"), file.to_string()).unwrap();
    server.app.reload().await.unwrap();
    assert_eq!(turn(&server).await, (json!(0.000151002), Some(0.000151002)), "0.75 and 1 nano-dollars of input are rounded per request");
}
