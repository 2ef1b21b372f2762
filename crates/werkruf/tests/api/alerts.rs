//! The operator's alerts through a real receiver: each is told once, and its end too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use werkruf_bench::fake_model::Reply;
use werkruf_contract::{Clock, Uuid};
use werkruf_runtime::AlertSources;

use crate::receiver::{Received, Receiver, SECRET};
use crate::support::{TestServer, body, refusal};

/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The host of the scripted model.
const PROVIDER: &str = "127.0.0.1";
const DEMO: &str = "00000000-0000-7000-8000-000000000001";
const STATES: &str = "'credentials', 'model_down', 'quota', 'poison', 'approval_waiting', 'loop_stalled', 'disk_low', 'dead_letter'";

async fn open(text: &str) -> TestServer {
    open_in_folder(text, &[], tempfile::tempdir().unwrap()).await
}

/// A server that sends rows and looks for what is wrong.
async fn open_in_folder(text: &str, variables: &[(&str, &str)], folder: TempDir) -> TestServer {
    let server = open_without_alerts(text, variables, folder).await;
    let (runtime, sources) = (server.app.runtime.clone(), server.app.alert_sources());
    server.app.tasks.spawn(async move { runtime.run_alerts(sources).await });
    server
}

async fn open_without_alerts(text: &str, variables: &[(&str, &str)], folder: TempDir) -> TestServer {
    let variables: Vec<_> = variables.iter().copied().chain([("HOOK_SECRET", SECRET)]).collect();
    // The machine that runs the tests may have little space left, which is no matter of theirs.
    let section = if text.contains("disk_free_mib") { "" } else { "disk_free_mib = 1\n" };
    let text = match text.split_once("[alerts]\n") {
        Some((before, after)) => format!("{before}[alerts]\n{section}{after}"),
        None => format!("{text}[alerts]\n{section}"),
    };
    let server = TestServer::open_in_folder(&text, &variables, folder).await;
    let runtime = server.app.runtime.clone();
    server.app.tasks.spawn(async move { runtime.run_outbox().await });
    server
}

/// A folder with a copy of the database, as after a restart.
async fn copy(server: &TestServer) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = json!({"path": folder.path().join("werkruf.db")});
    assert_eq!(server.operator(Method::POST, "/api/admin/backup").json(&copy).send().await.unwrap().status(), 200);
    folder
}

