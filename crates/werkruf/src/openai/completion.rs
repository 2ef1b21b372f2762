//! An answer in the format of Chat Completions: as one object or as chunks. No I/O.
//!
//! Invariants that clients depend on: every chunk has `object`, and its choice has an `index`; the id and the name of a call are
//! sent once, the index of a call counts from 0, and its arguments are text; a finish reason is always sent.

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use werkruf_contract::{Annotation, ClientCall, FinishReason, Texts, Usage, Uuid};

use super::chat_request::ResponseOptions;
use super::client_events::{ClientEvent, PendingApproval, TurnAnswer, TurnFailure};
use super::error_body;
use super::tools::custom_input;

/// The fields that all objects of one answer have in common.
#[derive(Debug, Clone)]
pub(crate) struct CommonFields {
    /// `chatcmpl-…`.
    pub(crate) id: String,
    /// Unix time in seconds.
    pub(crate) created: i64,
    /// The model as the request names it.
    pub(crate) model: String,
    pub(crate) options: ResponseOptions,
    pub(crate) texts: Texts,
}

impl CommonFields {
    /// The fields of the answer of this turn. `real` is the model that is named where the request names none.
    pub(crate) fn new(turn_id: Uuid, real: String, options: ResponseOptions, texts: Texts) -> Self {
        let created = turn_id.get_timestamp().map_or(0, |time| time.to_unix().0);
        Self {
            id: format!("chatcmpl-{}", turn_id.simple()),
            created: i64::try_from(created).unwrap_or_default(),
            model: options.model.clone().unwrap_or(real),
            options,
            texts,
        }
    }

