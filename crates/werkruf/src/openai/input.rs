//! The messages of a client request, split into instructions, history and new input.

use serde_json::Value;
use werkruf_llm::HistoryCall;
use werkruf_llm::history_formats::{self, FormatFault, HistoryFormat, Role, StoredMessage};
use werkruf_runtime::ClientResult;

use super::transcript::{self, TranscriptDigest};

/// The parsed messages of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Input {
    /// System and developer texts, in order.
    pub(crate) instructions: Vec<String>,
    /// All messages except system and developer messages.
    messages: Vec<StoredMessage>,
    /// The index after the last assistant message, where the new input begins.
    new_from: usize,
}

/// The new message of the user.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct UserMessage {
    pub(crate) text: String,
    /// Content parts in the Chat Completions format; empty if the message is only text.
    pub(crate) parts: Vec<Value>,
}

impl Input {
    /// Parses messages or items. `new_call_id` makes an id for a call that has none.
    pub(crate) fn read(format: HistoryFormat, values: &[Value], new_call_id: &mut dyn FnMut() -> String) -> Result<Self, FormatFault> {
        let read = history_formats::read(format, values, new_call_id)?;
        let (mut system, mut messages): (Vec<_>, Vec<_>) = read.into_iter().partition(|message| message.role == Role::System);
        // In a request with instructions only, the last instruction is the user message.
        if messages.is_empty()
            && let Some(last) = system.pop()
        {
            messages.push(StoredMessage { role: Role::User, metadata: serde_json::Map::new(), ..last });
        }
        let new_from = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |at| at + 1);
        let instructions = system.into_iter().map(|message| message.content).filter(|text| !text.trim().is_empty()).collect();
        Ok(Self { instructions, messages, new_from })
    }

    /// Whether the request has no messages.
    pub(crate) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the request contains an assistant message.
    pub(crate) const fn is_continued(&self) -> bool {
        self.new_from > 0
    }

    /// The tool results in the new input, of calls that the client ran.
    pub(crate) fn results(&self) -> Vec<ClientResult> {
        let result = |message: &StoredMessage| {
            Some(ClientResult {
                call_id: message.call_id.clone().filter(|_| message.role == Role::Tool)?,
                content: message.content.clone(),
                parts: transcript::parts(message).cloned().unwrap_or_default(),
            })
        };
        self.messages[self.new_from..].iter().filter_map(result).collect()
    }

    /// The calls of the last answer, which the results belong to.
    pub(crate) fn last_calls(&self) -> impl Iterator<Item = &HistoryCall> {
        let answer = self.messages[..self.new_from].iter().rev().take_while(|message| message.role == Role::Assistant);
        answer.flat_map(|message| &message.calls)
    }

    /// The last message of the user before the last answer.
    pub(crate) fn last_user_text(&self) -> Option<&str> {
        let last = self.messages[..self.new_from].iter().rfind(|message| message.role == Role::User)?;
        Some(&last.content)
    }

    /// All new user messages as one message, for a stored conversation.
    pub(crate) fn new_user_message(&self) -> UserMessage {
        user_message(self.messages[self.new_from..].iter().filter(|message| message.role == Role::User))
    }

    /// For a new conversation: the last message, if the user sent it, and all messages before it in the Chat Completions format.
    pub(crate) fn split_history(&self) -> (Vec<Value>, UserMessage) {
        let (before, last) = match self.messages.split_last() {
            Some((last, before)) if last.role == Role::User => (before, Some(last)),
            _ => (self.messages.as_slice(), None),
        };
        (history_formats::write(HistoryFormat::Openai, before), user_message(last.into_iter()))
    }

    /// The digest of the transcript up to the last assistant message; `None` if there is no assistant message.
    pub(crate) fn digest_up_to_last_answer(&self) -> Option<TranscriptDigest> {
        self.is_continued().then(|| transcript::digest(TranscriptDigest::default(), &self.messages[..self.new_from]))
    }

    /// The digest of the whole request. `start` is the digest to continue from, for a client that sends no history.
    pub(crate) fn digest(&self, start: TranscriptDigest) -> TranscriptDigest {
        transcript::digest(start, &self.messages)
    }
}

fn user_message<'a>(messages: impl Iterator<Item = &'a StoredMessage>) -> UserMessage {
    let messages: Vec<&StoredMessage> = messages.collect();
    let text = messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\n");
    let has_parts = messages.iter().any(|message| transcript::parts(message).is_some());
    let mut parts = Vec::new();
    if has_parts {
        for message in messages {
            match transcript::parts(message) {
                Some(own) => parts.extend(own.iter().cloned()),
                None => parts.push(serde_json::json!({"type": "text", "text": message.content})),
            }
        }
    }
    UserMessage { text, parts }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
