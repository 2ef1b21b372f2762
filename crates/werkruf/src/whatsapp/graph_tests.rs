use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use werkruf_contract::Uuid;
use werkruf_llm::http_client;
use werkruf_store::{OutboxStatus, Recipient};

use super::super::keywords::Keywords;
use super::*;

const ID: &str = "00000000-0000-7000-8000-0000000000aa";

/// What a stub of the Graph API answers, and the requests that it got: path, authorization and body.
#[derive(Clone, Default)]
struct Stub {
    answers: Arc<Mutex<Vec<(u16, Value)>>>,
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
}

async fn respond(State(stub): State<Stub>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let bearer = headers["authorization"].to_str().unwrap().to_owned();
    stub.requests.lock().unwrap().push((uri.path().to_owned(), bearer, serde_json::from_str(&body).unwrap()));
    let (status, answer) = stub.answers.lock().unwrap().remove(0);
    (axum::http::StatusCode::from_u16(status).unwrap(), answer.to_string()).into_response()
}

fn number() -> Number {
    Number {
        phone_number_id: "55501".to_owned(),
        place: "/whatsapp/numbers/0".to_owned(),
        tenant: "demo".to_owned(),
        tenant_id: Uuid::nil(),
        branch_id: Some(1),
        access_token: SecretString::from("token-0123456789"),
        app_secret: SecretString::from("s"),
        verify_token: SecretString::from("v"),
        template: None,
        approval_template: None,
        template_language: "de".to_owned(),
        assistant: "default".to_owned(),
    }
}

fn channel(base_url: &str, number: Number) -> WhatsApp {
    let settings = WhatsAppSettings {
        base_url: base_url.to_owned(),
        api_version: "v26.0".to_owned(),
        reconcile: Duration::from_secs(30),
        numbers: vec![number],
        keywords: Keywords::default(),
        app_secret: None,
        verify_token: None,
    };
    WhatsApp::new(http_client(&WhatsApp::http_limits()).unwrap(), settings)
}

fn row(address: &str, body: &OutboxBody) -> OutboxRow {
    let recipient = Recipient {
        channel: "whatsapp".to_owned(),
        account: "55501".to_owned(),
        address: address.to_owned(),
        user_id: Some("3".to_owned()),
        lane: format!("whatsapp:55501:{address}"),
    };
    let at = Timestamp::UNIX_EPOCH;
    OutboxRow {
        id: ID.parse().unwrap(),
        tenant_id: Uuid::nil(),
        recipient,
        conversation_id: None,
        turn_id: None,
        approval_id: None,
        part: 1,
        body: serde_json::to_string(body).unwrap(),
        status: OutboxStatus::Sending,
        repeatable: false,
        ambiguous: false,
        attempts: 1,
        error_code: None,
        error: None,
        external_id: None,
        next_at: at,
        first_at: None,
        created_at: at,
        updated_at: at,
    }
}

fn text(text: &str) -> OutboxBody {
    OutboxBody::Text { text: text.to_owned() }
}

fn approval(text: &str) -> OutboxBody {
    let (approve, deny) = ("Freigeben, und zwar gleich".to_owned(), "Ablehnen".to_owned());
    OutboxBody::Approval { text: text.to_owned(), approval_id: ID.parse().unwrap(), approve, deny }
}

