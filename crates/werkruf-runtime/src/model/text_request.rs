//! Requests of tools for a text, as a provider takes and answers them.

use std::sync::Arc;

use werkruf_contract::{TextAnswer, TextRequest};
use werkruf_llm::{Answer, Message, ModelRequest, TokenUsage, ToolChoice};

/// The bytes of its texts.
pub(super) fn bytes(request: &TextRequest) -> usize {
    request.system.len() + request.messages.iter().map(String::len).sum::<usize>()
}

pub(super) fn model_request(request: TextRequest) -> ModelRequest {
    let TextRequest { system, messages, temperature, locale } = request;
    ModelRequest {
        system: system.into(),
        messages: Arc::new(messages.into_iter().map(Message::user).collect()),
        tool_choice: ToolChoice::None,
        locale,
        temperature,
        ..ModelRequest::default()
    }
}

/// An answer's text, or the refusal in its place; and the usage that the provider reported.
pub(super) fn text_answer(answer: Answer, default_model: &str) -> (TextAnswer, Option<TokenUsage>) {
    let text = if answer.text.is_empty() { answer.refusal.unwrap_or_default() } else { answer.text };
    let model = answer.model.unwrap_or_else(|| default_model.to_owned());
    let tokens = answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
    (TextAnswer { text, model, tokens, ..TextAnswer::default() }, answer.usage)
}
