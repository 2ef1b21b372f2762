//! The span of a model request: one for each time that it is sent.

use werkruf_llm::ModelFault;

use super::usage::{Meter, Sending, Settlement};
use crate::trace::{Attribute, NewSpan, SpanKind, names};

impl Meter<'_> {
    /// Ends the span of the request, inside the tool call that made it or else inside the turn.
    pub(super) fn end_span(&self, sending: &Sending, settlement: &Settlement<'_>) {
        let Some(trace) = self.trace.filter(|trace| trace.is_on()) else { return };
        let Some(started_at) = sending.started_at() else { return };
        let operation = if self.operation == "embedding" { names::EMBEDDINGS } else { names::CHAT };
        let mut attributes = vec![(names::OPERATION_NAME, Attribute::from(operation)), (names::REQUEST_MODEL, self.model.into())];
        attributes.extend([(names::PROVIDER_NAME, self.provider.into()), (names::SYSTEM, self.provider.into())]);
        attributes.extend(self.call_id.map(|id| (names::WERKRUF_CALL_ID, id.into())));
        let response = sending.response();
        if let Some(id) = response.and_then(|response| response.id.as_deref()).or(sending.request_id()) {
            attributes.push((names::RESPONSE_ID, short(id)));
        }
        if let Some(finish) = response.and_then(|response| response.finish.as_ref()) {
            attributes.push((names::FINISH_REASONS, Attribute::Texts(vec![finish.clone()])));
        }
        if let Settlement::Answered { usage, model, .. } = settlement {
            attributes.extend(model.map(|model| (names::RESPONSE_MODEL, short(model))));
            if let Some(tokens) = usage {
                attributes.push((names::INPUT_TOKENS, Attribute::Number(tokens.input_tokens)));
                attributes.push((names::OUTPUT_TOKENS, Attribute::Number(tokens.output_tokens)));
            }
        }
        if let Some((instructions, messages)) = self.input.clone() {
            attributes.push((names::SYSTEM_INSTRUCTIONS, Attribute::Text(instructions)));
            attributes.push((names::INPUT_MESSAGES, Attribute::Text(messages)));
        }
        let (text, error) = match settlement {
            Settlement::Answered { text, .. } => (*text, None),
            Settlement::Failed { error, received } => (*received, Some(fault(error.fault))),
            Settlement::Aborted { received } => (*received, Some("aborted".to_owned())),
        };
        let (calls, finish) = response.map_or((&[][..], None), |response| (&response.calls[..], response.finish.as_deref()));
        if operation == names::CHAT
            && let Some(output) = trace.content(|content| content.answer(text, calls, finish.unwrap_or("error")))
        {
            attributes.push((names::OUTPUT_MESSAGES, Attribute::Text(output)));
        }
        let span = trace.ended(NewSpan {
            id: trace.new_span_id(),
            parent: trace.span_of(self.call_id),
            name: format!("{operation} {}", self.model),
            kind: SpanKind::Client,
            started_at,
            ended_at: self.clock.now(),
            attributes,
            error: error.as_deref(),
        });
        if let Some(span) = span {
            span.send();
        }
    }
}

/// The other side has chosen it.
fn short(text: &str) -> Attribute {
    Attribute::Text(text.chars().filter(|c| !c.is_control()).take(256).collect())
}

fn fault(fault: ModelFault) -> String {
    match fault {
        ModelFault::Refused { status } => status.to_string(),
        ModelFault::Connect => "connect".to_owned(),
        ModelFault::FirstByte | ModelFault::Idle => "timeout".to_owned(),
        ModelFault::Incomplete => "incomplete".to_owned(),
        ModelFault::Protocol => "protocol".to_owned(),
    }
}