/// Sends rows to a stub with these answers; returns the results and the bodies of the requests.
async fn exchange(number: Number, rows: &[OutboxRow], answers: Vec<(u16, Value)>) -> (Vec<SendResult>, Vec<Value>) {
    let stub = Stub { answers: Arc::new(Mutex::new(answers)), ..Stub::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(respond).with_state(stub.clone());
    let tasks = TaskTracker::new();
    let served = tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let whatsapp = channel(&url, number);
    let mut results = Vec::new();
    for row in rows {
        results.push(whatsapp.send(row).await);
    }
    served.abort();
    let requests = stub.requests.lock().unwrap().clone();
    for (path, bearer, _) in &requests {
        assert_eq!((path.as_str(), bearer.as_str()), ("/v26.0/55501/messages", "Bearer token-0123456789"));
    }
    (results, requests.into_iter().map(|(_, _, body)| body).collect())
}

fn accepted(id: &str) -> (u16, Value) {
    (200, json!({"messaging_product": "whatsapp", "contacts": [{"input": "491701", "wa_id": "491701"}], "messages": [{"id": id}]}))
}

fn refused(status: u16, code: i64, message: &str) -> (u16, Value) {
    (status, json!({"error": {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "A"}}))
}

fn sent(id: &str) -> SendResult {
    SendResult::Sent { external_id: Some(id.to_owned()) }
}

#[tokio::test]
async fn texts_and_buttons_are_sent_to_phones_and_to_business_scoped_ids() {
    let rows = [row("491701", &text("Hallo")), row("DE.77", &text("Hallo")), row("491701", &approval("Freigeben?"))];
    let (results, bodies) = exchange(number(), &rows, vec![accepted("w1"), accepted("w2"), accepted("w3")]).await;
    assert_eq!(results, [sent("w1"), sent("w2"), sent("w3")]);
    let common = |content: Value| {
        let mut body = json!({"messaging_product": "whatsapp", "recipient_type": "individual", "biz_opaque_callback_data": ID});
        body.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        body
    };
    let hello = json!({"preview_url": false, "body": "Hallo"});
    let button = |id: &str, title: &str| json!({"type": "reply", "reply": {"id": format!("{id}:{ID}"), "title": title}});
    let buttons = json!([button("approve", "Freigeben, und zwar…"), button("deny", "Ablehnen")]);
    let expected = [
        common(json!({"to": "491701", "type": "text", "text": hello})),
        common(json!({"recipient": "DE.77", "type": "text", "text": hello})),
        common(json!({"to": "491701", "type": "interactive",
            "interactive": {"type": "button", "body": {"text": "Freigeben?"}, "action": {"buttons": buttons}}})),
    ];
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn outside_of_the_window_a_template_is_sent_at_once() {
    let closed = || refused(400, 131_047, "Re-engagement message");
    let with = |template: Option<&str>, approval: Option<&str>| Number {
        template: template.map(str::to_owned),
        approval_template: approval.map(str::to_owned),
        ..number()
    };
    let (results, bodies) = exchange(with(None, None), &[row("491701", &text("a"))], vec![closed()]).await;
    let dead = SendResult::Dead { code: "131047".to_owned(), message: "Re-engagement message".to_owned() };
    assert_eq!((results, bodies.len()), (vec![dead.clone()], 1));

    let rows = [row("491701", &text("a\n\n\tb")), row("491701", &approval("Q"))];
    let answers = vec![closed(), accepted("t1"), closed(), accepted("t2")];
    let (results, bodies) = exchange(with(Some("note"), Some("ask")), &rows, answers).await;
    assert_eq!(results, [sent("t1"), sent("t2")]);
    let body = |text: &str| json!({"type": "body", "parameters": [{"type": "text", "text": text}]});
    let press = |at: &str, id: &str| json!({"type": "button", "sub_type": "quick_reply", "index": at, "parameters": [{"type": "payload", "payload": format!("{id}:{ID}")}]});
    assert_eq!(bodies[1]["template"], json!({"name": "note", "language": {"code": "de"}, "components": [body("a b")]}));
    let asked = json!({"name": "ask", "language": {"code": "de"}, "components": [body("Q"), press("0", "approve"), press("1", "deny")]});
    assert_eq!(bodies[3]["template"], asked);

    let template = OutboxBody::Template { text: "x".to_owned(), approval_id: None };
    let (results, bodies) = exchange(with(Some("note"), None), &[row("491701", &template)], vec![closed()]).await;
    assert_eq!((results, bodies.len()), (vec![dead], 1), "a template is not tried twice");
}

#[tokio::test]
async fn a_token_that_meta_repeats_is_not_stored() {
    let (results, _) =
        exchange(number(), &[row("1", &text("a"))], vec![refused(401, 190, "Malformed access token token-0123456789")]).await;
    let message = "Malformed access token [redacted]".to_owned();
    assert_eq!(results, [SendResult::Dead { code: "190".to_owned(), message }]);
}

#[tokio::test]
async fn without_an_answer_the_moment_of_the_loss_decides() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let whatsapp = channel(&url, number());
    let row = row("491701", &text("Hallo"));
    let dropped = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        assert!(tokio::io::AsyncReadExt::read(&mut socket, &mut bytes).await.unwrap() > 0);
    };
    let (result, ()) = tokio::join!(whatsapp.send(&row), dropped);
    assert!(matches!(&result, SendResult::Unknown { code, .. } if code == "no_answer"), "{result:?}");
    drop(listener);
    let result = whatsapp.send(&row).await;
    assert!(matches!(&result, SendResult::Retry { code, after: None, .. } if code == "upstream_unreachable"), "{result:?}");
}

