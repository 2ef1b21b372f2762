use std::time::Duration;

use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, CallStatus, TurnStatus};
use werkruf_store::{Fence, OutboxStatus};

use super::*;
use crate::assistant::Assistants;
use crate::channel::{Channel, OverLimit, SendResult};
use crate::channels::Webhook;

/// A channel that cuts texts into words.
#[derive(Debug)]
struct Words;

impl Channel for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn parts(&self, text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn send<'a>(&'a self, _: &'a OutboxRow) -> BoxFuture<'a, SendResult> {
        Box::pin(async { SendResult::Sent { external_id: None } })
    }

    fn reconcile_after(&self) -> Duration {
        Duration::ZERO
    }
}

fn webhook(name: &str, tenant: Option<&str>, events: &[Notification]) -> Webhook {
    Webhook { name: name.to_owned(), tenant: tenant.map(str::to_owned), events: events.to_vec() }
}

fn audience(webhooks: Vec<Webhook>, inbound: Option<&Inbound>) -> Audience {
    let setup = Setup {
        registry: Default::default(),
        assistants: Assistants::new(Vec::new()),
        channels: Channels::new(vec![Arc::new(Words)], webhooks),
        safety: Default::default(),
        prices: Default::default(),
        four_eyes: true,
        provider_role: "admin".to_owned(),
        redaction: Default::default(),
        log_arguments: false,
        alerts: Default::default(),
    };
    let owner = TurnOwner {
        tenant_id: Uuid::from_u128(1),
        tenant_slug: "demo".to_owned(),
        conversation_id: Some(Uuid::from_u128(2)),
        turn_id: Uuid::from_u128(3),
        user_id: "7".to_owned(),
    };
    let clock = Clock::driven(|| Timestamp::from_second(1_700_000_000).unwrap(), 1);
    Audience::new(owner, Arc::new(setup), clock, inbound)
}

fn inbound(over_limit: Option<OverLimit>) -> Inbound {
    let reply_to = ReplyTo { channel: "words".to_owned(), account: "a".to_owned(), address: "49".to_owned() };
    Inbound { reply_to, direct: None, over_limit }
}

fn change(status: TurnStatus, error: Option<(&str, &str)>, message: Option<&str>) -> TurnChange {
    let error = error.map(|(code, message)| (json!({"code": code, "message": message}).to_string(), code.to_owned()));
    TurnChange { status, step: 1, error, message: message.map(str::to_owned), transcript_digest: None }
}

fn write(audience: &Audience, turn: Option<TurnChange>) -> TurnWrite {
    let TurnOwner { tenant_id, conversation_id, turn_id, user_id, .. } = audience.owner.clone();
    let fence = Fence { tenant_id, stream_id: turn_id, owner: String::new(), epoch: 0 };
    TurnWrite { turn, ..TurnWrite::new(turn_id, fence, conversation_id, turn_id, user_id, audience.clock.now()) }
}

/// Lane and body of each row.
fn sent(rows: &[NewOutboxRow]) -> Vec<(String, Value)> {
    rows.iter().map(|row| (row.recipient.lane.clone(), serde_json::from_str(&row.body).unwrap())).collect()
}

#[test]
fn an_answer_is_one_row_per_part_in_order() {
    let inbound = inbound(None);
    let audience = audience(Vec::new(), Some(&inbound));
    let rows = audience.rows_of(&write(&audience, Some(change(TurnStatus::Completed, None, Some("one two  three")))));
    let expected = ["one", "two", "three"].map(|word| ("words:a:49".to_owned(), json!({"type": "text", "text": word})));
    assert_eq!(sent(&rows), expected);
    assert!(rows.is_sorted_by_key(|row| row.id) && rows.iter().all(|row| !row.repeatable && row.recipient.user_id.as_deref() == Some("7")));
    // A turn that goes on, and a turn of another channel, say nothing.
    assert_eq!(audience.rows_of(&write(&audience, Some(change(TurnStatus::Acting, None, Some("text"))))), []);
}

#[test]
fn an_error_is_told_to_the_person_unless_they_know() {
    let failed = || Some(change(TurnStatus::Failed, Some(("too_many_turns", "Slowly")), None));
    let told = inbound(Some(OverLimit { retry_after_ms: 1, silent: false, code: None }));
    let loud = audience(Vec::new(), Some(&told));
    assert_eq!(sent(&loud.rows_of(&write(&loud, failed()))), [("words:a:49".to_owned(), json!({"type": "text", "text": "Slowly"}))]);
    let known = inbound(Some(OverLimit { retry_after_ms: 1, silent: true, code: None }));
    let silent = audience(Vec::new(), Some(&known));
    assert_eq!(silent.rows_of(&write(&silent, failed())), []);
    let web = audience(Vec::new(), None);
    assert_eq!(web.rows_of(&write(&web, failed())), [], "a turn of the web");
}

