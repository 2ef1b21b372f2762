//! WhatsApp through the whole server and a stub of Meta's Graph API: who is meant, what is refused, and what becomes of errors.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use werkruf_bench::fake_model::Reply;

use crate::graph::{Graph, NUMBER, SECRET, TOKEN, deliver, number, payload, post, put_users, rows, sign, text};
use crate::support::{TestServer, body, refusal};

async fn count(server: &TestServer, user: i64) -> usize {
    let list = server.as_user(user, Method::GET, "/api/conversations").send().await.unwrap();
    body(list).await["conversations"].as_array().unwrap().len()
}

/// The counter of events for numbers that the configuration does not name.
async fn unknown_numbers(server: &TestServer) -> String {
    let scrape = server.operator(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let line = scrape.lines().find_map(|line| line.strip_prefix("werkruf_whatsapp_unknown_numbers_total "));
    line.unwrap_or_else(|| panic!("no such metric in {scrape}")).to_owned()
}

#[tokio::test]
async fn the_business_scoped_id_comes_first_then_the_phone_in_its_canonical_form() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "acme", "branch_id = 2"), &[]).await;
    let users = [
        (11, Some("+54 9 11 1234 5678"), None, 1),
        (12, Some("+52 55 1234 5678"), None, 1),
        (13, Some("+55 11 91234 5678"), None, 1),
        (14, Some("+49 170 1"), Some("DE.14"), 1),
        (15, Some("+49 170 2"), None, 1),
        (16, Some("+49 170 2"), None, 2),
        (17, Some("+49 170 3"), None, 1),
        (18, Some("+49 170 3"), None, 1),
    ];
    put_users(&server, "acme", &users).await;
    let mut messages = Vec::new();
    for (at, from) in ["541112345678", "5215512345678", "551112345678", "491702", "491703"].iter().enumerate() {
        messages.push(text(&server, &format!("w{at}"), from, "who am i"));
    }
    deliver(&server, &messages).await;
    let mut scoped = text(&server, "w9", "491702", "who am i");
    scoped["from_user_id"] = "DE.14".into();
    deliver(&server, &[scoped]).await;
    let mut hidden = text(&server, "w10", "", "who am i");
    hidden["from_user_id"] = "DE.14".into();
    deliver(&server, &[hidden]).await;

    let said = async |address: &str| graph.answers(address, 1).await.remove(0);
    for (address, name) in [("541112345678", "U11"), ("5215512345678", "U12"), ("551112345678", "U13"), ("DE.14", "U14")] {
        assert!(said(address).await.contains(name), "{address}: {}", said(address).await);
    }
    let both = graph.answers("491702", 2).await.concat();
    assert!(both.contains("U16") && both.contains("U14"), "the branch of the number decides, but the id comes first: {both}");
    assert!(said("491703").await.contains("not known here"), "nobody is meant: {}", said("491703").await);
}

#[tokio::test]
async fn each_number_has_its_own_secret_tenant_and_answers() {
    let graph = Graph::start().await;
    let config = number(NUMBER, "demo", "") + &number("77702", "acme", "app_secret_env = 'OTHER_SECRET'");
    let server = graph.serve(&config, &[("OTHER_SECRET", "another-app-secret")]).await;
    put_users(&server, "acme", &[(11, Some("+49 170 1"), None, 1)]).await;
    let message = |id: &str| json!({"messages": [text(&server, id, "491701", "who am i")]});
    assert_eq!(unknown_numbers(&server).await, "0");
    assert_eq!(post(&server, payload("77702", &message("w1")), SECRET).await, 200, "signed by another app: not for this number");
    assert_eq!(post(&server, payload("99999", &message("w2")), SECRET).await, 200, "a number of somebody else");
    assert_eq!(unknown_numbers(&server).await, "2", "both are counted");
    assert_eq!(post(&server, payload("77702", &message("w3")), "wrong").await, 401);
    assert_eq!(post(&server, payload("77702", &message("w4")), "another-app-secret").await, 200);
    graph.answers("491701", 1).await;
    assert_eq!(post(&server, payload(NUMBER, &message("w5")), SECRET).await, 200, "the other tenant does not know the person");
    graph.answers("491701", 2).await;
    let texts = graph.texts("491701");
    assert_eq!(texts.iter().map(|(number, _)| number.as_str()).collect::<Vec<_>>(), ["77702", NUMBER]);
    assert!(texts[0].1.contains("U11") && texts[1].1.contains("not known here"), "{texts:?}");
}

