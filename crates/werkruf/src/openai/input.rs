//! What a client sends, taken apart: what its program says, what was said before, and what is new.

use serde_json::Value;
use werkruf_llm::history_formats::{self, FormatFault, HistoryFormat, Role, StoredMessage};
use werkruf_runtime::ClientResult;

use super::seen::{self, Sight};

/// A client's messages, read. System texts are not among them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Input {
    /// System and developer texts, in order.
    pub(crate) instructions: Vec<String>,
    messages: Vec<StoredMessage>,
    /// Where the new input begins: behind the last thing the assistant said.
    new: usize,
}

/// The person's part of the new input.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Content parts of Chat Completions, where there is more than text.
    pub(crate) parts: Vec<Value>,
}

impl Input {
    /// Reads messages or items.
    pub(crate) fn read(format: HistoryFormat, values: &[Value], fresh: &mut dyn FnMut() -> String) -> Result<Self, FormatFault> {
        let read = history_formats::read(format, values, fresh)?;
        let (mut system, mut messages): (Vec<_>, Vec<_>) = read.into_iter().partition(|message| message.role == Role::System);
        // A request of nothing but instructions is still a question.
        if messages.is_empty()
            && let Some(last) = system.pop()
        {
            messages.push(StoredMessage { role: Role::User, metadata: serde_json::Map::new(), ..last });
        }
        let new = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |at| at + 1);
        let instructions = system.into_iter().map(|message| message.content).filter(|text| !text.trim().is_empty()).collect();
        Ok(Self { instructions, messages, new })
    }

    /// Whether there is anything at all.
    pub(crate) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the assistant has said something in it.
    pub(crate) const fn is_continued(&self) -> bool {
        self.new > 0
    }

    /// Results of calls that the client ran, among the new input.
    pub(crate) fn results(&self) -> Vec<ClientResult> {
        let result = |message: &StoredMessage| {
            Some(ClientResult {
                call_id: message.call_id.clone().filter(|_| message.role == Role::Tool)?,
                content: message.content.clone(),
            })
        };
        self.messages[self.new..].iter().filter_map(result).collect()
    }

    /// All new words of the person as one message, for a conversation that is stored.
    pub(crate) fn said(&self) -> Said {
        said(self.messages[self.new..].iter().filter(|message| message.role == Role::User))
    }

    /// For a new conversation: the last message, if it is the person's, and everything before it as Chat messages.
    pub(crate) fn apart(&self) -> (Vec<Value>, Said) {
        let (before, last) = match self.messages.split_last() {
            Some((last, before)) if last.role == Role::User => (before, Some(last)),
            _ => (self.messages.as_slice(), None),
        };
        (history_formats::write(HistoryFormat::Openai, before), said(last.into_iter()))
    }

    /// What the client has seen when the assistant had last spoken, from the beginning.
    pub(crate) fn seen_before(&self) -> Option<Sight> {
        self.is_continued().then(|| seen::of(Sight::default(), &self.messages[..self.new]))
    }

    /// What it has sent and seen with this request; `start` is where a client that sends no history stands.
    pub(crate) fn seen(&self, start: Sight) -> Sight {
        seen::of(start, &self.messages)
    }
}

fn said<'a>(messages: impl Iterator<Item = &'a StoredMessage>) -> Said {
    let messages: Vec<&StoredMessage> = messages.collect();
    let text = messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\n");
    let rich = messages.iter().any(|message| seen::parts(message).is_some());
    let mut parts = Vec::new();
    if rich {
        for message in messages {
            match seen::parts(message) {
                Some(own) => parts.extend(own.iter().cloned()),
                None => parts.push(serde_json::json!({"type": "text", "text": message.content})),
            }
        }
    }
    Said { text, parts }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
