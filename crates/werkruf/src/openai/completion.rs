//! An answer in the words of Chat Completions: as one object, or as chunks. Pure: what is heard goes in, bytes come out.
//!
//! Invariants (clients break without them): every chunk has `object` and its choice an `index`; a call's id and name are
//! sent once, its index counts from 0, its arguments are text; a finish reason always comes.

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use werkruf_contract::{ClientCall, Texts, Usage};

use super::chat_request::Wishes;
use super::heard::{Awaited, Done, Failed, Heard};
use super::refusal;

/// What every object of one answer says.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// `chatcmpl-…`.
    pub(crate) id: String,
    /// In seconds since 1970.
    pub(crate) created: i64,
    /// As the client spelled it.
    pub(crate) model: String,
    pub(crate) wishes: Wishes,
    pub(crate) words: Texts,
}

impl Head {
    /// The reason the model stopped for.
    const fn finish(&self, done: &Done) -> &'static str {
        match done.client_calls.is_empty() {
            false if self.wishes.legacy => "function_call",
            false => "tool_calls",
            true => done.finish_reason.as_str(),
        }
    }

    /// What a person reads while another one must decide.
    fn waiting(&self, awaited: &[Awaited]) -> String {
        let one = |one: &Awaited| {
            let id = one.approval_id.to_string();
            self.words.text("openai-approval", &[("tool", one.tool.as_str().into()), ("id", id.into())])
        };
        awaited.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// The one object, made of everything that was heard.
pub(crate) fn whole(head: &Head, heard: &[Heard]) -> Result<Value, Failed> {
    let mut content = String::new();
    for one in heard {
        match one {
            Heard::Text { text, .. } => content.push_str(text),
            Heard::Failed(failed) => return Err(failed.clone()),
            Heard::Waiting(awaited) => {
                content = separated(content, &head.waiting(awaited));
                return Ok(object(head, &json!({"role": "assistant", "content": content, "refusal": null}), "stop", &spent(awaited)));
            }
            Heard::Done(done) => {
                let silent = content.is_empty() && !done.client_calls.is_empty();
                let mut message =
                    json!({"role": "assistant", "content": if silent { Value::Null } else { content.into() }, "refusal": null});
                match done.client_calls.as_slice() {
                    [] => {}
                    [first, ..] if head.wishes.legacy => {
                        message["function_call"] = json!({"name": first.name, "arguments": first.arguments})
                    }
                    calls => message["tool_calls"] = calls.iter().map(call).collect(),
                }
                return Ok(object(head, &message, head.finish(done), &done.usage));
            }
        }
    }
    Ok(object(head, &json!({"role": "assistant", "content": content, "refusal": null}), "stop", &Usage::default()))
}

pub(crate) fn separated(mut before: String, text: &str) -> String {
    if !before.is_empty() {
        before.push_str("\n\n");
    }
    before + text
}

/// What the turn had cost when it began to wait: all were asked for at once.
fn spent(awaited: &[Awaited]) -> Usage {
    awaited.last().map(|awaited| awaited.usage.clone()).unwrap_or_default()
}

fn object(head: &Head, message: &Value, finish: &str, used: &Usage) -> Value {
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": null}],
        "usage": usage(used),
        "system_fingerprint": null,
    })
}

fn call(call: &ClientCall) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
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

/// Writes an answer as it comes.
pub(crate) struct Chunks {
    head: Head,
    spoken: bool,
}

impl Chunks {
    /// Nothing said yet.
    pub(crate) const fn new(head: Head) -> Self {
        Self { head, spoken: false }
    }

    /// The first chunk: who speaks.
    pub(crate) fn begin(&self, out: &mut BytesMut) {
        self.chunk(out, &json!({"role": "assistant", "content": "", "refusal": null}), None);
    }

    /// What was heard next.
    pub(crate) fn tell(&mut self, out: &mut BytesMut, heard: &Heard) {
        match heard {
            Heard::Text { text, .. } => {
                self.spoken = true;
                self.chunk(out, &json!({"content": text}), None);
            }
            Heard::Done(done) => {
                self.calls(out, &done.client_calls);
                self.end(out, self.head.finish(done), &done.usage);
            }
            Heard::Waiting(awaited) => {
                let before = if self.spoken { "\n\n" } else { "" };
                self.chunk(out, &json!({"content": format!("{before}{}", self.head.waiting(awaited))}), None);
                self.end(out, "stop", &spent(awaited));
            }
            Heard::Failed(failed) => frame(out, &refusal::body(&refusal::failed(failed))),
        }
    }

    /// What is said of a call that waits.
    pub(crate) fn waiting(&self, awaited: &[Awaited]) -> String {
        self.head.waiting(awaited)
    }

    fn calls(&self, out: &mut BytesMut, calls: &[ClientCall]) {
        if let (true, Some(first)) = (self.head.wishes.legacy, calls.first()) {
            return self.chunk(out, &json!({"function_call": {"name": first.name, "arguments": first.arguments}}), None);
        }
        for (index, call) in calls.iter().enumerate() {
            let named = json!({"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}});
            self.chunk(out, &json!({"tool_calls": [named]}), None);
            let filled = json!({"index": index, "function": {"arguments": call.arguments}});
            self.chunk(out, &json!({"tool_calls": [filled]}), None);
        }
    }

    fn end(&self, out: &mut BytesMut, finish: &str, used: &Usage) {
        self.chunk(out, &json!({}), Some(finish));
        if self.head.wishes.include_usage {
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
        let head = &self.head;
        let mut chunk = json!({
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
            "system_fingerprint": null,
            "choices": choices,
        });
        if head.wishes.include_usage {
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
