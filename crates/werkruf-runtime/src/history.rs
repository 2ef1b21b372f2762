//! Stored messages as a provider takes them: every call answered directly after its assistant message, whatever happened.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use werkruf_contract::Uuid;
use werkruf_llm::history_formats::{HistoryFormat, Role, StoredMessage, read};
use werkruf_llm::{HistoryCall, Message};
use werkruf_store::MessageRow;

use crate::brought::ClientRequest;

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
pub(crate) fn brought_rows(brought: &ClientRequest) -> Vec<MessageRow> {
    let mut number = 0;
    let mut fresh = || {
        number += 1;
        format!("call_brought_{number}")
    };
    let said = read(HistoryFormat::Openai, &brought.history, &mut fresh).unwrap_or_default();
    let mut rows: Vec<MessageRow> = said.into_iter().filter(|message| message.role != Role::System).map(brought_row).collect();
    for (row, place) in rows.iter_mut().rev().zip(0..) {
        // Before the first row there is.
        row.seq = Some(-place);
    }
    rows
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

/// Where a message of the history stands in the store, and how long it is known to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) id: Option<Uuid>,
    pub(crate) seq: Option<i64>,
    pub(crate) tokens: Option<u64>,
}

impl Origin {
    fn of(row: &MessageRow) -> Self {
        let tokens = row.tokens.and_then(|tokens| u64::try_from(tokens).ok());
        Self { id: Some(row.id).filter(|id| !id.is_nil()), seq: row.seq, tokens }
    }
}

/// What was said before, and beside each message where it is from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) messages: Vec<Message>,
    pub(crate) origins: Vec<Origin>,
}

impl Past {
    /// A message nobody looked up.
    pub(crate) fn just(message: Message) -> Self {
        Self { messages: vec![message], origins: vec![Origin::default()] }
    }

    /// The messages in order. Orphaned results are left out, missing ones are made up.
    pub(crate) fn of(rows: &[MessageRow]) -> Self {
        let mut past = Self { messages: Vec::with_capacity(rows.len() + 4), origins: Vec::with_capacity(rows.len() + 4) };
        let mut open: Vec<HistoryCall> = Vec::new();
        for row in rows {
            if row.role == "tool" {
                let id = row.tool_call_id.as_deref().unwrap_or_default();
                if let Some(at) = open.iter().position(|call| call.id == id) {
                    let call = open.swap_remove(at);
                    past.push(Message::Tool { call_id: call.id, name: call.name, content: row.content.clone() }, Origin::of(row));
                }
                continue;
            }
            past.close(&mut open);
            match row.role.as_str() {
                "assistant" => {
                    open = row.tool_calls.as_deref().and_then(HistoryCall::of_column).unwrap_or_default();
                    let carry = Kept::of(row).carry;
                    past.push(Message::Assistant { content: row.content.clone(), calls: open.clone(), carry }, Origin::of(row));
                }
                "system" => past.push(Message::System { content: row.content.clone() }, Origin::of(row)),
                _ => {
                    let kept = Kept::of(row);
                    if !kept.silent {
                        let parts = kept.content.unwrap_or_default();
                        past.push(Message::User { content: row.content.clone(), parts }, Origin::of(row));
                    }
                }
            }
        }
        past.close(&mut open);
        past
    }

    fn push(&mut self, message: Message, origin: Origin) {
        self.messages.push(message);
        self.origins.push(origin);
    }

    fn close(&mut self, open: &mut Vec<HistoryCall>) {
        for call in open.drain(..) {
            let seq = self.origins.last().and_then(|origin| origin.seq);
            let message = Message::Tool { call_id: call.id, name: call.name, content: INTERRUPTED.to_owned() };
            self.push(message, Origin { seq, ..Origin::default() });
        }
    }
}

/// A turn that waited while others ran is answered as the newest: its own messages come last, in their order.
pub(crate) fn own_last(rows: &mut [MessageRow], turn_id: Uuid) {
    rows.sort_by_key(|row| row.turn_id == Some(turn_id));
}

/// Bytes per token where nobody counted.
const BYTES_PER_TOKEN: usize = 4;

/// How many tokens a message has, roughly.
pub(crate) fn estimated(message: &Message) -> u64 {
    u64::try_from(text_bytes(message).div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

fn text_bytes(message: &Message) -> usize {
    match message {
        Message::System { content } | Message::User { content, .. } | Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, calls, .. } => {
            content.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
    }
}

/// Where the newest messages within so many tokens begin: before a person's message, so that no call loses its result. The last
/// message of the person and what follows it always stay.
pub(crate) fn first_within(messages: &[Message], sizes: &[u64], room: u64) -> usize {
    let (mut taken, mut first) = (0_u64, None);
    for (at, (message, size)) in messages.iter().zip(sizes).enumerate().rev() {
        taken = taken.saturating_add(*size);
        if taken > room && first.is_some() {
            break;
        }
        if matches!(message, Message::User { .. }) {
            first = Some(at);
        }
    }
    first.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use werkruf_contract::Uuid;
    use werkruf_llm::{HistoryCall, Message};
    use werkruf_store::MessageRow;

    use werkruf_llm::history_formats::column;

    use super::{INTERRUPTED, Past, estimated, first_within};

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
        let sizes: Vec<u64> = all.iter().map(estimated).collect();
        assert_eq!(sizes, [2, 2, 1, 1, 1]);
        let first = |room: u64| first_within(&all, &sizes, room);
        assert_eq!([first(1000), first(7), first(6), first(3), first(2), first(0)], [0, 0, 2, 2, 4, 4]);
    }

    #[test]
    fn what_the_model_was_told_to_heed_stays_what_it_is() {
        let rows = [row("system", "Be brief.", None, None), row("user", "hi", None, None)];
        assert_eq!(Past::of(&rows).messages, [Message::System { content: "Be brief.".to_owned() }, Message::user("hi")]);
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
            Past::of(&rows).messages,
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
