//! Webhooks through a real receiver: what comes, how it is signed, in which order, and what becomes of refused events.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::receiver::{Receiver, SECRET};
use crate::support::{TestServer, body, refusal};

const ALL: &str = "'approval_required', 'turn_finished', 'turn_failed', 'outcome_unknown', 'dead_letter'";
/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn open(text: &str) -> TestServer {
    let server = TestServer::open_in(text, &[("HOOK_SECRET", SECRET)]).await;
    let runtime = server.app.runtime.clone();
    server.app.tasks.spawn(async move { runtime.run_outbox().await });
    server
}

/// The rows of the outbox, once this holds for them.
async fn rows(server: &TestServer, query: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let work = async {
        loop {
            let answer = server.operator(Method::GET, &format!("/api/outbox{query}")).send().await.unwrap();
            let rows = body(answer).await["outbox"].as_array().unwrap().clone();
            if holds(&rows) {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap()
}

fn all_sent(count: usize) -> impl Fn(&[Value]) -> bool {
    move |rows| rows.len() == count && rows.iter().all(|row| row["status"] == "sent")
}

#[tokio::test]
async fn events_are_signed_repeated_with_the_same_bytes_and_in_order() {
    let receiver = Receiver::start().await;
    let server = open(&receiver.webhook("crm", ALL)).await;
    receiver.answer(&[503, 302]);
    let first = body(server.chat(3, json!({"message": "one"})).await).await;
    let conversation = first["conversation_id"].clone();
    let second = body(server.chat(3, json!({"message": "two", "conversation_id": conversation})).await).await;
    let rows = rows(&server, "", all_sent(2)).await;
    let received = receiver.received();
    let turns: Vec<Value> = received.iter().map(|request| request.event()["turn_id"].clone()).collect();
    let (one, two) = (&first["turn_id"], &second["turn_id"]);
    assert_eq!(turns.iter().collect::<Vec<_>>(), [one, one, one, two], "the second waits for the first, redirects are not followed");
    assert!(received.iter().all(|request| request.signed && request.path == "/crm"));
    assert!(received[0].body == received[1].body && received[1].body == received[2].body, "a repetition is the same");
    let event = received[0].event();
    let expected = json!({"id": rows[0]["id"], "type": "turn_finished", "at": event["at"], "tenant_id": "00000000-0000-7000-8000-000000000001",
        "conversation_id": conversation, "turn_id": one, "user_id": "3", "status": "completed"});
    assert_eq!(event, expected);
    let row = json!({"id": event["id"], "channel": "webhook", "account": "crm", "recipient": "crm", "user_id": "3", "conversation_id": conversation,
        "turn_id": one, "approval_id": null, "part": 1, "status": "sent", "ambiguous": false, "attempts": 3, "error_code": rows[0]["error_code"],
        "error": rows[0]["error"], "external_id": null, "next_at": rows[0]["next_at"], "created_at": rows[0]["created_at"]});
    assert_eq!(rows[0], row, "without its body");
    let shown = body(server.operator(Method::GET, &format!("/api/outbox/{}", event["id"].as_str().unwrap())).send().await.unwrap()).await;
    assert_eq!(shown["body"], json!({"type": "notification", "event": event}));
}

#[tokio::test]
async fn a_refused_event_is_dead_told_to_the_others_and_sent_again_on_request() {
    let receiver = Receiver::start().await;
    let text = receiver.webhook("crm", "'turn_finished', 'dead_letter'") + &receiver.webhook("watch", "'dead_letter'");
    let server = open(&text).await;
    receiver.answer(&[410]);
    server.chat(3, json!({"message": "one"})).await;
    let dead = rows(&server, "?status=dead", |rows| rows.len() == 1).await.remove(0);
    assert_eq!((&dead["error_code"], &dead["error"], &dead["attempts"]), (&json!("webhook_refused"), &json!("HTTP 410: "), &json!(1)));
    let told = rows(&server, "?status=sent", |rows| rows.len() == 1).await.remove(0);
    assert_eq!(told["account"], "watch", "not to itself");
    let event = receiver.received()[1].event();
    assert_eq!(
        (&event["type"], &event["outbox_id"], &event["error_code"]),
        (&json!("dead_letter"), &dead["id"], &json!("webhook_refused"))
    );

    let path = format!("/api/outbox/{}/retry", dead["id"].as_str().unwrap());
    let reader = server.key(Some(2), &["chat", "tools", "read"]).await;
    assert_eq!(refusal(server.with_key(&reader, Method::POST, &path).send().await.unwrap()).await, (403, "forbidden".to_owned()));
    let again = body(server.operator(Method::POST, &path).send().await.unwrap()).await;
    assert_eq!(again["id"], dead["id"]);
    rows(&server, "?status=sent", |rows| rows.len() == 2).await;
    assert_eq!(receiver.received()[2].body, receiver.received()[0].body);
    assert_eq!(refusal(server.operator(Method::POST, &path).send().await.unwrap()).await, (409, "not_dead".to_owned()));
    let release = path.replace("retry", "release");
    assert_eq!(refusal(server.operator(Method::POST, &release).send().await.unwrap()).await, (409, "not_held".to_owned()));
    assert_eq!(body(server.operator(Method::POST, "/api/outbox/release").send().await.unwrap()).await, json!({"released": 0}));
    let audit = body(server.operator(Method::GET, "/api/audit").send().await.unwrap()).await;
    let acts: Vec<(&Value, &Value)> =
        audit["audit"].as_array().unwrap().iter().map(|entry| (&entry["action"], &entry["subject"])).collect();
    assert!(acts.contains(&(&json!("outbox.retry"), &dead["id"])), "{acts:?}");
}

#[tokio::test]
async fn programs_are_told_of_approvals_unknown_outcomes_and_failed_turns_of_their_tenant() {
    let receiver = Receiver::start().await;
    let other = receiver.webhook("other", ALL) + "tenant = 'acme'\n";
    let text = receiver.webhook("own", ALL) + "tenant = 'demo'\n" + &other + "[safety.careful]\napproval_required_for = ['test_echo']\n";
    let server = open(&text).await;
    let asked = server.as_user(3, Method::POST, "/api/tools/test_echo/invoke").header("x-safety-mode", "careful");
    let asked = body(asked.json(&json!({"input": {"value": "x"}})).send().await.unwrap()).await;
    let approval = asked["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
    rows(&server, "", all_sent(1)).await;
    let event = receiver.received()[0].event();
    let details = (&event["type"], &event["approval_id"], &event["tool"], &event["approver_roles"]);
    assert_eq!(details, (&json!("approval_required"), &json!(approval), &json!("test_echo"), &json!(["admin"])));
    let denied = server.as_user(3, Method::POST, &format!("/api/approvals/{approval}")).json(&json!({"decision": "deny"})).send();
    assert_eq!(denied.await.unwrap().status(), 200);
    rows(&server, "", all_sent(2)).await;
    let event = receiver.received()[1].event();
    let failed = (&event["type"], &event["status"], &event["error_code"]);
    assert_eq!(failed, (&json!("turn_failed"), &json!("failed"), &json!("approval_denied")));
    assert!(receiver.received().iter().all(|request| request.path == "/own"));
}
