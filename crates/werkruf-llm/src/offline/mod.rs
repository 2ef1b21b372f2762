//! The offline planner: a provider without a language model, which says so in its answers.
//!
//! Every tool proposes its own calls for a text. The planner requests those whose tools were offered, and joins the texts of
//! their results. The same conversation always gives the same answer, and no request is sent over the network.

mod answer;

use std::sync::Arc;

use futures_util::stream;
use jiff::civil::Date;
use serde_json::Value;
use werkruf_contract::{BoxFuture, CallKind, Texts};

use crate::{
    Answer, AnswerStream, Delta, Message, ModelError, ModelRequest, Provider, RequestSize, TokenUsage, ToolCall, ToolChoice, ToolDefinition,
};

/// A message for which the tools propose calls.
#[derive(Debug, Clone)]
pub struct PlannerMessage<'a> {
    pub text: &'a str,
    pub locale: &'a str,
    pub today: Date,
    /// The tools that may be called.
    pub tools: &'a [ToolDefinition],
    /// The tool and the result of the last call of the turn before; an object with its beginning if the result was cut.
    pub last_result: Option<(&'a str, Value)>,
}

/// Returns the calls that the tools propose for a message.
pub type Proposer = Arc<dyn Fn(&PlannerMessage<'_>) -> Vec<(String, Value)> + Send + Sync>;

/// The approximate number of bytes per delta; words are not split.
const PIECE: usize = 48;

/// A provider without a language model.
#[derive(Clone)]
pub struct OfflineProvider {
    propose: Proposer,
}

impl OfflineProvider {
    /// A planner with this proposal function.
    pub fn new(propose: Proposer) -> Self {
        Self { propose }
    }

    fn answer(&self, request: &ModelRequest) -> Answer {
        if asks_for_json(request) {
            let refusal = Some(Texts::of(&request.locale).text("offline-no-format", &[]));
            return Answer { refusal, finish: Some("stop".to_owned()), ..self.empty_answer() };
        }
        let calls = match request.messages.last() {
            Some(Message::User { content, .. }) if request.tool_choice != ToolChoice::None => self.calls(content, request),
            Some(Message::System { .. } | Message::User { .. } | Message::Assistant { .. } | Message::Tool { .. }) | None => Vec::new(),
        };
        let text = if calls.is_empty() { self.text(request) } else { String::new() };
        let finish = Some(if calls.is_empty() { "stop" } else { "tool_calls" }.to_owned());
        Answer { text, finish, calls, ..self.empty_answer() }
    }

    fn empty_answer(&self) -> Answer {
        Answer {
            executable: true,
            // No tokens were used. `None` would make the caller estimate them.
            usage: Some(TokenUsage::default()),
            model: Some(self.default_model().to_owned()),
            ..Answer::default()
        }
    }

    /// The proposed calls of offered tools. Call ids are numbered throughout the conversation.
    fn calls(&self, text: &str, request: &ModelRequest) -> Vec<ToolCall> {
        let earlier: usize = request
            .messages
            .iter()
            .map(|message| match message {
                Message::Assistant { calls, .. } => calls.len(),
                Message::System { .. } | Message::User { .. } | Message::Tool { .. } => 0,
            })
            .sum();
        let message = PlannerMessage {
            text,
            locale: &request.locale,
            today: request.today,
            tools: &request.tools,
            last_result: answer::last_result(&request.messages),
        };
        let proposed = (self.propose)(&message);
        proposed
            .into_iter()
            .enumerate()
            .map(|(at, (name, arguments))| ToolCall {
                kind: CallKind::Function,
                item_id: None,
                call_id: Some(format!("call_{}", earlier + at + 1)),
                output_index: u32::try_from(at).unwrap_or(u32::MAX),
                name,
                arguments: arguments.to_string(),
                status: None,
                server_label: None,
            })
            .collect()
    }

    fn text(&self, request: &ModelRequest) -> String {
        let texts = Texts::of(&request.locale);
        let results = answer::results(&request.messages);
        if results.is_empty() { answer::help_text(&texts, &request.tools) } else { answer::compose(&texts, request, &results) }
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

    /// The planner reads and writes no tokens.
    fn size(&self, _: &ModelRequest) -> RequestSize {
        RequestSize::default()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        let answer = self.answer(&request);
        let mut deltas: Vec<Result<Delta, ModelError>> = pieces(&answer.text).into_iter().map(|text| Ok(Delta::Text(text))).collect();
        deltas.push(Ok(Delta::Done(Box::new(answer))));
        Box::pin(std::future::ready(Ok(AnswerStream::new(stream::iter(deltas)))))
    }
}

/// Whether the answer has to be JSON. The planner only joins the texts of tools.
fn asks_for_json(request: &ModelRequest) -> bool {
    request.options.get("response_format").is_some_and(|format| matches!(format["type"].as_str(), Some("json_object" | "json_schema")))
}

/// Splits a text into pieces at white space.
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
