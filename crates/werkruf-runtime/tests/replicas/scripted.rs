//! A model and a tool that wait until their gate is raised.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Cancel, Effect, Failure, Invocation, Reply, ToolObject, ToolSpec};
use werkruf_llm::{Answer, AnswerStream, Delta, Message, ModelError, ModelRequest, Provider, RequestSize};

/// A message with this text is answered only after the gate is raised.
pub const HOLD: &str = "hold";

pub struct Model {
    pub gate: Cancel,
}

impl Provider for Model {
    fn name(&self) -> &str {
        "scripted"
    }

    fn default_model(&self) -> &str {
        "scripted-1"
    }

    fn size(&self, _: &ModelRequest) -> RequestSize {
        RequestSize::default()
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<AnswerStream, ModelError>> {
        let message = request.messages.iter().rev().find_map(|message| match message {
            Message::User { content, .. } => Some(content.clone()),
            Message::System { .. } | Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        let (message, gate) = (message.unwrap_or_default(), self.gate.clone());
        let stream = futures_util::stream::unfold(0, move |at| {
            let (message, gate) = (message.clone(), gate.clone());
            async move {
                let delta = match at {
                    0 => Delta::Text("You said ".to_owned()),
                    1 => {
                        if message == HOLD {
                            gate.raised().await;
                        }
                        Delta::Text(message)
                    }
                    2 => Delta::Done(Box::new(Answer {
                        text: format!("You said {message}"),
                        executable: true,
                        finish: Some("stop".to_owned()),
                        ..Answer::default()
                    })),
                    _ => return None,
                };
                Some((Ok(delta), at + 1))
            }
        });
        Box::pin(std::future::ready(Ok(AnswerStream::new(stream))))
    }
}

/// Counts its executions.
pub struct Tool {
    pub spec: ToolSpec,
    pub parameters: Value,
    pub calls: Arc<AtomicUsize>,
    pub gate: Cancel,
}

impl Tool {
    pub fn new(calls: &Arc<AtomicUsize>, gate: &Cancel) -> Self {
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
        Self { spec: ToolSpec::new("pay", "scripted", Effect::Once), parameters, calls: Arc::clone(calls), gate: gate.clone() }
    }
}

impl ToolObject for Tool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn call(&self, args: Value, _: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.gate.raised().await;
            Ok(Reply::new(args))
        })
    }
}
