//! `/functions/v1/…-flight-search`: every search is a call with a row, under the rights of its caller.

use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, body};

fn search(server: &TestServer) -> Value {
    let day = (server.app.clock.now() + SignedDuration::from_hours(24 * 60)).to_string();
    json!({"origin": "FRA", "destination": "JFK", "departureDate": day[..10], "travelClass": "BUSINESS", "extra": {"debug": true}})
}

#[tokio::test]
async fn a_search_is_a_call_with_a_row() {
    let server = TestServer::open().await;
    let request = server.as_user(4, Method::POST, "/functions/v1/seatsaero-flight-search").json(&search(&server));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let id = response.headers()["x-tool-call-id"].to_str().unwrap().to_owned();
    let answer = body(response).await;
    assert_eq!((&answer["success"], &answer["sandbox"]), (&json!(true), &json!(true)), "{answer}");
    assert!(answer["results"]["flights"].as_array().is_some_and(|flights| !flights.is_empty()), "{answer}");
    let row = body(server.as_user(4, Method::GET, &format!("/api/tool-calls/{id}")).send().await.unwrap()).await;
    assert_eq!((&row["tool_name"], &row["status"]), (&json!("seatsaero_flight_search"), &json!("succeeded")), "{row}");
}

#[tokio::test]
async fn a_failed_search_has_the_format_of_the_seed_and_a_row_too() {
    let server = TestServer::open().await;
    let post = async |path: &str, body: String| {
        let request = server.as_user(4, Method::POST, path).header("content-type", "application/json").body(body);
        request.send().await.unwrap()
    };
    let missing = post("/functions/v1/seatsaero-flight-search", json!({"origin": "FRA"}).to_string()).await;
    assert_eq!(missing.status(), 400);
    let missing = body(missing).await;
    assert_eq!((&missing["success"], &missing["error"]["code"]), (&json!(false), &json!("invalid_arguments")), "{missing}");
    let unset = post("/functions/v1/amadeus-flight-search", search(&server).to_string()).await;
    assert_eq!(unset.status(), 502);
    let unset = body(unset).await;
    assert_eq!((&unset["success"], &unset["error"]["code"]), (&json!(false), &json!("not_configured")), "{unset}");
    let broken = post("/functions/v1/seatsaero-flight-search", "{".to_owned()).await;
    assert_eq!(broken.status(), 400);
    assert_eq!(body(broken).await["error"]["code"], "invalid_request");
    let calls = body(server.as_user(4, Method::GET, "/api/tool-calls").send().await.unwrap()).await;
    let failed: Vec<(&str, &str)> = calls["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["tool_name"].as_str().unwrap(), call["status"].as_str().unwrap()))
        .collect();
    assert_eq!(failed, [("seatsaero_flight_search", "failed"), ("amadeus_flight_search", "failed")]);
}

#[tokio::test]
async fn a_body_that_was_not_read_keeps_the_status_of_its_error() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", "65536")]).await;
    let key = server.key(Some(4), &["tools"]).await;
    let request = server.with_key(&key, Method::POST, "/functions/v1/seatsaero-flight-search").body(" ".repeat(100_000));
    let refused = request.send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    let error = json!({"type": "RETRYABLE", "code": "memory_busy", "message": "Other requests take the server's memory; try again."});
    assert_eq!(body(refused).await, json!({"success": false, "error": error}));
}

#[tokio::test]
async fn a_repeated_search_is_replayed_and_a_refused_one_has_the_format_of_the_seed() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "1")]).await;
    let key = server.key(Some(4), &["tools"]).await;
    let path = "/functions/v1/seatsaero-flight-search";
    let send = async |idempotency: &'static str, body: &Value| {
        server.with_key(&key, Method::POST, path).header("idempotency-key", idempotency).json(body).send().await.unwrap()
    };
    let first = send("one", &search(&server)).await;
    assert_eq!((first.status().as_u16(), first.headers().get("idempotent-replayed")), (200, None));
    let id = first.headers()["x-tool-call-id"].clone();
    let again = send("one", &search(&server)).await;
    assert_eq!(
        (again.status().as_u16(), &again.headers()["idempotent-replayed"], &again.headers()["x-tool-call-id"]),
        (200, &"true".parse().unwrap(), &id)
    );
    assert_eq!(body(again).await, body(first).await);
    let other = send("one", &json!({"origin": "MUC"})).await;
    assert_eq!(other.status(), 422);
    let other = body(other).await;
    assert_eq!((&other["success"], &other["error"]["code"]), (&json!(false), &json!("idempotency_key_reused")), "{other}");
    let refused = send("two", &search(&server)).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let refused = body(refused).await;
    assert_eq!((&refused["success"], &refused["error"]["type"]), (&json!(false), &json!("RATE_LIMIT")), "{refused}");
}

#[tokio::test]
async fn what_counts_for_the_flight_search_counts_for_the_functions() {
    let server = TestServer::open_with("[safety.no_flights]\ntools_denied = ['search_flights']\n").await;
    let request = server.as_user(4, Method::POST, "/functions/v1/seatsaero-flight-search").header("x-safety-mode", "no_flights");
    let denied = request.json(&search(&server)).send().await.unwrap();
    assert_eq!(denied.status(), 403);
    assert_eq!(body(denied).await["error"]["code"], "permission_denied");
    let tools = body(server.operator(Method::GET, "/api/tools").send().await.unwrap()).await.to_string();
    assert!(tools.contains("search_flights") && !tools.contains("seatsaero_flight_search"), "no list shows the other form");
    let off = TestServer::open_with("disabled_tools = ['search_flights']\n").await;
    let request = off.as_user(4, Method::POST, "/functions/v1/seatsaero-flight-search").json(&search(&off));
    assert_eq!(request.send().await.unwrap().status(), 404);
}
