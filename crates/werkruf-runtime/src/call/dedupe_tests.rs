use serde_json::{Value, json};
use werkruf_contract::{CallStatus, Effect, ToolSpec, Uuid};
use werkruf_store::{CallRow, Reusable};

use super::{CallIdentity, EarlierCall, judge};
use crate::call::test_rows::once_call;

fn key(arguments: &Value, user: &str) -> Option<String> {
    let (tool, version, about, collections) = ("t", "1", [None; 5], [].as_slice());
    CallIdentity {
        tenant: Uuid::nil(),
        principal: user,
        permissions: "p",
        conversation: None,
        tool,
        version,
        arguments,
        about,
        collections,
        defaults: None,
    }
    .key()
}

#[test]
fn the_order_of_fields_and_the_form_of_numbers_do_not_change_the_key() {
    let a: Value = serde_json::from_str(r#"{"a": 1, "b": [1.0, "ä"]}"#).unwrap();
    let b: Value = serde_json::from_str(r#"{"b": [1, "\u00e4"], "a": 1}"#).unwrap();
    assert_eq!(key(&a, "1"), key(&b, "1"));
    assert_ne!(key(&a, "1"), key(&a, "2"));
    assert_ne!(key(&json!({"a": 1}), "1"), key(&json!({"a": 2}), "1"));
}

fn unknown(turn_id: Uuid) -> CallRow {
    CallRow { turn_id, status: CallStatus::Failed, error_code: Some("outcome_unknown".to_owned()), ..once_call() }
}

#[test]
fn an_unknown_outcome_blocks_its_turn_whatever_messages_come_meanwhile() {
    let spec = ToolSpec::new("pay", "", Effect::Once);
    let (this, next) = (Uuid::from_u128(5), Uuid::from_u128(6));
    let judged = |turn_id, message_since| {
        let earlier = Reusable { call: unknown(this), stale: false, message_since };
        judge(Some(earlier), &spec, turn_id, jiff::Timestamp::UNIX_EPOCH)
    };
    let blocked = EarlierCall::OutcomeUnknown(Uuid::from_u128(9));
    assert_eq!([judged(this, true), judged(this, false), judged(next, false)], [blocked.clone(), blocked.clone(), blocked]);
    assert_eq!(judged(next, true), EarlierCall::None);
}
