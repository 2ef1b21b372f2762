use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::{Clock, Uuid};
use werkruf_store::{MessageChange, MessageRow, NewMessage};

use super::{NewRows, new_rows, of_row, place, removal};

fn clock() -> Clock {
    Clock::system(0)
}

fn row(message: &NewMessage) -> MessageRow {
    MessageRow {
        id: message.id,
        conversation_id: Uuid::nil(),
        created_at: Timestamp::UNIX_EPOCH,
        content: message.content.clone(),
        role: message.role.to_owned(),
        tool_calls: message.tool_calls.clone(),
        tool_call_id: message.tool_call_id.clone(),
        tool_name: message.tool_name.clone(),
        status: message.status.map(str::to_owned),
        metadata: message.metadata.clone().unwrap_or_else(|| "{}".to_owned()),
        seq: Some(1),
        turn_id: None,
        tokens: None,
    }
}

fn stored(items: &Value) -> (Vec<MessageRow>, NewRows) {
    let rows = new_rows(&clock(), items.as_array().unwrap().clone(), &[]).unwrap();
    (rows.messages.iter().map(row).collect(), rows)
}

fn kinds(rows: &[MessageRow]) -> Vec<String> {
    rows.iter().flat_map(of_row).map(|item| item["type"].as_str().unwrap().to_owned()).collect()
}

fn asked() -> Value {
    json!([
        {"role": "user", "content": "Weather?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ])
}

#[test]
fn items_are_stored_and_listed_in_their_order() {
    let (rows, made) = stored(&asked());
    assert_eq!(
        rows.iter().map(|row| (row.role.as_str(), row.status.as_deref())).collect::<Vec<_>>(),
        [("user", None), ("assistant", None), ("tool", Some("success")), ("tool", Some("pending")),]
    );
    assert_eq!(kinds(&rows), ["message", "message", "function_call", "function_call", "function_call_output"]);
    assert_eq!(rows.iter().flat_map(of_row).collect::<Vec<_>>(), made.items);
    assert_eq!(made.items[0]["content"], json!([{"type": "input_text", "text": "Weather?"}]));
    assert!(made.items.iter().all(|item| item["status"] == "completed" && place(item["id"].as_str().unwrap()).is_some()));
    let output = json!([{"type": "function_call_output", "call_id": "c2", "output": "rain"}]);
    let later = new_rows(&clock(), output.as_array().unwrap().clone(), &rows).unwrap();
    assert_eq!((later.results.len(), later.messages.len(), later.results[0].tool_call_id.as_str()), (1, 0, "c2"));
    assert_eq!(place(later.items[0]["id"].as_str().unwrap()).unwrap().0, rows[3].id, "the waiting row gets the output");
    let again = json!([{"type": "function_call_output", "call_id": "c1", "output": "snow"}]);
    assert!(new_rows(&clock(), again.as_array().unwrap().clone(), &rows).is_err(), "the call has its output");
}

#[test]
fn an_id_that_comes_again_is_replaced() {
    let (rows, _) = stored(&asked());
    let again = json!([
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "snow"},
    ]);
    let made = new_rows(&clock(), again.as_array().unwrap().clone(), &rows).unwrap();
    let (call, result) = (&made.messages[0], &made.messages[1]);
    let id = result.tool_call_id.clone().unwrap();
    assert!(id != "c1" && call.tool_calls.as_ref().unwrap().contains(&id) && result.content == "snow");
}

#[test]
fn removing_an_item_keeps_the_history_valid() {
    let (rows, made) = stored(&asked());
    let id = |at: usize| made.items[at]["id"].as_str().unwrap();
    let changes = |at: usize| removal(&rows, id(at)).unwrap().into_iter().map(|edit| (edit.id, edit.change)).collect::<Vec<_>>();
    assert_eq!(changes(0), [(rows[0].id, MessageChange::Delete)]);
    assert_eq!(changes(4), [(rows[2].id, MessageChange::Reopen)], "the call waits again");
    let [(result, MessageChange::Delete), (message, MessageChange::Replace { content, tool_calls, .. })] = &changes(2)[..] else {
        panic!("two changes")
    };
    assert_eq!((*result, *message, content.as_str()), (rows[2].id, rows[1].id, "I look."));
    assert!(tool_calls.as_ref().unwrap().contains("c2") && !tool_calls.as_ref().unwrap().contains("c1"));
    let [(_, MessageChange::Replace { content, tool_calls, .. })] = &changes(1)[..] else { panic!("one change") };
    assert!(content.is_empty() && tool_calls.as_ref().unwrap().contains("c1"));
    let (single, made) = stored(&json!([{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]));
    let edits = removal(&single, made.items[0]["id"].as_str().unwrap()).unwrap();
    assert_eq!(
        edits.iter().map(|edit| (edit.id, edit.change.clone())).collect::<Vec<_>>(),
        [(single[1].id, MessageChange::Delete), (single[0].id, MessageChange::Delete),]
    );
    for unknown in ["msg_1", "x", &format!("msg_{}_0", Uuid::nil().simple()), &id(0).replace("msg", "fc")] {
        assert_eq!(removal(&rows, unknown), None, "{unknown}");
    }
}
