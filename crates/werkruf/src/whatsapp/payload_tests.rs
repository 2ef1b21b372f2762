use serde_json::json;

use super::*;

fn payload(value: &Value) -> Vec<u8> {
    json!({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}]})
        .to_string()
        .into_bytes()
}

fn of_number(more: &Value) -> Value {
    let mut value = json!({"messaging_product": "whatsapp", "metadata": {"display_phone_number": "4930123", "phone_number_id": "55501"},
        "contacts": [{"wa_id": "491701", "user_id": "DE.77", "profile": {"name": "Clara"}}]});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

fn one_message(message: &Value) -> Value {
    let mut whole = json!({"from": "491701", "id": "wamid.1", "timestamp": "1700000000"});
    whole.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
    let events = parse(&payload(&of_number(&json!({"messages": [whole]})))).unwrap();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    serde_json::to_value(event).unwrap()
}

/// A message of Clara's with these fields; the others are null.
fn expected(more: &Value) -> Value {
    let mut event = json!({"event": "message", "id": "wamid.1", "from_phone": "491701", "from_user_id": "DE.77", "name": "Clara",
        "phone_number_id": "55501", "timestamp": 1_700_000_000, "text": null, "reply_id": null, "in_reply_to": null, "media_id": null,
        "errors": null});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[test]
fn every_type_of_message_is_read() {
    let file = json!({"id": "f1", "mime_type": "image/png", "caption": "a leak"});
    for (message, event) in [
        (json!({"type": "text", "text": {"body": "hi"}}), json!({"type": "text", "text": "hi"})),
        (
            json!({"type": "text", "text": {"body": "hi"}, "context": {"from": "1", "id": "wamid.0"}}),
            json!({"type": "text", "text": "hi", "in_reply_to": "wamid.0"}),
        ),
        (json!({"type": "image", "image": file}), json!({"type": "image", "text": "a leak", "media_id": "f1"})),
        (json!({"type": "audio", "audio": {"id": "f2", "voice": true}}), json!({"type": "audio", "media_id": "f2"})),
        (json!({"type": "document", "document": {"id": "f3", "caption": " "}}), json!({"type": "document", "media_id": "f3"})),
        (json!({"type": "sticker", "sticker": {"id": "f4"}}), json!({"type": "sticker", "media_id": "f4"})),
        (json!({"type": "location", "location": {"latitude": 1.5}}), json!({"type": "location"})),
        (json!({"type": "contacts", "contacts": [{"name": {}}]}), json!({"type": "contacts"})),
        (json!({"type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "x"}}), json!({"type": "reaction"})),
        (json!({"type": "button", "button": {"payload": "p", "text": "Yes"}}), json!({"type": "button", "text": "Yes", "reply_id": "p"})),
        (
            json!({"type": "interactive", "interactive": {"type": "button_reply", "button_reply": {"id": "b", "title": "Go"}}}),
            json!({"type": "interactive/button_reply", "text": "Go", "reply_id": "b"}),
        ),
        (
            json!({"type": "interactive", "interactive": {"type": "list_reply", "list_reply": {"id": "l", "title": "Row"}}}),
            json!({"type": "interactive/list_reply", "text": "Row", "reply_id": "l"}),
        ),
        (json!({"type": "interactive", "interactive": {"type": "nfm_reply"}}), json!({"type": "interactive/nfm_reply"})),
        (json!({"type": "interactive"}), json!({"type": "interactive"})),
        (json!({"type": "unsupported", "errors": [{"code": 131051}]}), json!({"type": "unsupported", "errors": [131_051]})),
        (json!({"type": "of_next_year", "of_next_year": 7}), json!({"type": "of_next_year"})),
    ] {
        assert_eq!(one_message(&message), expected(&event));
    }
}

#[test]
fn a_batch_keeps_the_order_and_each_message_its_own_sender() {
    let contacts = json!([{"wa_id": "491701", "profile": {"name": "Clara"}}, {"user_id": "AR.5", "profile": {"name": "Dora"}}]);
    let messages = json!([
        {"id": "a", "from": "491701", "type": "text", "text": {"body": "1"}, "timestamp": 5},
        {"id": "b", "from_user_id": "AR.5", "type": "text", "text": {"body": "2"}},
        {"id": "c", "from": "AR.5", "type": "text", "text": {"body": "3"}},
        {"id": "d", "from": "4999", "type": "system", "system": {"body": "changed"}},
        {"from": "491701", "type": "text", "text": {"body": "without an id"}},
        "no message",
    ]);
    let statuses = json!([
        {"id": "w", "status": "failed", "recipient_id": "491701", "timestamp": "9", "biz_opaque_callback_data": "row-1",
         "errors": [{"code": 131_047, "title": "t", "error_data": {"details": "more than 24 hours"}}]},
        {"id": "x", "status": "read"},
        {"status": "read"},
    ]);
    let errors = json!([{"code": 130_429, "title": "Rate limit hit"}]);
    let value = of_number(&json!({"contacts": contacts, "messages": messages, "statuses": statuses, "errors": errors}));
    let events = parse(&payload(&value)).unwrap();
    let told: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let sender = |event: &Value| (event["id"].clone(), event["from_phone"].clone(), event["from_user_id"].clone(), event["name"].clone());
    assert_eq!(
        told[..4].iter().map(sender).collect::<Vec<_>>(),
        [
            (json!("a"), json!("491701"), Value::Null, json!("Clara")),
            (json!("b"), Value::Null, json!("AR.5"), json!("Dora")),
            (json!("c"), Value::Null, json!("AR.5"), json!("Dora")),
            (json!("d"), json!("4999"), Value::Null, Value::Null),
        ]
    );
    assert_eq!(told[0]["timestamp"], 5);
    let failed = json!({"event": "status", "id": "w", "status": "failed", "recipient": "491701", "timestamp": 9, "errors": [131_047]});
    let read = json!({"event": "status", "id": "x", "status": "read", "recipient": null, "timestamp": null, "errors": null});
    let error = json!({"event": "error", "phone_number_id": "55501", "code": 130_429, "title": "Rate limit hit"});
    assert_eq!(told[4..], [failed, read, error]);
    let Event::Status(status) = &events[4] else { panic!() };
    assert_eq!((status.callback_data.as_deref(), status.message.as_deref()), (Some("row-1"), Some("more than 24 hours")));
}

#[test]
fn half_a_character_does_not_keep_a_batch_away() {
    let messages = |text: &str| {
        let first = format!(r#"{{"id": "a", "from": "491701", "type": "text", "text": {{"body": "{text}"}}}}"#);
        let second = r#"{"id": "b", "from": "491701", "type": "text", "text": {"body": "whole"}}"#;
        let value = format!(r#"{{"metadata": {{"phone_number_id": "1"}}, "messages": [{first}, {second}]}}"#);
        let events = parse(format!(r#"{{"entry": [{{"changes": [{{"value": {value}}}]}}]}}"#).as_bytes())?;
        let text = |event: &Event| match event {
            Event::Message(message) => message.text.clone().unwrap_or_default(),
            _ => String::new(),
        };
        Ok::<_, PayloadFault>(events.iter().map(text).collect::<Vec<_>>())
    };
    for (written, read) in [
        (r"cut \ud83d", "cut \u{fffd}"),
        (r"\uDE00 cut", "\u{fffd} cut"),
        (r"\ud83d\ud83d\ude00 \ud83d\n", "\u{fffd}😀 \u{fffd}\n"),
        (r"\ud83d \\ud83d", "\u{fffd} \\ud83d"),
    ] {
        assert_eq!(messages(written), Ok(vec![read.to_owned(), "whole".to_owned()]), "{written}");
    }
    assert!(matches!(messages(r"\ud83d \x"), Err(PayloadFault::NotJson(_))), "another fault stays one");
}

#[test]
fn what_is_no_payload_is_refused_and_what_is_empty_has_no_events() {
    assert!(matches!(parse(b"{"), Err(PayloadFault::NotJson(_))));
    assert_eq!(parse(b"{}"), Err(PayloadFault::NotWhatsApp));
    assert_eq!(parse(b"[1]"), Err(PayloadFault::NotWhatsApp));
    assert_eq!(parse(br#"{"entry": [1, {}, {"changes": [{"value": {"messages": [{"id": "a", "type": "text"}]}}]}]}"#), Ok(Vec::new()));
    let zeros = format!("{{\"entry\": [{}0]}}", "0,".repeat(100_001));
    assert_eq!(parse(zeros.as_bytes()), Err(PayloadFault::TooMany));
}