    /// The finish reason of an answer.
    const fn finish(&self, answer: &TurnAnswer) -> &'static str {
        match answer.client_calls.is_empty() {
            false if self.options.legacy => "function_call",
            false => "tool_calls",
            true if matches!(answer.finish_reason, FinishReason::Refusal) => FinishReason::Stop.as_str(),
            true => answer.finish_reason.as_str(),
        }
    }

    /// Whether the client's tool takes a free text.
    fn is_custom(&self, call: &ClientCall) -> bool {
        self.options.custom_tools.contains(&call.name)
    }

    fn call(&self, call: &ClientCall) -> Value {
        if self.is_custom(call) {
            return json!({"id": call.id, "type": "custom", "custom": {"name": call.name, "input": custom_input(call)}});
        }
        json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
    }

    /// The text that the user reads while approvals are pending.
    fn approval_text(&self, approvals: &[PendingApproval]) -> String {
        let line = |approval: &PendingApproval| {
            let id = approval.approval_id.to_string();
            self.texts.text("openai-approval", &[("tool", approval.tool.as_str().into()), ("id", id.into())])
        };
        approvals.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Builds the `chat.completion` object from all events of a turn.
pub(crate) fn completion_object(common: &CommonFields, events: &[ClientEvent]) -> Result<Value, TurnFailure> {
    let (mut content, mut annotations) = (String::new(), Vec::new());
    for event in events {
        match event {
            ClientEvent::Text { text, .. } => content.push_str(text),
            ClientEvent::Annotations(more) => annotations.extend(citations(more)),
            ClientEvent::Failed(failed) => return Err(failed.clone()),
            ClientEvent::AwaitingApproval(approvals) => {
                content = join_paragraphs(content, &common.approval_text(approvals));
                return Ok(object(
                    common,
                    &json!({"role": "assistant", "content": content, "refusal": null}),
                    "stop",
                    &usage_so_far(approvals),
                ));
            }
            ClientEvent::Answered(answer) => {
                let refusal = refusal(answer);
                let no_content = content.is_empty() && (!answer.client_calls.is_empty() || refusal.is_some());
                let content = if no_content { Value::Null } else { content.into() };
                let mut message = json!({"role": "assistant", "content": content, "refusal": refusal});
                if !annotations.is_empty() {
                    message["annotations"] = annotations.into();
                }
                match answer.client_calls.as_slice() {
                    [] => {}
                    [first, ..] if common.options.legacy => {
                        message["function_call"] = json!({"name": first.name, "arguments": first.arguments})
                    }
                    calls => message["tool_calls"] = calls.iter().map(|call| common.call(call)).collect(),
                }
                return Ok(object(common, &message, common.finish(answer), &answer.usage));
            }
        }
    }
    Ok(object(common, &json!({"role": "assistant", "content": content, "refusal": null}), "stop", &Usage::default()))
}

/// The annotations that Chat Completions has: citations of pages.
fn citations(annotations: &[Annotation]) -> Vec<Value> {
    let citation = |annotation: &Annotation| match annotation {
        Annotation::UrlCitation { url, title, start_index, end_index } => Some(json!({"type": "url_citation",
            "url_citation": {"url": url, "title": title, "start_index": start_index, "end_index": end_index}})),
        Annotation::FileCitation { .. } | Annotation::ContainerFileCitation { .. } | Annotation::FilePath { .. } => None,
    };
    annotations.iter().filter_map(citation).collect()
}

/// The text of an answer that is a refusal.
fn refusal(answer: &TurnAnswer) -> Option<&str> {
    (answer.finish_reason == FinishReason::Refusal).then_some(answer.message.content.as_str())
}

pub(crate) fn join_paragraphs(mut before: String, text: &str) -> String {
    if !before.is_empty() {
        before.push_str("\n\n");
    }
    before + text
}

/// The usage of the turn when it began to wait. All its approvals were requested at the same time.
fn usage_so_far(approvals: &[PendingApproval]) -> Usage {
    approvals.last().map(|approvals| approvals.usage.clone()).unwrap_or_default()
}

fn object(common: &CommonFields, message: &Value, finish: &str, used: &Usage) -> Value {
    json!({
        "id": common.id,
        "object": "chat.completion",
        "created": common.created,
        "model": common.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": null}],
        "usage": usage(used),
        "system_fingerprint": null,
    })
}

fn usage(used: &Usage) -> Value {
    json!({
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    })
}

/// Writes an answer as chunks.
pub(crate) struct ChunkWriter {
    common: CommonFields,
    has_text: bool,
}

impl ChunkWriter {
    pub(crate) const fn new(common: CommonFields) -> Self {
        Self { common, has_text: false }
    }

    /// Writes the first chunk, which has the role.
    pub(crate) fn begin(&self, out: &mut BytesMut) {
        self.chunk(out, &json!({"role": "assistant", "content": "", "refusal": null}), None);
    }

    /// Writes the next event.
    pub(crate) fn write(&mut self, out: &mut BytesMut, event: &ClientEvent) {
        match event {
            ClientEvent::Text { text, .. } => {
                self.has_text = true;
                self.chunk(out, &json!({"content": text}), None);
            }
            ClientEvent::Annotations(annotations) => {
                let citations = citations(annotations);
                if !citations.is_empty() {
                    self.chunk(out, &json!({"annotations": citations}), None);
                }
            }
            ClientEvent::Answered(answer) => {
                if let Some(refusal) = refusal(answer) {
                    self.chunk(out, &json!({"refusal": refusal}), None);
                }
                self.calls(out, &answer.client_calls);
                self.end(out, self.common.finish(answer), &answer.usage);
            }
            ClientEvent::AwaitingApproval(approvals) => {
                let before = if self.has_text { "\n\n" } else { "" };
                self.chunk(out, &json!({"content": format!("{before}{}", self.common.approval_text(approvals))}), None);
                self.end(out, "stop", &usage_so_far(approvals));
            }
            ClientEvent::Failed(failed) => frame(out, &error_body::body(&error_body::failed_turn(failed))),
        }
    }

    /// The text that the user reads while approvals are pending.
    pub(crate) fn approval_text(&self, approvals: &[PendingApproval]) -> String {
        self.common.approval_text(approvals)
    }

    fn calls(&self, out: &mut BytesMut, calls: &[ClientCall]) {
        if let (true, Some(first)) = (self.common.options.legacy, calls.first()) {
            return self.chunk(out, &json!({"function_call": {"name": first.name, "arguments": first.arguments}}), None);
        }
        for (index, call) in calls.iter().enumerate() {
            let (named, filled) = if self.common.is_custom(call) {
                let named = json!({"index": index, "id": call.id, "type": "custom", "custom": {"name": call.name, "input": ""}});
                (named, json!({"index": index, "custom": {"input": custom_input(call)}}))
            } else {
                let named = json!({"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}});
                (named, json!({"index": index, "function": {"arguments": call.arguments}}))
            };
            self.chunk(out, &json!({"tool_calls": [named]}), None);
            self.chunk(out, &json!({"tool_calls": [filled]}), None);
        }
    }

    fn end(&self, out: &mut BytesMut, finish: &str, used: &Usage) {
        self.chunk(out, &json!({}), Some(finish));
        if self.common.options.include_usage {
            let mut last = self.envelope(&json!([]));
            last["usage"] = usage(used);
            frame(out, &last);
        }
        out.put_slice(b"data: [DONE]\n\n");
    }

    fn chunk(&self, out: &mut BytesMut, delta: &Value, finish: Option<&str>) {
        frame(out, &self.envelope(&json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])));
    }

    fn envelope(&self, choices: &Value) -> Value {
        let common = &self.common;
        let mut chunk = json!({
            "id": common.id,
            "object": "chat.completion.chunk",
            "created": common.created,
            "model": common.model,
            "system_fingerprint": null,
            "choices": choices,
        });
        if common.options.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

fn frame(out: &mut BytesMut, value: &Value) {
    out.put_slice(b"data: ");
    out.put_slice(value.to_string().as_bytes());
    out.put_slice(b"\n\n");
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