/// The requests of this type so far, once there are this many.
async fn received(receiver: &Receiver, kind: &str, count: usize) -> Vec<Received> {
    let work = async {
        loop {
            let found: Vec<_> = receiver.received().into_iter().filter(|request| request.event()["type"] == kind).collect();
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| panic!("{kind}: {:?}", receiver.received()));
    assert_eq!(found.len(), count, "{found:?}");
    assert!(found.iter().all(|request| request.signed));
    found
}

async fn events(receiver: &Receiver, kind: &str, count: usize) -> Vec<Value> {
    received(receiver, kind, count).await.iter().map(Received::event).collect()
}

async fn get(server: &TestServer, path: &str) -> Value {
    let response = server.operator(Method::GET, path).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    body(response).await
}

/// The alerts that an operator lists, once this holds for them.
async fn listed(server: &TestServer, query: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let work = async {
        loop {
            let rows = get(server, &format!("/api/alerts{query}")).await["alerts"].as_array().unwrap().clone();
            if holds(&rows) {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap()
}

/// Asserts that the two events are the begin and the end of one state of the server.
fn begins_and_ends(events: &[Value], kind: &str, subject: &str, message: &str) {
    let [begin, end] = events else { panic!("{events:?}") };
    let expected = |event: &Value, resolved: bool| {
        json!({"id": event["id"], "type": kind, "at": event["at"], "alert_id": begin["alert_id"], "resolved": resolved, "subject": subject,
            "message": message})
    };
    assert_eq!((begin, end), (&expected(begin, false), &expected(end, true)));
    assert_ne!(begin["id"], end["id"]);
}

/// A new budget of the tenant per month; its id.
async fn budget(server: &TestServer, unit: &str, limit: i64) -> Value {
    let wanted = json!({"scope": "tenant", "period": "month", "unit": unit, "limit": limit});
    let made = server.operator(Method::POST, "/api/budgets").json(&wanted).send().await.unwrap();
    assert_eq!(made.status(), 201);
    body(made).await["id"].clone()
}

/// So many model requests.
async fn spend(server: &TestServer, requests: usize) {
    for _ in 0..requests {
        assert_eq!(server.chat(3, json!({"message": "hello"})).await.status(), 200);
    }
}

/// The variable that makes the server's clock show this time now.
fn offset(time: &str) -> String {
    let time: Timestamp = time.parse().unwrap();
    time.duration_since(Clock::system(0).now()).as_secs().to_string()
}

#[tokio::test]
async fn a_threshold_is_told_once_per_period_also_after_a_restart() {
    let receiver = Receiver::start().await;
    let text = receiver.webhook("crm", "'budget_threshold'");
    // Not at the end of a month.
    let time = offset("2026-05-10T12:00:00Z");
    let variables = [("WERKRUF_CLOCK_OFFSET_S", time.as_str())];
    let server = open_in_folder(&text, &variables, tempfile::tempdir().unwrap()).await;
    let budget = budget(&server, "model_calls", 10).await;
    spend(&server, 4).await;
    receiver.answer(&[503]);
    spend(&server, 1).await;
    let first = received(&receiver, "budget_threshold", 2).await;
    assert_eq!(first[0].body, first[1].body, "the same id and bytes at the second attempt");
    let event = first[0].event();
    let expected = json!({"id": event["id"], "type": "budget_threshold", "at": event["at"], "tenant_id": DEMO, "budget_id": budget,
        "scope": "tenant", "subject": null, "period": "month", "period_start": "2026-05-01", "threshold": 50, "used": 5, "limit": 10,
        "unit": "model_calls", "message": "The budget of 10 model_calls per month for the tenant has reached 50 %."});
    assert_eq!(event, expected);
    spend(&server, 3).await;
    let second = events(&receiver, "budget_threshold", 3).await.remove(2);
    assert_eq!((&second["threshold"], &second["used"]), (&json!(80), &json!(8)));
    let told = listed(&server, "?tenant=demo", |rows| rows.len() == 2).await;
    assert_eq!(
        (&told[0]["type"], &told[0]["status"], &told[1]["details"]["threshold"]),
        (&json!("budget_threshold"), &json!("told"), &json!(80))
    );
    listed_as_sent(&server, 2).await;

    let server = open_in_folder(&text, &variables, copy(&server).await).await;
    spend(&server, 2).await;
    let third = events(&receiver, "budget_threshold", 4).await.remove(3);
    assert_eq!((&third["threshold"], &third["used"]), (&json!(100), &json!(10)), "neither 50 nor 80 again");
}

/// Waits until so many rows of the outbox have arrived and none is left.
async fn listed_as_sent(server: &TestServer, count: usize) {
    let work = async {
        loop {
            let rows = get(server, "/api/outbox").await["outbox"].as_array().unwrap().clone();
            if rows.len() == count && rows.iter().all(|row| row["status"] == "sent") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap();
}

#[tokio::test]
async fn a_refused_request_means_that_a_budget_is_used_up() {
    let receiver = Receiver::start().await;
    let time = offset("2026-05-10T12:00:00Z");
    let text = receiver.webhook("crm", "'budget_threshold'");
    let server = open_in_folder(&text, &[("WERKRUF_CLOCK_OFFSET_S", &time)], tempfile::tempdir().unwrap()).await;
    budget(&server, "tokens", 10).await;
    for _ in 0..3 {
        assert_eq!(refusal(server.chat(3, json!({"message": "hello"})).await).await, (429, "budget_exceeded".to_owned()));
    }
    let event = events(&receiver, "budget_threshold", 1).await.remove(0);
    assert_eq!((&event["threshold"], &event["used"], &event["limit"]), (&json!(100), &json!(0), &json!(10)));
}

#[tokio::test]
async fn the_overview_of_a_day_comes_once_after_midnight() {
    let receiver = Receiver::start().await;
    let text = receiver.webhook("crm", "'daily_overview'");
    let (noon, midnight, morning) = (offset("2026-05-10T12:00:00Z"), offset("2026-05-11T00:00:01Z"), offset("2026-05-11T08:00:00Z"));
    let at = |time| [("OPENAI_MODEL", "gpt-5"), ("WERKRUF_CLOCK_OFFSET_S", time)];
    let server = open_in_folder(&text, &at(&noon), tempfile::tempdir().unwrap()).await;
    server.model.script(vec![Reply::text("Yes.").usage(750, 150), Reply::text("No.").usage(100, 10)]);
    for _ in 0..2 {
        assert_eq!(server.chat(3, json!({"message": "Is it blue?"})).await.status(), 200);
    }
    // Its counter starts with what was used.
    let budget = budget(&server, "tokens", 1_000_000).await;
    assert_eq!(get(&server, "/api/alerts").await["alerts"], json!([]), "the day is not over");

    let server = open_in_folder(&text, &at(&midnight), copy(&server).await).await;
    let event = events(&receiver, "daily_overview", 1).await.remove(0);
    let budgets = json!([{"budget_id": budget, "scope": "tenant", "subject": null, "unit": "tokens", "limit": 1_000_000, "used": 1010}]);
    let expected = json!({"id": event["id"], "type": "daily_overview", "at": event["at"], "tenant_id": DEMO, "budget_id": null, "scope": "tenant",
        "subject": null, "threshold": null, "limit": null, "period": "day", "period_start": "2026-05-10", "calls": 2, "tokens_total": 1010, "cost_nano_usd": 2_662_500, "unpriced_calls": 0,
        "estimated_calls": 0, "used": 2_662_500, "unit": "nano_usd", "budgets": budgets,
        "message": "On 2026-05-10 2 requests used 1010 tokens for 0.00 USD."});
    assert_eq!(event, expected);
    listed_as_sent(&server, 1).await;

    let server = open_in_folder(
        &(text + &receiver.webhook("watch", "'disk_low'") + "[alerts]\ndisk_free_mib = 1099511627776\n"),
        &at(&morning),
        copy(&server).await,
    )
    .await;
    // The first look is over when what it compares last was told.
    events(&receiver, "disk_low", 1).await;
    events(&receiver, "daily_overview", 1).await;
    assert_eq!(listed(&server, "?tenant=demo", |rows| !rows.is_empty()).await.len(), 1);
}

#[tokio::test]
async fn what_a_provider_answers_begins_and_ends_alerts_of_the_server() {
    let receiver = Receiver::start().await;
    let own = receiver.webhook("own", STATES) + "tenant = 'demo'\n";
    let server = open(&(receiver.webhook("all", STATES) + &own)).await;
    let chat = async || server.chat(3, json!({"message": "hello"})).await;
    let refused = |status, message: &str| Reply::status(status).message(message);
    let provider = "The model provider 127.0.0.1 answered";

    server.model.script(vec![refused(401, "Incorrect API key.")]);
    chat().await;
    let open = events(&receiver, "credentials", 1).await.remove(0);
    let alerts = get(&server, "/api/alerts?status=open").await["alerts"].clone();
    let message = format!("{provider} 401 (check the API key): Incorrect API key.");
    let expected = json!([{"id": open["alert_id"], "tenant_id": null, "type": "credentials", "status": "open", "subject": PROVIDER, "message": message,
        "details": {}, "opened_at": alerts[0]["opened_at"], "resolved_at": null}]);
    assert_eq!(alerts, expected);
    assert_eq!(chat().await.status(), 200);
    begins_and_ends(&events(&receiver, "credentials", 2).await, "credentials", PROVIDER, &message);

    server.model.script(vec![Reply::status(503), Reply::status(503), refused(503, "Overloaded.")]);
    chat().await;
    events(&receiver, "model_down", 1).await;
    assert_eq!(chat().await.status(), 200);
    begins_and_ends(&events(&receiver, "model_down", 2).await, "model_down", PROVIDER, &format!("{provider} 503: Overloaded."));

    let quota = "You exceeded your current quota";
    server.model.script(vec![refused(429, quota), refused(429, quota), refused(429, quota)]);
    chat().await;
    events(&receiver, "quota", 1).await;
    assert_eq!(chat().await.status(), 200);
    begins_and_ends(&events(&receiver, "quota", 2).await, "quota", PROVIDER, &format!("{provider} 429: {quota}."));

    assert!(receiver.received().iter().all(|request| request.path == "/all"), "a webhook of a tenant is not told about the server");
    let key = server.key(Some(1), &["admin"]).await;
    let of_tenant = body(server.with_key(&key, Method::GET, "/api/alerts").send().await.unwrap()).await;
    assert_eq!(of_tenant, json!({"alerts": [], "next_after": null}));
    let of_server = server.with_key(&key, Method::GET, "/api/alerts?tenant=server").send().await.unwrap();
    assert_eq!(refusal(of_server).await, (403, "forbidden".to_owned()));
    let reader = server.key(Some(3), &["chat", "read"]).await;
    assert_eq!(refusal(server.with_key(&reader, Method::GET, "/api/alerts").send().await.unwrap()).await, (403, "forbidden".to_owned()));
    let page = get(&server, "/api/alerts?order=desc&limit=2").await;
    let kinds = |page: &Value| page["alerts"].as_array().unwrap().iter().map(|alert| alert["type"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&page), ["quota", "model_down"]);
    let rest = get(&server, &format!("/api/alerts?order=desc&after={}", page["next_after"].as_str().unwrap())).await;
    assert_eq!((kinds(&rest), &rest["next_after"]), (vec![json!("credentials")], &Value::Null));
    let wrong = server.operator(Method::GET, "/api/alerts?status=closed").send().await.unwrap();
    assert_eq!(refusal(wrong).await, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_state_that_an_earlier_process_saw_ends_with_the_next_answer() {
    let receiver = Receiver::start().await;
    let text = receiver.webhook("all", STATES);
    let server = open(&text).await;
    server.model.script(vec![Reply::status(403).message("No.")]);
    server.chat(3, json!({"message": "hello"})).await;
    events(&receiver, "credentials", 1).await;
    let work = async {
        while server
            .app
            .store
            .outbox(Uuid::nil(), werkruf_store::OutboxFilter::default(), werkruf_store::Page::default())
            .await
            .unwrap()
            .iter()
            .any(|row| row.status.is_open())
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap();

    let server = open_in_folder(&text, &[], copy(&server).await).await;
    let progress = async {
        while server.app.runtime.alerts_progress().last().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, progress).await.unwrap();
    assert_eq!(listed(&server, "?status=open", |rows| rows.len() == 1).await[0]["type"], "credentials", "a restart says nothing about it");
    assert_eq!(server.chat(3, json!({"message": "hello"})).await.status(), 200);
    begins_and_ends(
        &events(&receiver, "credentials", 2).await,
        "credentials",
        PROVIDER,
        "The model provider 127.0.0.1 answered 403 (check the API key): No.",
    );
}

#[tokio::test]
async fn an_approval_that_nobody_decides_is_told_until_it_is_decided() {
    let receiver = Receiver::start().await;
    let text = receiver.webhook("own", STATES)
        + "tenant = 'demo'\n[safety.careful]\napproval_required_for = ['test_echo']\n[alerts]\napproval_waiting_minutes = 5\n";
    let past = open_in_folder(&text, &[("WERKRUF_CLOCK_OFFSET_S", "-600")], tempfile::tempdir().unwrap()).await;
    let asked = past.as_user(3, Method::POST, "/api/tools/test_echo/invoke").header("x-safety-mode", "careful");
    let asked = body(asked.json(&json!({"input": {"value": "x"}})).send().await.unwrap()).await;
    let approval = asked["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();

    let server = open_in_folder(&text, &[], copy(&past).await).await;
    let event = events(&receiver, "approval_waiting", 1).await.remove(0);
    let expected = json!({"id": event["id"], "type": "approval_waiting", "at": event["at"], "tenant_id": DEMO, "alert_id": event["alert_id"],
        "resolved": false, "subject": approval, "message": event["message"], "approval_id": approval, "tool": "test_echo"});
    assert_eq!(event, expected);
    let decision = server.as_user(1, Method::POST, &format!("/api/approvals/{approval}")).json(&json!({"decision": "deny"}));
    assert_eq!(decision.send().await.unwrap().status(), 200);
    let end = events(&receiver, "approval_waiting", 2).await.remove(1);
    assert_eq!((&end["alert_id"], &end["resolved"], &end["subject"]), (&event["alert_id"], &json!(true), &json!(approval)));
}

#[tokio::test]
async fn dead_letters_are_resolved_when_none_is_left() {
    let receiver = Receiver::start().await;
    let server = open(&(receiver.webhook("crm", "'turn_finished'") + &receiver.webhook("watch", STATES))).await;
    receiver.answer(&[410]);
    server.chat(3, json!({"message": "one"})).await;
    let told = events(&receiver, "dead_letter", 1).await.remove(0);
    assert_eq!((&told["channel"], told.get("alert_id")), (&json!("webhook"), None), "each dead row is told by itself");
    let open = listed(&server, "?status=open", |rows| rows.len() == 1).await.remove(0);
    assert_eq!((&open["type"], &open["subject"], &open["tenant_id"]), (&json!("dead_letter"), &json!("outbox"), &json!(DEMO)));
    let path = format!("/api/outbox/{}/retry", told["outbox_id"].as_str().unwrap());
    assert_eq!(server.operator(Method::POST, &path).send().await.unwrap().status(), 200);
    let end = events(&receiver, "dead_letter", 2).await.remove(1);
    let expected = json!({"id": end["id"], "type": "dead_letter", "at": end["at"], "tenant_id": DEMO, "alert_id": open["id"], "resolved": true,
        "subject": "outbox", "message": "1 messages or notifications could not be delivered; `werkruf outbox list --status dead` shows them."});
    assert_eq!(end, expected);
}

#[tokio::test]
async fn little_free_space_is_told_until_there_is_enough() {
    let receiver = Receiver::start().await;
    let text = |mib: u64| receiver.webhook("all", STATES) + &format!("[alerts]\ndisk_free_mib = {mib}\n");
    let server = open(&text(1 << 40)).await;
    let event = events(&receiver, "disk_low", 1).await.remove(0);
    assert_eq!((&event["subject"], &event["resolved"], event.get("tenant_id")), (&json!("database"), &json!(false), None));
    let file = server.folder.path().join("werkruf.toml");
    let enough = std::fs::read_to_string(&file).unwrap().replace("1099511627776", "1");
    std::fs::write(&file, enough).unwrap();
    assert_eq!(server.operator(Method::POST, "/api/admin/reload").send().await.unwrap().status(), 200);
    begins_and_ends(&events(&receiver, "disk_low", 2).await, "disk_low", "database", event["message"].as_str().unwrap());
}

#[tokio::test]
async fn a_loop_without_progress_is_told_until_it_goes_on() {
    let receiver = Receiver::start().await;
    let server = open_without_alerts(&receiver.webhook("all", STATES), &[], tempfile::tempdir().unwrap()).await;
    let stalled = Arc::new(AtomicBool::new(true));
    let read = Arc::clone(&stalled);
    let loops = move || if read.load(Ordering::SeqCst) { vec!["embedder"] } else { Vec::new() };
    let sources = AlertSources::new(server.app.monitoring_store.clone(), server.app.store.clone(), Box::new(loops));
    let runtime = server.app.runtime.clone();
    server.app.tasks.spawn(async move { runtime.run_alerts(sources).await });
    events(&receiver, "loop_stalled", 1).await;
    stalled.store(false, Ordering::SeqCst);
    let message = "The loop embedder of the server makes no progress; `GET /readyz` shows since when.";
    begins_and_ends(&events(&receiver, "loop_stalled", 2).await, "loop_stalled", "embedder", message);
    let ready = body(server.bare(Method::GET, "/readyz").send().await.unwrap()).await;
    assert_eq!(ready["loops"]["alerts"]["ok"], true, "{ready}");
}
