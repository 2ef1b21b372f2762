//! The benchmark's model over Responses: the same behaviour as over Chat Completions, in that API's events.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fixed::{TEXT, Wanted};

const STARTED: &str = concat!(
    r#"data: {"type":"response.created","response":{"id":"resp_fixed","object":"response","created_at":1700000000,"status":"in_progress","#,
    r#""model":"fixed","output":[]}}"#,
    "\n\n"
);

/// The text of every response without calls.
pub(super) fn text_stream(pieces: usize) -> String {
    let mut out = String::from(STARTED);
    out.push_str(r#"data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_fixed","role":"assistant","status":"in_progress","content":[]}}"#);
    out.push_str("\n\n");
    let mut text = String::new();
    for piece in 1..=pieces {
        let delta = format!("{TEXT}{piece} ");
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "data: {{\"type\":\"response.output_text.delta\",\"item_id\":\"msg_fixed\",\"output_index\":0,\"content_index\":0,\"delta\":\"{delta}\"}}\n\n"
        );
        text.push_str(&delta);
    }
    let item = format!(
        r#"{{"type":"message","id":"msg_fixed","role":"assistant","status":"completed","content":[{{"type":"output_text","text":"{text}","annotations":[]}}]}}"#
    );
    finish(&mut out, &[item]);
    out
}

/// Calls, one after another.
pub(super) fn call_stream(wanted: &Wanted, counter: &AtomicU64) -> String {
    let mut out = String::from(STARTED);
    let mut items = Vec::new();
    for index in 0..wanted.calls {
        let id = counter.fetch_add(1, Ordering::Relaxed);
        let (tool, arguments) = (&wanted.tool, wanted.quoted_arguments(index));
        let item = |arguments: &str, status: &str| {
            format!(
                r#"{{"type":"function_call","id":"fc_{id}","call_id":"call_{id}","name":"{tool}","arguments":"{arguments}","status":"{status}"}}"#
            )
        };
        let started = item("", "in_progress");
        let _ = write!(
            out,
            "data: {{\"type\":\"response.output_item.added\",\"output_index\":{index},\"item\":{started}}}\n\n\
             data: {{\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc_{id}\",\"output_index\":{index},\"delta\":\"{arguments}\"}}\n\n"
        );
        items.push(item(&arguments, "completed"));
    }
    finish(&mut out, &items);
    out
}

fn finish(out: &mut String, items: &[String]) {
    for (index, item) in items.iter().enumerate() {
        let _ = write!(out, "data: {{\"type\":\"response.output_item.done\",\"output_index\":{index},\"item\":{item}}}\n\n");
    }
    let usage = r#"{"input_tokens":100,"output_tokens":31,"total_tokens":131}"#;
    let _ = write!(
        out,
        "data: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"resp_fixed\",\"object\":\"response\",\"created_at\":1700000000,\
         \"status\":\"completed\",\"model\":\"fixed\",\"output\":[{}],\"usage\":{usage}}}}}\n\n",
        items.join(",")
    );
}
