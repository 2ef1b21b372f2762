//! Usage rows and their sums through the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Clock;

use crate::support::{TestServer, body, refusal};

/// A turn whose first request is refused and whose second asks for a tool that asks the model itself; and a turn whose first answer breaks off.
async fn turn(server: &TestServer) {
    let ask = call("ask_gpt", json!({"query": "Which colour has the sky?"}));
    server.model.script(vec![
        Reply::status(503).request_id("req_refused"),
        Reply::calls(vec![ask]).usage(750, 150).request_id("req_first"),
        Reply::text("Blue.").usage(100, 10).request_id("req_tool"),
        Reply::text("It is").cut_before_finish().request_id("req_cut"),
        Reply::text("It is blue.").usage(20, 3),
    ]);
    for answer in ["Blue.", "It is blue."] {
        let turn = body(server.chat(3, json!({"message": "Which colour?"})).await).await;
        assert_eq!(turn["message"]["content"], answer, "{turn}");
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn get(server: &TestServer, path: &str) -> Value {
    let response = server.operator(Method::GET, path).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    body(response).await
}

#[tokio::test]
async fn every_request_has_a_row_with_its_id_time_and_tool() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5")]).await;
    turn(&server).await;
    let list = get(&server, "/api/usage/requests").await;
    assert_eq!(list["next_after"], Value::Null);
    let mut requests = list["requests"].as_array().unwrap().clone();
    // The rows of one commit have one time; ids sort by the order of the requests.
    requests.sort_by_key(|request| request["at"].as_str().unwrap().to_owned());
    let shown = requests.iter().map(|request| {
        assert!(request["took_ms"].as_i64().unwrap() >= 0 && request["at"].is_string(), "{request}");
        ["request_id", "operation", "tool_name", "tokens_prompt", "tokens_completion", "estimated", "cost_nano_usd"]
            .map(|name| request[name].clone())
    });
    let shown: Vec<_> = shown.collect();
    assert_eq!(shown.len(), 5, "{list}");
    assert_eq!(shown[0], [json!("req_refused"), json!("chat"), Value::Null, json!(0), json!(0), json!(false), json!(0)]);
    assert_eq!(shown[1], [json!("req_first"), json!("chat"), Value::Null, json!(750), json!(150), json!(false), json!(2_437_500)]);
    assert_eq!(shown[2], [json!("req_tool"), json!("ask_gpt"), json!("ask_gpt"), json!(100), json!(10), json!(false), json!(225_000)]);
    assert_eq!((&shown[3][0], &shown[3][5]), (&json!("req_cut"), &json!(true)), "its tokens were not reported");
    assert_eq!((&shown[4][0], &shown[4][3]), (&json!("chatcmpl-fake-5"), &json!(20)), "without the header the id of the response");
    let page = get(&server, "/api/usage/requests?limit=3").await;
    assert_eq!(page["next_after"], page["requests"][2]["id"]);
    let rest = get(&server, &format!("/api/usage/requests?after={}", page["next_after"].as_str().unwrap())).await;
    assert_eq!(rest["requests"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn usage_is_summed_for_the_tenant_and_for_a_person() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5")]).await;
    turn(&server).await;
    server.model.script(vec![Reply::text("Yes.").usage(10, 1)]);
    body(server.chat(1, json!({"message": "Really?"})).await).await;
    let by_user = get(&server, "/api/usage?group_by=user").await;
    let keys: Vec<&Value> = by_user["rows"].as_array().unwrap().iter().map(|row| &row["key"]).collect();
    assert_eq!((&by_user["group_by"], keys), (&json!("user"), vec![&json!("3"), &json!("1")]), "by cost");
    let first = json!({"key": "1", "calls": 1, "tokens_prompt": 10, "tokens_cached": 0, "tokens_completion": 1, "tokens_reasoning": 0,
        "tokens_total": 11, "cost_nano_usd": 22_500, "unpriced_calls": 0, "estimated_calls": 0});
    assert_eq!(by_user["rows"][1], first);
    assert_eq!(
        (&by_user["total"]["calls"], &by_user["total"]["estimated_calls"], by_user["total"].get("key")),
        (&json!(6), &json!(1), None)
    );
    let by_tool = get(&server, "/api/usage?group_by=tool").await;
    let tools: Vec<_> = by_tool["rows"].as_array().unwrap().iter().map(|row| (row["key"].clone(), row["calls"].clone())).collect();
    assert_eq!(tools, [(Value::Null, json!(5)), (json!("ask_gpt"), json!(1))]);
    for group in ["day", "month", "model"] {
        let sums = get(&server, &format!("/api/usage?group_by={group}")).await;
        assert_eq!((&sums["total"], sums["rows"].as_array().unwrap().len()), (&by_user["total"], 1), "{sums}");
    }
    let past = get(&server, "/api/usage?from=2020-01-01&to=2020-02-01T12:00:00Z").await;
    assert_eq!((&past["from"], &past["to"], &past["rows"]), (&json!("2020-01-01"), &json!("2020-02-01T12:00:00.000Z"), &json!([])));

    let key = server.key(Some(1), &["read"]).await;
    let own = body(server.with_key(&key, Method::GET, "/api/usage?group_by=user").send().await.unwrap()).await;
    assert_eq!(own["rows"], json!([first]), "a person sees their own requests");
    let requests = server.with_key(&key, Method::GET, "/api/usage/requests").send().await.unwrap();
    assert_eq!(refusal(requests).await, (403, "forbidden".to_owned()));
    let tools = server.key(Some(1), &["tools"]).await;
    assert_eq!(refusal(server.with_key(&tools, Method::GET, "/api/usage").send().await.unwrap()).await.0, 403);
    for query in ["group_by=hour", "from=yesterday", "to=2026-13-01", "from=2026-02-01&to=2026-02-01", "from=2026-02-01T00:00:00"] {
        let refused = server.operator(Method::GET, &format!("/api/usage?{query}")).send().await.unwrap();
        assert_eq!(refusal(refused).await, (400, "invalid_request".to_owned()), "{query}");
    }
}

/// At midnight after the end of February: the first turn belongs to the new day, and `to` leaves it out.
#[tokio::test]
async fn sums_are_exact_and_the_end_is_exclusive() {
    let seconds = Arc::new(AtomicI64::new(time("2026-02-28T23:59:59Z").as_second()));
    let read = Arc::clone(&seconds);
    let clock = Clock::driven(move || Timestamp::from_second(read.load(Ordering::SeqCst)).unwrap(), 11);
    let folder = tempfile::tempdir().unwrap();
    let models = json!({"models": [
        {"model": "gpt-5", "usd_per_million": {"input": "0.0005", "output": "0"}},
        {"model": "gpt-4o", "usd_per_million": {"input": "0.0004999", "output": "123456.789"}},
    ]});
    std::fs::write(folder.path().join("prices.json"), models.to_string()).unwrap();
    let file = "prices = 'prices.json'\n[[assistants]]\nname = 'other'\nmodel = 'gpt-4o'\n[workspace]\n[ask_gpt]\n";
    let server = TestServer::open_at(file, &[("OPENAI_MODEL", "gpt-5")], folder, Some(clock)).await;
    server.model.script(vec![Reply::text("One.").usage(1, 0), Reply::text("Two.").usage(3, 0), Reply::text("Three.").usage(1, 1)]);
    body(server.chat(3, json!({"message": "one"})).await).await;
    seconds.fetch_add(1, Ordering::SeqCst);
    body(server.chat(3, json!({"message": "two"})).await).await;
    body(server.chat(1, json!({"message": "three", "assistant": "other"})).await).await;
    // 0.5 and 1.5 nano-dollars are one and two; 123,456,789.4999 are rounded down.
    let dear = 123_456_789_i64;
    let found = async |query: &str| {
        let sums = get(&server, &format!("/api/usage?{query}")).await;
        let row = |row: &Value| (row["key"].clone(), row["calls"].as_i64().unwrap(), row["cost_nano_usd"].as_i64().unwrap());
        sums["rows"].as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    let both = "from=2026-02-01&to=2026-03-02";
    let day = |day: &str, calls: i64, cost: i64| (json!(day), calls, cost);
    assert_eq!(found(&format!("group_by=day&{both}")).await, [day("2026-02-28", 1, 1), day("2026-03-01", 2, 2 + dear)]);
    assert_eq!(found(&format!("group_by=month&{both}")).await, [day("2026-02", 1, 1), day("2026-03", 2, 2 + dear)]);
    assert_eq!(found(&format!("group_by=model&{both}")).await, [day("gpt-4o", 1, dear), day("gpt-5", 2, 3)], "by cost");
    assert_eq!(found(&format!("group_by=user&{both}")).await, [day("1", 1, dear), day("3", 2, 3)]);
    assert_eq!(found(&format!("group_by=tool&{both}")).await, [(Value::Null, 3, 3 + dear)]);
    for (span, calls) in [
        ("from=2026-02-28&to=2026-03-01", 1),
        ("from=2026-03-01&to=2026-03-02", 2),
        ("from=2026-02-28T23:59:59Z&to=2026-03-01T00:00:00Z", 1),
        ("from=2026-02-28T23:59:59.001Z&to=2026-03-01T00:00:00.001Z", 2),
    ] {
        assert_eq!(get(&server, &format!("/api/usage?{span}")).await["total"]["calls"], calls, "{span}");
    }
}

/// Three days ago, in a database whose usage rows are kept for one day.
#[tokio::test]
async fn sums_outlive_the_usage_rows() {
    let past = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5"), ("WERKRUF_CLOCK_OFFSET_S", "-259200")]).await;
    turn(&past).await;
    let before = get(&past, "/api/usage?group_by=tool").await;
    let folder = tempfile::tempdir().unwrap();
    let copy = json!({"path": folder.path().join("werkruf.db")});
    assert_eq!(past.operator(Method::POST, "/api/admin/backup").json(&copy).send().await.unwrap().status(), 200);
    let server = TestServer::open_in_folder("[retention]\nusage_days = 1\n", &[("OPENAI_MODEL", "gpt-5")], folder).await;
    let deleted = body(server.operator(Method::POST, "/api/admin/retention").json(&json!({})).send().await.unwrap()).await;
    assert_eq!(deleted["usage"], 5, "{deleted}");
    assert_eq!(get(&server, "/api/usage/requests").await["requests"], json!([]));
    let after = get(&server, "/api/usage?group_by=tool").await;
    assert_eq!((&after["rows"], &after["total"]), (&before["rows"], &before["total"]));
}