#[test]
fn programs_get_what_they_subscribed_to() {
    let all = Notification::ALL;
    let webhooks =
        vec![webhook("crm", None, &all), webhook("own", Some("demo"), &[Notification::TurnFailed]), webhook("other", Some("acme"), &all)];
    let audience = audience(webhooks, None);
    let mut ended = write(&audience, Some(change(TurnStatus::Canceled, Some(("canceled", "Stopped")), None)));
    let call_id = Uuid::from_u128(9);
    let unknown = CallEnd { error_code: Some("outcome_unknown".to_owned()), ..CallEnd::new(call_id, CallStatus::Failed, ended.now) };
    ended.ends.push(unknown);
    ended.ends.push(CallEnd::new(Uuid::from_u128(10), CallStatus::Succeeded, ended.now));
    let rows = audience.rows_of(&ended);
    let head = |row: &NewOutboxRow, kind: &str, more: Value| {
        let mut event = json!({"id": row.id, "type": kind, "at": "2023-11-14T22:13:20.000Z", "tenant_id": Uuid::from_u128(1),
            "conversation_id": Uuid::from_u128(2), "turn_id": Uuid::from_u128(3), "user_id": "7"});
        event.as_object_mut().unwrap().extend(object(more));
        (row.recipient.lane.clone(), json!({"type": "notification", "event": event}))
    };
    let failed = || json!({"status": "canceled", "error_code": "canceled"});
    let expected = [
        head(&rows[0], "outcome_unknown", json!({"call_id": call_id, "status": "failed"})),
        head(&rows[1], "turn_failed", failed()),
        head(&rows[2], "turn_failed", failed()),
    ];
    assert_eq!(sent(&rows), expected);
    let conversation = Uuid::from_u128(2);
    let lanes: Vec<&str> = rows.iter().map(|row| row.recipient.lane.as_str()).collect();
    assert_eq!(
        lanes,
        [format!("webhook:crm:{conversation}"), format!("webhook:crm:{conversation}"), format!("webhook:own:{conversation}")]
    );
    assert!(rows.iter().all(|row| row.repeatable && row.recipient.user_id.as_deref() == Some("7")));
}

#[test]
fn the_person_learns_whose_approval_is_needed() {
    let inbound = inbound(None);
    let audience = audience(Vec::new(), Some(&inbound));
    let roles = ["admin".to_owned(), "lead".to_owned()];
    let rows = audience.waits(&[("create_request", &roles)], &Texts::of("en"));
    let words: Vec<Value> = sent(&rows).into_iter().map(|(_, body)| body["text"].clone()).collect();
    let text = words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(text, "This needs an approval by admin, lead: create request. You get an answer here as soon as it is decided.");
    assert_eq!(audience.waits(&[], &Texts::of("en")), []);
}

#[test]
fn a_dead_row_is_told_to_others_and_never_to_itself() {
    let audience = audience(vec![webhook("a", None, &Notification::ALL), webhook("b", None, &Notification::ALL)], None);
    let dead = |channel: &str, account: &str, kind: &str| {
        let recipient = Recipient {
            channel: channel.to_owned(),
            account: account.to_owned(),
            address: String::new(),
            user_id: Some("7".to_owned()),
            lane: String::new(),
        };
        let row = OutboxRow {
            id: Uuid::from_u128(5),
            tenant_id: Uuid::from_u128(1),
            recipient,
            conversation_id: None,
            turn_id: None,
            approval_id: None,
            part: 1,
            body: json!({"type": "notification", "event": {"type": kind}}).to_string(),
            status: OutboxStatus::Sending,
            repeatable: true,
            ambiguous: false,
            attempts: 10,
            error_code: None,
            error: None,
            external_id: None,
            next_at: audience.clock.now(),
            first_at: None,
            created_at: audience.clock.now(),
            updated_at: audience.clock.now(),
        };
        let tenant = Tenant { id: Uuid::from_u128(1), slug: "demo" };
        let rows = dead_letter(&audience.setup.channels, tenant, &row, "http_410", &audience.clock);
        rows.into_iter().map(|row| row.recipient.account).collect::<Vec<_>>()
    };
    assert_eq!(dead("words", "a", "text"), ["a", "b"], "the account of another channel");
    assert_eq!(dead(WEBHOOK, "a", "turn_finished"), ["b"]);
    assert_eq!(dead(WEBHOOK, "a", "dead_letter"), Vec::<String>::new());
}