#[tokio::test]
async fn a_request_without_a_signature_is_refused_before_its_body_is_read() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", ""), &[]).await;
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /webhooks/whatsapp HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401", "and no byte of the body was sent");
    let raw = payload(NUMBER, &json!({}));
    let request =
        |signature: String| server.bare(Method::POST, "/webhooks/whatsapp").header("x-hub-signature-256", signature).body(raw.clone());
    for wrong in [sign(b"other", SECRET), sign(&raw, "x"), sign(&raw, SECRET).replace("sha256=", "")] {
        assert_eq!(refusal(request(wrong).send().await.unwrap()).await, (401, "unauthorized".to_owned()));
    }
    assert_eq!(request(sign(&raw, SECRET)).send().await.unwrap().status(), 200);
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let signature = sign(&large, SECRET);
    let large = server.bare(Method::POST, "/webhooks/whatsapp").header("x-hub-signature-256", signature).body(large);
    assert_eq!(refusal(large.send().await.unwrap()).await, (413, "body_too_large".to_owned()));
    assert_eq!(post(&server, b"{".to_vec(), SECRET).await, 400);
    assert_eq!(post(&server, b"[]".to_vec(), SECRET).await, 200, "Meta would send it again for a week");
    let forbidden =
        server.bare(Method::GET, "/webhooks/whatsapp?hub.mode=subscribe&hub.challenge=1&hub.verify_token=x").send().await.unwrap();
    assert_eq!(refusal(forbidden).await, (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn errors_that_do_not_pass_make_dead_letters_at_once() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "acme", ""), &[]).await;
    put_users(&server, "acme", &[(11, Some("+49 170 1"), None, 1)]).await;
    let codes = [131_026, 131_047, 131_051, 190, 100];
    for (at, code) in codes.into_iter().enumerate() {
        graph.refuse(&[(400, code)]);
        let name = code.to_string();
        deliver(&server, &[text(&server, &format!("w{at}"), "491701", "who am i")]).await;
        let tenant_rows = async || {
            let answer = server.operator(Method::GET, "/api/outbox").header("x-tenant-id", "acme").send().await.unwrap();
            body(answer).await["outbox"].as_array().unwrap().clone()
        };
        let row = loop {
            let dead = tenant_rows().await.into_iter().find(|row| row["error_code"] == name.as_str());
            match dead.filter(|row| row["status"] == "dead") {
                Some(row) => break row,
                None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        assert_eq!((&row["attempts"], &row["recipient"]), (&json!(1), &json!("491701")));
    }
    assert_eq!(graph.texts("491701"), []);
}

#[tokio::test]
async fn nothing_is_lost_above_the_limit_of_turns() {
    let graph = Graph::start().await;
    let config = number(NUMBER, "acme", "");
    let server = graph.serve(&config, &[("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "1")]).await;
    put_users(&server, "acme", &[(11, Some("+49 170 1"), None, 1)]).await;
    for at in 0..4 {
        deliver(&server, &[text(&server, &format!("w{at}"), "491701", "who am i")]).await;
    }
    let texts = graph.answers("491701", 2).await;
    assert!(texts[0].contains("U11") && texts[1].contains("wait a minute"), "{texts:?}");
    let list = server.as_user(11, Method::GET, "/api/conversations").header("x-tenant-id", "acme").send().await.unwrap();
    let conversation = body(list).await["conversations"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/conversations/{conversation}/messages");
    let messages = server.as_user(11, Method::GET, &path).header("x-tenant-id", "acme").send().await.unwrap();
    let messages = body(messages).await["messages"].as_array().unwrap().clone();
    assert_eq!(messages.iter().filter(|message| message["role"] == "user").count(), 4, "all messages are stored: {messages:?}");
}

#[tokio::test]
async fn a_deleted_conversation_is_replaced_and_a_reload_changes_keywords() {
    let graph = Graph::start().await;
    let base = number(NUMBER, "demo", "");
    let server = graph.serve(&base, &[]).await;
    put_users(&server, "demo", &[(3, Some("+49 170 1"), None, 1)]).await;
    server.model.script(vec![Reply::text("I do not know.")]);
    deliver(&server, &[text(&server, "w1", "491701", "About me")]).await;
    assert_eq!(graph.answers("491701", 1).await, ["I do not know."]);
    let list = body(server.as_user(3, Method::GET, "/api/conversations").send().await.unwrap()).await;
    let first = list["conversations"][0].clone();
    assert_eq!((&first["channel"], &first["title"]), (&json!("whatsapp"), &json!("About me")));
    let path = format!("/api/conversations/{}", first["id"].as_str().unwrap());
    assert_eq!(server.as_user(3, Method::DELETE, &path).send().await.unwrap().status(), 204);

    let file = server.folder.path().join("werkruf.toml");
    let text_of_file = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text_of_file}[whatsapp.keywords.en]\n\"about me\" = \"get_user_info\"\n")).unwrap();
    assert!(server.operator(Method::POST, "/api/admin/reload").send().await.unwrap().status().is_success());
    let requests = server.model.requests().len();
    deliver(&server, &[text(&server, "w2", "491701", "About me!")]).await;
    let texts = graph.answers("491701", 2).await;
    assert!(texts[1].contains("U3"), "{texts:?}");
    assert_eq!((server.model.requests().len(), count(&server, 3).await), (requests, 1), "no model, and a new conversation");
}

#[tokio::test]
async fn no_result_shows_the_secrets_of_a_number() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", ""), &[]).await;
    let input = json!({"input": {"value": format!("{TOKEN} {SECRET} verify-token-of-the-tests")}});
    let answer = server.as_user(3, Method::POST, "/api/tools/test_echo/invoke").json(&input).send().await.unwrap();
    assert_eq!(body(answer).await["data"], json!({"value": "[redacted] [redacted] [redacted]"}));
}

#[tokio::test]
async fn delivery_reports_move_a_row_forward_only() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", ""), &[]).await;
    put_users(&server, "demo", &[(3, Some("+49 170 1"), None, 1)]).await;
    deliver(&server, &[text(&server, "w1", "491701", "who am i")]).await;
    let sent = rows(&server, |rows| rows.len() == 1 && rows[0]["status"] == "sent").await.remove(0);
    let report = |status: &str| {
        json!({"statuses": [{"id": sent["external_id"], "status": status, "timestamp": "1", "recipient_id": "491701",
            "biz_opaque_callback_data": sent["id"]}]})
    };
    let with = |more: &[(&str, &str)]| {
        let mut row = sent.clone();
        for (name, value) in more {
            row[*name] = Value::from(*value);
        }
        row
    };
    for (status, expected) in [("read", "read"), ("delivered", "read"), ("sent", "read"), ("of_next_year", "read"), ("failed", "read")] {
        assert_eq!(post(&server, payload(NUMBER, &report(status)), SECRET).await, 200);
        let now = rows(&server, |rows| rows.len() == 1).await.remove(0);
        assert_eq!(now, with(&[("status", expected)]), "{status}");
    }
    let errors = json!({"errors": [{"code": 130_429, "title": "Rate limit hit"}]});
    assert_eq!(post(&server, payload(NUMBER, &errors), SECRET).await, 200);
}

