//! Configured secrets are redacted in what tools return.

use reqwest::Method;
use serde_json::json;
use werkruf_bench::fake_model::{Reply, call};

use crate::service::Service;
use crate::support::{ADMIN, TestServer, body};

const TOKEN: &str = "crm/token+0123-45_67.89";
/// The same in Base64 and in addresses.
const FORMS: [&str; 5] = [
    TOKEN,
    "Y3JtL3Rva2VuKzAxMjMtNDVfNjcuODk",
    "crm%2Ftoken%2B0123-45_67.89",
    "crm%2ftoken%2b0123-45_67.89",
    "crm%2Ftoken%2B0123%2D45%5F67%2E89",
];
/// With a sign that JSON escapes.
const QUOTED: &str = "quo\"t\\ed-0123456789";
/// Written into the configuration itself.
const LITERAL: &str = "literal-0123456789";
/// Of a parameter in the address.
const PARAMETER: &str = "parameter-0123456789";

#[tokio::test]
async fn a_service_that_echoes_its_request_shows_no_secret() {
    let echo = json!({"headers": {"authorization": format!("Bearer {TOKEN}")}, "forms": FORMS, "nested": format!("{{\"k\":\"{ADMIN}\"}}"),
        "message": format!("called with {TOKEN}"), "state_patch": {"note": TOKEN}, "literal": LITERAL, "parameter": PARAMETER});
    let failing = json!({"status": "error", "error": {"type": "FATAL", "code": "no", "message": format!("bad {TOKEN}"), "cause": format!("{}{TOKEN}", "x".repeat(500)),
        "details": {"sent": TOKEN}}});
    let counting = json!({"status": "ok", "data": {"twice": json!({"echo": QUOTED}).to_string()},
        "meta": {"source_counts": {TOKEN: 1}, "token_usage": {TOKEN: 2}, "routing": {TOKEN: TOKEN}}});
    let service = Service::start(&[("crm", echo), ("failing", failing), ("counting", counting)]).await;
    let headers = format!("headers = {{ Authorization = 'Bearer ${{CRM_TOKEN}}', X-Api-Key = '{LITERAL}' }}");
    let tools = service.tool("crm", "read", &headers) + &service.tool("failing", "read", &headers);
    let tools = tools.replacen("/crm'", &format!("/crm?api_key={PARAMETER}'"), 1);
    assert!(tools.contains(PARAMETER), "{tools}");
    let quoted = "headers = { Authorization = 'Bearer ${QUOTED_TOKEN}' }";
    let tools = tools + &service.tool("counting", "read", quoted);
    let server = TestServer::open_in(&tools, &[("CRM_TOKEN", TOKEN), ("QUOTED_TOKEN", QUOTED)]).await;
    let calls = vec![call("crm", json!({})), call("failing", json!({})), call("counting", json!({}))];
    server.model.script(vec![Reply::calls(calls), Reply::text("Done.")]);
    let events = server.stream(3, json!({"message": "Look."})).await.rest().await;
    let conversation = events[0].data["conversation_id"].as_str().unwrap();
    let mut seen: Vec<String> = events.iter().map(|event| event.data.to_string()).collect();
    seen.extend(server.model.requests().iter().map(|request| request.body.to_string()));
    let listed = body(server.operator(Method::GET, &format!("/api/tool-calls?conversation_id={conversation}")).send().await.unwrap()).await;
    for row in listed["tool_calls"].as_array().unwrap() {
        let path = format!("/api/tool-calls/{}", row["id"].as_str().unwrap());
        seen.push(server.operator(Method::GET, &path).send().await.unwrap().text().await.unwrap());
        seen.push(server.operator(Method::GET, &format!("{path}/explain")).send().await.unwrap().text().await.unwrap());
    }
    for path in ["messages", "state", "events"] {
        let path = format!("/api/conversations/{conversation}/{path}");
        seen.push(server.as_user(3, Method::GET, &path).send().await.unwrap().text().await.unwrap());
    }
    for text in &seen {
        assert!(!FORMS.iter().any(|form| text.contains(form)) && !text.contains(ADMIN), "{text}");
        assert!(![&TOKEN[..9], &QUOTED[6..], LITERAL, PARAMETER].iter().any(|part| text.contains(part)), "{text}");
    }
    let final_event = &events.last().unwrap().data;
    assert_eq!(final_event["tool_results"][0]["data"]["headers"]["authorization"], "Bearer [redacted]");
    assert_eq!(final_event["tool_results"][1]["error"]["message"], "bad [redacted]");
    assert_eq!(final_event["tool_results"][2]["data"]["twice"], r#"{"echo":"[redacted]"}"#);
    assert_eq!(final_event["session_state"], json!({"note": "[redacted]"}));
}
