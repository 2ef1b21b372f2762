//! A planner that is no language model and says so.
//!
//! Every tool itself says what it would be called with for a text; the planner only keeps what was offered, and puts
//! the results' own words together. The same conversation gives the same answer, and no request leaves the process.

mod answer;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use jiff::civil::Date;
use serde_json::Value;
use werkruf_contract::{BoxFuture, CallKind, Texts};

use crate::{Answer, AnswerStream, Delta, Message, ModelError, ModelRequest, Provider, TokenUsage, ToolCall, ToolChoice};

/// What the tools would be called with for a text, a locale and today's date.
pub type Proposer = Arc<dyn Fn(&str, &str, Date) -> Vec<(String, Value)> + Send + Sync>;

/// Characters shown at once, about: whole words are kept together.
const PIECE: usize = 48;

/// Answers without a language model.
#[derive(Clone)]
pub struct OfflineProvider {
    propose: Proposer,
}

impl OfflineProvider {
    /// A planner that asks these tools.
    pub fn new(propose: Proposer) -> Self {
        Self { propose }
    }

    fn answer(&self, request: &ModelRequest) -> Answer {
        let calls = match request.messages.last() {
            Some(Message::User { content, .. }) if request.tool_choice != ToolChoice::None => self.calls(content, request),
            Some(Message::System { .. } | Message::User { .. } | Message::Assistant { .. } | Message::Tool { .. }) | None => Vec::new(),
        };
        let text = if calls.is_empty() { self.text(request) } else { String::new() };
        Answer {
            text,
            finish: Some(if calls.is_empty() { "stop" } else { "tool_calls" }.to_owned()),
            calls,
            executable: true,
            // Nothing was counted because nothing was asked; `None` would be taken for an estimate to make.
            usage: Some(TokenUsage::default()),
            model: Some(self.default_model().to_owned()),
            ..Answer::default()
        }
    }

    /// What the tools propose, as far as they were offered. Ids count on through the conversation.
    fn calls(&self, text: &str, request: &ModelRequest) -> Vec<ToolCall> {
        let earlier: usize = request
            .messages
            .iter()
            .map(|message| match message {
                Message::Assistant { calls, .. } => calls.len(),
                Message::System { .. } | Message::User { .. } | Message::Tool { .. } => 0,
            })
            .sum();
        let offered = |name: &str| request.tools.iter().any(|tool| tool.name == name);
        let proposed = (self.propose)(text, &request.locale, request.today).into_iter().filter(|(name, _)| offered(name));
        proposed
            .enumerate()
            .map(|(at, (name, arguments))| ToolCall {
                kind: CallKind::Function,
                item_id: None,
                call_id: Some(format!("call_{}", earlier + at + 1)),
                output_index: u32::try_from(at).unwrap_or(u32::MAX),
                name,
                arguments: arguments.to_string(),
                status: None,
            })
            .collect()
    }

    fn text(&self, request: &ModelRequest) -> String {
        let words = Texts::of(&request.locale);
        let results = answer::results(&request.messages);
        if results.is_empty() { answer::lost(&words, &request.tools) } else { answer::compose(&words, &request.messages, &results) }
    }
}

impl std::fmt::Debug for OfflineProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OfflineProvider")
    }
}

impl Provider for OfflineProvider {
    fn name(&self) -> &str {
        "offline"
    }

    fn default_model(&self) -> &str {
        "offline"
    }

    fn writes_text(&self) -> bool {
        false
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        let answer = self.answer(&request);
        let mut deltas: Vec<Result<Delta, ModelError>> = pieces(&answer.text).into_iter().map(|text| Ok(Delta::Text(text))).collect();
        deltas.push(Ok(Delta::Done(Box::new(answer))));
        Box::pin(std::future::ready(Ok(stream::iter(deltas).boxed())))
    }
}

/// The text in parts that together are the text.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_inclusive(char::is_whitespace) {
        match pieces.last_mut() {
            Some(last) if last.len() < PIECE => last.push_str(word),
            Some(_) | None => pieces.push(word.to_owned()),
        }
    }
    pieces
}
