//! The answer when no language model is connected: one true sentence, and how to connect one.

use futures_util::StreamExt;
use futures_util::stream;
use werkruf_contract::BoxFuture;
use werkruf_llm::{Answer, AnswerStream, Delta, ModelError, ModelRequest, Provider, TokenUsage};

const SENTENCE: &str = "No language model is connected to this server, so I cannot answer; set OPENAI_API_KEY, or OPENAI_BASE_URL and \
OPENAI_MODEL for a server of your own, and start it again.";

/// A provider that is no language model and says so.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfflineProvider;

impl Provider for OfflineProvider {
    fn name(&self) -> &str {
        "offline"
    }

    fn default_model(&self) -> &str {
        "offline"
    }

    fn ask(&self, _request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        let answer = Answer {
            text: SENTENCE.to_owned(),
            finish: Some("stop".to_owned()),
            executable: true,
            // Nothing was counted because nothing was asked; `None` would be taken for an estimate to make.
            usage: Some(TokenUsage::default()),
            model: Some("offline".to_owned()),
            ..Answer::default()
        };
        let deltas = [Ok(Delta::Text(SENTENCE.to_owned())), Ok(Delta::Done(Box::new(answer)))];
        Box::pin(std::future::ready(Ok(stream::iter(deltas).boxed())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use werkruf_llm::ToolChoice;

    use super::*;

    #[tokio::test]
    async fn says_what_is_missing_and_calls_nothing() {
        let request = ModelRequest {
            model: None,
            system: String::new(),
            messages: Arc::default(),
            tools: Arc::default(),
            tool_choice: ToolChoice::Auto,
            locale: "en-US".to_owned(),
            today: jiff::civil::Date::constant(2026, 1, 1),
            locale: "en-US".to_owned(),
            today: jiff::civil::date(2026, 11, 15),
            temperature: None,
            max_output_tokens: None,
        };
        let deltas: Vec<_> = OfflineProvider.ask(request).await.unwrap().collect().await;
        let Some(Ok(Delta::Done(answer))) = deltas.last() else { panic!("no end: {deltas:?}") };
        assert!(answer.text.contains("OPENAI_API_KEY") && answer.calls.is_empty());
    }
}