#[tokio::test]
async fn a_failed_report_sends_again_or_makes_a_dead_letter_also_without_the_id_of_the_row() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", "template = 'note'"), &[]).await;
    put_users(&server, "demo", &[(3, Some("+49 170 1"), None, 1)]).await;
    let report = async |row: &Value, code: i64| {
        let failed =
            json!({"id": row["external_id"], "status": "failed", "recipient_id": "491701", "errors": [{"code": code, "title": "t"}]});
        assert_eq!(post(&server, payload(NUMBER, &json!({"statuses": [failed]})), SECRET).await, 200);
    };
    deliver(&server, &[text(&server, "w1", "491701", "who am i")]).await;
    let sent = rows(&server, |rows| rows.len() == 1 && rows[0]["status"] == "sent").await.remove(0);
    // Temporary: the same part again, but not before the pause of six seconds for this person.
    report(&sent, 131_056).await;
    let waiting = rows(&server, |rows| rows[0]["status"] != "sent").await.remove(0);
    assert_eq!((&waiting["status"], &waiting["error_code"]), (&json!("pending"), &json!("131056")));
    let next_at: jiff::Timestamp = waiting["next_at"].as_str().unwrap().parse().unwrap();
    assert!(next_at.duration_since(server.app.clock.now()).as_secs() <= 6 && graph.texts("491701").len() == 1);
    let again = rows(&server, |rows| rows[0]["status"] == "sent" && rows[0]["attempts"] == 2).await.remove(0);
    assert_eq!(
        graph.texts("491701").iter().map(|(_, text)| text).collect::<std::collections::HashSet<_>>().len(),
        1,
        "the same text twice"
    );
    // The window closed: a template, at once.
    report(&again, 131_047).await;
    let template = rows(&server, |rows| rows[0]["status"] == "sent" && rows[0]["attempts"] == 3).await.remove(0);
    assert_eq!(graph.texts("491701")[2].1, "", "a template has no text of its own");
    report(&template, 131_026).await;
    let dead = rows(&server, |rows| rows[0]["status"] == "dead").await.remove(0);
    assert_eq!((&dead["error_code"], &dead["attempts"]), (&json!("131026"), &json!(3)));
}

