//! Stored messages as a provider takes them: every call answered directly after its assistant message, whatever happened.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use werkruf_contract::Uuid;
use werkruf_llm::history_formats::{HistoryFormat, Role, StoredMessage, read};
use werkruf_llm::{HistoryCall, Message};
use werkruf_store::MessageRow;

use crate::brought::Brought;

/// What a provider reads where a result is missing: a crash came between, and recovery has not been here.
const INTERRUPTED: &str =
    r#"{"error":{"type":"FATAL","code":"interrupted","message":"The call was interrupted; its result is not known."}}"#;

/// What a row keeps beside its columns that a provider must see again.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kept {
    carry: Option<Value>,
    /// Pictures and files, as content parts of Chat Completions.
    content: Option<Vec<Value>>,
    brought: bool,
    /// Nobody said anything: the row only marks where what a client brought ends.
    silent: bool,
}

impl Kept {
    fn of(row: &MessageRow) -> Self {
        // Most rows keep nothing, and looking is cheaper than parsing.
        if row.metadata == "{}" { Self::default() } else { serde_json::from_str(&row.metadata).unwrap_or_default() }
    }
}

/// Whether what was said before stands in what a client brought, not in rows.
pub(crate) fn begins_elsewhere(rows: &[MessageRow]) -> bool {
    rows.first().is_some_and(|row| Kept::of(row).brought)
}

/// A client's own history as rows that were never stored; what cannot be read is left out.
pub(crate) fn brought_rows(brought: &Brought) -> Vec<MessageRow> {
    let mut number = 0;
    let mut fresh = || {
        number += 1;
        format!("call_brought_{number}")
    };
    let said = read(HistoryFormat::Openai, &brought.history, &mut fresh).unwrap_or_default();
    said.into_iter().filter(|message| message.role != Role::System).map(brought_row).collect()
}

fn brought_row(message: StoredMessage) -> MessageRow {
    MessageRow {
        id: Uuid::nil(),
        conversation_id: Uuid::nil(),
        created_at: Timestamp::UNIX_EPOCH,
        tool_calls: message.tool_calls_column(),
        role: message.role.as_str().to_owned(),
        content: message.content,
        tool_call_id: message.call_id,
        tool_name: message.tool_name,
        status: message.status.map(|status| status.as_str().to_owned()),
        metadata: Value::Object(message.metadata).to_string(),
        seq: None,
        turn_id: None,
        tokens: None,
    }
}

/// The messages in order. Orphaned results are left out, missing ones are made up.
pub(crate) fn messages(rows: &[MessageRow]) -> Vec<Message> {
    let mut out = Vec::with_capacity(rows.len() + 4);
    let mut open: Vec<HistoryCall> = Vec::new();
    for row in rows {
        if row.role == "tool" {
            let id = row.tool_call_id.as_deref().unwrap_or_default();
            if let Some(at) = open.iter().position(|call| call.id == id) {
                let call = open.swap_remove(at);
                out.push(Message::Tool { call_id: call.id, name: call.name, content: row.content.clone() });
            }
            continue;
        }
        close(&mut out, &mut open);
        match row.role.as_str() {
            "assistant" => {
                open = row.tool_calls.as_deref().and_then(HistoryCall::of_column).unwrap_or_default();
                out.push(Message::Assistant { content: row.content.clone(), calls: open.clone(), carry: Kept::of(row).carry });
            }
            _ => {
                let kept = Kept::of(row);
                if !kept.silent {
                    out.push(Message::User { content: row.content.clone(), parts: kept.content.unwrap_or_default() });
                }
            }
        }
    }
    close(&mut out, &mut open);
    out
}

/// A turn that waited while others ran is answered as the newest: its own messages come last, in their order.
pub(crate) fn own_last(rows: &mut [MessageRow], turn_id: Uuid) {
    rows.sort_by_key(|row| row.turn_id == Some(turn_id));
}

/// Bytes per token where nobody counted.
const BYTES_PER_TOKEN: usize = 4;

/// The newest messages within so many tokens, cut before a person's message so that no call loses its result. The last
/// message of the person and what follows it always stay. Also whether anything was left out.
pub(crate) fn within(messages: Vec<Message>, tokens: Option<u64>) -> (Vec<Message>, bool) {
    let Some(room) = tokens.and_then(|tokens| usize::try_from(tokens).ok()).map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN)) else {
        return (messages, false);
    };
    let (mut taken, mut first) = (0_usize, None);
    for (at, message) in messages.iter().enumerate().rev() {
        taken = taken.saturating_add(size(message));
        if taken > room && first.is_some() {
            break;
        }
        if matches!(message, Message::User { .. }) {
            first = Some(at);
        }
    }
    let first = first.unwrap_or(0);
    (messages.into_iter().skip(first).collect(), first > 0)
}

fn size(message: &Message) -> usize {
    match message {
        Message::User { content, .. } | Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, calls, .. } => {
            content.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
    }
}

fn close(out: &mut Vec<Message>, open: &mut Vec<HistoryCall>) {
    for call in open.drain(..) {
        out.push(Message::Tool { call_id: call.id, name: call.name, content: INTERRUPTED.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use werkruf_contract::Uuid;
    use werkruf_llm::{HistoryCall, Message};
    use werkruf_store::MessageRow;

    use werkruf_llm::history_formats::column;

    use super::{INTERRUPTED, messages, within};

    fn row(role: &str, content: &str, tool_calls: Option<String>, tool_call_id: Option<&str>) -> MessageRow {
        MessageRow {
            id: Uuid::nil(),
            conversation_id: Uuid::nil(),
            created_at: Timestamp::UNIX_EPOCH,
            content: content.to_owned(),
            role: role.to_owned(),
            tool_calls,
            tool_call_id: tool_call_id.map(str::to_owned),
            tool_name: None,
            status: None,
            metadata: "{}".to_owned(),
            seq: Some(1),
            turn_id: None,
            tokens: None,
        }
    }

    fn call(id: &str, arguments: &str) -> HistoryCall {
        HistoryCall { id: id.to_owned(), name: "t".to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn a_budget_cuts_before_a_message_of_the_person_and_keeps_the_last() {
        let user = |content: &str| Message::user(content.to_owned());
        let said = |content: &str| Message::Assistant { content: content.to_owned(), calls: Vec::new(), carry: None };
        let all = vec![user("aaaaaaaa"), said("bbbbbbbb"), user("cccc"), said("dddd"), user("eeee")];
        assert_eq!(within(all.clone(), None), (all.clone(), false));
        assert_eq!(within(all.clone(), Some(1000)), (all.clone(), false));
        assert_eq!(within(all.clone(), Some(3)), (all[2..].to_vec(), true));
        assert_eq!(within(all.clone(), Some(0)), (all[4..].to_vec(), true));
    }

    #[test]
    fn every_call_is_answered_and_orphans_are_dropped() {
        let calls = vec![call("a", r#"{"x":1}"#), call("b", "{broken")];
        let rows = [
            row("user", "hi", None, None),
            row("tool", "orphan", None, Some("zzz")),
            row("assistant", "", Some(column(&calls)), None),
            row("tool", "1", None, Some("a")),
            row("user", "and?", None, None),
        ];
        assert_eq!(
            messages(&rows),
            [
                Message::user("hi"),
                Message::Assistant { content: String::new(), calls, carry: None },
                Message::Tool { call_id: "a".to_owned(), name: "t".to_owned(), content: "1".to_owned() },
                Message::Tool { call_id: "b".to_owned(), name: "t".to_owned(), content: INTERRUPTED.to_owned() },
                Message::user("and?"),
            ]
        );
    }
}