#[tokio::test]
async fn rows_that_cannot_be_sent_reach_nobody() {
    let mut of_another = row("1", &text("a"));
    of_another.recipient.account = "9".to_owned();
    let stale = row("1", &OutboxBody::StaleInbound { text: "late".to_owned() });
    let unreadable = OutboxRow { body: "{".to_owned(), ..row("1", &text("a")) };
    let (results, bodies) = exchange(number(), &[of_another, stale, unreadable], Vec::new()).await;
    assert!(matches!(&results[0], SendResult::Retry { code, after: Some(_), .. } if code == "not_configured"), "{results:?}");
    assert!(results[1..].iter().all(|result| matches!(result, SendResult::Dead { code, .. } if code == "internal")), "{results:?}");
    assert!(bodies.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_number_sends_at_most_eighty_messages_a_second() {
    let whatsapp = channel("http://127.0.0.1:1", number());
    let start = Instant::now();
    for _ in 0..=80 {
        whatsapp.wait_for_turn("55501").await;
    }
    assert!((Duration::from_secs(1)..Duration::from_millis(1200)).contains(&(Instant::now() - start)));
    let other = Instant::now();
    whatsapp.wait_for_turn("55502").await;
    assert_eq!(Instant::now(), other, "each number has its own pace");
}

#[test]
fn an_answer_becomes_parts() {
    let whatsapp = channel("http://127.0.0.1:1", number());
    assert_eq!(whatsapp.parts("**Hallo**"), ["*Hallo*"]);
    assert_eq!(whatsapp.parts(" \n"), Vec::<String>::new());
    assert_eq!(whatsapp.parts("![](https://a.example/x.png)"), ["🖼"]);
    assert_eq!(whatsapp.parts("# \n"), ["#"], "never nothing for a text");
    assert_eq!(whatsapp.parts(&"word ".repeat(2000)).len(), 3);
}

#[tokio::test]
async fn without_time_for_an_answer_no_request_is_sent() {
    let whatsapp = channel("http://127.0.0.1:1", number());
    let settings = whatsapp.settings();
    let answer = whatsapp.request(&settings, &number(), &json!({}), 1, Instant::now()).await;
    assert!(matches!(&answer, Answer::Settled(SendResult::Retry { code, .. }) if code == "upstream_unreachable"), "{answer:?}");
}

#[test]
fn a_person_is_reached_by_a_number_with_its_country_code() {
    let whatsapp = channel("http://127.0.0.1:1", number());
    let reached = |phone: &str, scoped: Option<&str>| {
        let person = PersonAddress {
            user_id: 1,
            branch_id: None,
            locale: "de".to_owned(),
            phone: Some(phone.to_owned()),
            whatsapp_user_id: scoped.map(str::to_owned),
        };
        whatsapp.address_of(number().tenant_id, &person).map(|(_, address)| address)
    };
    for (phone, address) in [
        ("+49 (0)171 234-56 78", "491712345678"),
        ("0049 171 2345678", "491712345678"),
        ("+54 9 11 1234 5678", "5491112345678"),
        ("491712345678", "491712345678"),
    ] {
        assert_eq!(reached(phone, None).as_deref(), Some(address), "{phone}");
    }
    assert_eq!(["0171 2345678", "call me", "+49"].map(|phone| reached(phone, None)), [None, None, None]);
    assert_eq!(reached("0171 2345678", Some("DE.7")).as_deref(), Some("DE.7"));
}