#[tokio::test]
async fn an_old_message_of_an_unknown_sender_is_recorded_without_a_text() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", ""), &[]).await;
    let mut old = text(&server, "w1", "491709", "hello");
    old["timestamp"] = (server.app.clock.now().as_second() - 25 * 3600).to_string().into();
    deliver(&server, &[old]).await;
    assert_eq!(rows(&server, |_| true).await, Vec::<Value>::new());
    deliver(&server, &[text(&server, "w2", "491709", "hello")]).await;
    assert_eq!(rows(&server, |rows| !rows.is_empty()).await.len(), 1, "the old one used up no notice");
}

#[tokio::test]
async fn without_a_number_the_app_is_answered_and_its_messages_are_counted() {
    let graph = Graph::start().await;
    let server = graph.serve("", &[]).await;
    let handshake = "/webhooks/whatsapp?hub.mode=subscribe&hub.challenge=1&hub.verify_token=verify-token-of-the-tests";
    assert_eq!(server.bare(Method::GET, handshake).send().await.unwrap().text().await.unwrap(), "1");
    let message = json!({"messages": [text(&server, "w1", "491701", "who am i")]});
    assert_eq!(post(&server, payload(NUMBER, &message), SECRET).await, 200);
    assert_eq!(post(&server, payload(NUMBER, &message), "wrong").await, 401);
    assert_eq!(rows(&server, |_| true).await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_assistant_may_name_the_tenant_by_its_id_and_the_number_by_its_slug() {
    let graph = Graph::start().await;
    let assistant = "[[assistants]]\nname = 'phone'\ntenant = '00000000-0000-7000-8000-000000000001'\nchannels = ['whatsapp']\n";
    let server = graph.serve(&(number(NUMBER, "demo", "assistant = 'phone'") + assistant), &[]).await;
    put_users(&server, "demo", &[(3, Some("+49 170 1"), None, 1)]).await;
    deliver(&server, &[text(&server, "w1", "491701", "who am i")]).await;
    assert!(graph.answers("491701", 1).await[0].contains("U3"));
}
