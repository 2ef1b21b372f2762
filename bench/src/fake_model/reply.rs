//! The replies of the fake model, as a test scripts them.

use std::time::Duration;

use serde_json::{Value, json};

use super::gate::Gate;

/// A tool call in a reply.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) id: Option<String>,
}

/// A call with these arguments; its id is `call_<n>`, numbered over the lifetime of the fake.
#[expect(clippy::needless_pass_by_value, reason = "tests write json!({…}) here, and a & before each would only be noise")]
pub fn call(name: &str, arguments: Value) -> Call {
    call_raw(name, &arguments.to_string())
}

/// A call with arguments that need not be JSON.
pub fn call_raw(name: &str, arguments: &str) -> Call {
    Call { name: name.to_owned(), arguments: arguments.to_owned(), id: None }
}

impl Call {
    /// With this id, which may be empty.
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }
}

/// One reply of the fake.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) kind: Kind,
    pub(super) gates: Vec<Gate>,
    pub(super) delay: Option<Duration>,
    pub(super) fate: Ending,
    pub(super) request_id: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Answer(Script),
    Status {
        status: u16,
        retry_after: Option<String>,
        message: Option<String>,
        code: Option<String>,
    },
    /// A 200 with exactly these bytes.
    Bytes {
        content_type: String,
        body: Vec<u8>,
    },
}

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The connection is dropped after so many bytes of the body.
    CutAfter(usize),
    /// The body ends regularly, but without a finish reason and `[DONE]`.
    CutBeforeFinish,
    /// No response is ever sent.
    Hang,
    /// Nothing follows the first delta.
    HangMidStream,
}

/// The contents of a response and its quirks.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    pub(super) text: Vec<String>,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) finish: Option<String>,
    pub(super) refusal: Option<String>,
    /// As the Responses API writes them.
    pub(super) annotations: Vec<Value>,
    pub(super) without_index: bool,
    pub(super) index_zero: bool,
    pub(super) repeat_ids: bool,
    pub(super) whole_arguments: bool,
    pub(super) object_arguments: bool,
    pub(super) without_done: bool,
    pub(super) error: Option<Value>,
    /// Items of the Responses API before text and calls; Chat Completions has no such items.
    pub(super) before: Vec<Value>,
}

impl Reply {
    fn of(kind: Kind) -> Self {
        Self { kind, gates: Vec::new(), delay: None, fate: Ending::Whole, request_id: None }
    }

    /// Text, word by word.
    pub fn text(text: &str) -> Self {
        Self::of(Kind::Answer(Script { text: pieces(text), ..Script::default() }))
    }

    /// Calls, one after another.
    pub fn calls(calls: Vec<Call>) -> Self {
        Self::of(Kind::Answer(Script { calls, ..Script::default() }))
    }

    /// A refusal instead of text.
    pub fn refusal(message: &str) -> Self {
        Self::of(Kind::Answer(Script { refusal: Some(message.to_owned()), ..Script::default() }))
    }

    /// An error status.
    pub fn status(status: u16) -> Self {
        Self::of(Kind::Status { status, retry_after: None, message: None, code: None })
    }

    /// A 200 with exactly these bytes, whatever they are.
    pub fn bytes(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::of(Kind::Bytes { content_type: content_type.to_owned(), body: body.into() })
    }

    fn script(mut self, change: impl FnOnce(&mut Script)) -> Self {
        if let Kind::Answer(script) = &mut self.kind {
            change(script);
        }
        self
    }

    /// Text before the calls.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        self.script(|script| script.text = pieces(text))
    }

    /// What the text refers to, as the Responses API writes it.
    #[must_use]
    pub fn cites(self, annotation: Value) -> Self {
        self.script(|script| script.annotations.push(annotation))
    }

    /// Tokens reported at the end; 10 and 5 by default.
    #[must_use]
    pub fn usage(self, prompt: u64, completion: u64) -> Self {
        self.script(|script| script.usage = Some((prompt, completion)))
    }

    /// An encrypted reasoning item before the rest. Responses only.
    #[must_use]
    pub fn thinks(self, sealed: &str) -> Self {
        self.script(|script| {
            let id = format!("rs_fake_{}", script.before.len());
            script.before.push(json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": sealed}));
        })
    }

    /// A finished provider item before the rest. Responses only.
    #[must_use]
    pub fn runs(self, item: Value) -> Self {
        self.script(|script| script.before.push(item))
    }

    /// A request for permission to run a call at the provider, instead of text. Responses only.
    pub fn asks(id: &str, name: &str, arguments: &str) -> Self {
        Self::of(Kind::Answer(Script::default())).and_asks(id, name, arguments)
    }

    /// A further request for permission. Responses only.
    #[must_use]
    pub fn and_asks(self, id: &str, name: &str, arguments: &str) -> Self {
        self.runs(json!({"type": "mcp_approval_request", "id": id, "name": name, "arguments": arguments, "server_label": "bank"}))
    }

    /// A call that the provider ran after the approval of its request. Responses only.
    #[must_use]
    pub fn runs_approved(self, request: &str, name: &str, output: &str) -> Self {
        let id = request.replacen("mcpr", "mcp", 1);
        self.runs(json!({"type": "mcp_call", "id": id, "name": name, "server_label": "bank", "arguments": "{}", "output": output,
            "error": null, "status": "completed", "approval_request_id": request}))
    }

    /// A finish reason other than the regular one. In Responses, `length` and `content_filter` make the response incomplete.
    #[must_use]
    pub fn finish(self, reason: &str) -> Self {
        self.script(|script| script.finish = Some(reason.to_owned()))
    }

    /// An error object inside the stream, after the deltas, instead of the end.
    #[must_use]
    pub fn error_in_stream(self, error: Value) -> Self {
        self.script(|script| script.error = Some(error))
    }

    /// Calls carry no index, as Mistral and Gemini send them; each is sent in one piece.
    #[must_use]
    pub fn without_index(self) -> Self {
        self.script(|script| (script.without_index, script.whole_arguments) = (true, true))
    }

    /// All calls have index 0, as Ollama sends them; each is sent in one piece.
    #[must_use]
    pub fn index_zero(self) -> Self {
        self.script(|script| (script.index_zero, script.whole_arguments) = (true, true))
    }

    /// Id and name are repeated with every fragment, as Kimi sends them.
    #[must_use]
    pub fn repeat_ids(self) -> Self {
        self.script(|script| script.repeat_ids = true)
    }

    /// Arguments are a JSON object instead of a string, as llama.cpp sent them.
    #[must_use]
    pub fn object_arguments(self) -> Self {
        self.script(|script| (script.object_arguments, script.whole_arguments) = (true, true))
    }

    /// The stream ends without `[DONE]`.
    #[must_use]
    pub fn without_done(self) -> Self {
        self.script(|script| script.without_done = true)
    }

    /// The header `x-request-id` of the response.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        self.request_id = Some(id.to_owned());
        self
    }

    /// `Retry-After` in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        if let Kind::Status { retry_after, .. } = &mut self.kind {
            *retry_after = Some(seconds.to_string());
        }
        self
    }

    /// The message of an error.
    #[must_use]
    pub fn message(mut self, text: &str) -> Self {
        if let Kind::Status { message, .. } = &mut self.kind {
            *message = Some(text.to_owned());
        }
        self
    }

    /// The code of an error.
    #[must_use]
    pub fn code(mut self, text: &str) -> Self {
        if let Kind::Status { code, .. } = &mut self.kind {
            *code = Some(text.to_owned());
        }
        self
    }

    /// The connection drops after so many bytes of the body.
    #[must_use]
    pub const fn cut_after(mut self, bytes: usize) -> Self {
        self.fate = Ending::CutAfter(bytes);
        self
    }

    /// The body ends regularly, but before the finish reason.
    #[must_use]
    pub const fn cut_before_finish(mut self) -> Self {
        self.fate = Ending::CutBeforeFinish;
        self
    }

    /// Never responds; ends when the client disconnects.
    #[must_use]
    pub const fn hang(mut self) -> Self {
        self.fate = Ending::Hang;
        self
    }

    /// Sends nothing after the first delta; ends when the client disconnects.
    #[must_use]
    pub const fn hang_mid_stream(mut self) -> Self {
        self.fate = Ending::HangMidStream;
        self
    }

    /// Waits at this gate until the test opens it.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gates.push(gate);
        self
    }

    /// Waits this long before each piece of the body.
    #[must_use]
    pub const fn delay_per_chunk(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }
}

/// Splits a text into words, each with the space after it.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_inclusive(' ') {
        pieces.push(word.to_owned());
    }
    pieces
}
