//! The spans of turns: `invoke_agent` (the turn) over `chat`, `embeddings` and `execute_tool`.
//!
//! The span ids of a turn and of its calls follow from their own ids, and the trace id from the turn's id or the caller's `traceparent`, which is
//! stored with the turn. So a process that takes a turn over continues its trace: what the earlier process exported hangs under the
//! spans that the new owner exports. Whoever ends a turn or a call exports its span. Without a [`SpanSink`] nothing is made.

mod content;
pub(crate) mod names;
mod parent;
mod sampler;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use werkruf_contract::{Clock, TRACEPARENT, ToolContext, Uuid, hex};

pub(crate) use content::Content;
pub use parent::CallerSpan;
pub use sampler::Sampler;

use crate::setup::Setup;

pub type TraceId = [u8; 16];
pub type SpanId = [u8; 8];

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: SpanKind,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// The attribute `error.type` says how.
    pub failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of this process.
    Internal,
    /// A request to another server.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Text(String),
    Texts(Vec<String>),
    Number(i64),
    Flag(bool),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Uuid> for Attribute {
    fn from(id: Uuid) -> Self {
        Self::Text(id.to_string())
    }
}

/// Takes spans that have ended. It must not block: a turn calls it.
pub trait SpanSink: Send + Sync {
    fn take(&self, span: Span);
}

/// Makes the traces of turns; the default makes none.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Exporting>>);

struct Exporting {
    sink: Arc<dyn SpanSink>,
    sampler: Sampler,
    captures_content: bool,
}

/// Whose turn is traced.
pub(crate) struct TracedTurn<'a> {
    pub(crate) tenant_id: Uuid,
    pub(crate) conversation_id: Option<Uuid>,
    pub(crate) turn_id: Uuid,
    /// The turn's assistant; empty for a direct call.
    pub(crate) assistant: &'a str,
    /// Another process has worked on the turn before.
    pub(crate) taken_over: bool,
}

impl Tracer {
    /// Spans go to this sink. Messages, arguments and results are only in them if `captures_content` says so.
    pub fn new(sink: Arc<dyn SpanSink>, sampler: Sampler, captures_content: bool) -> Self {
        Self(Some(Arc::new(Exporting { sink, sampler, captures_content })))
    }

    /// The trace of a turn with this context.
    pub(crate) fn turn(&self, turn: &TracedTurn<'_>, context: Option<&ToolContext>, setup: &Arc<Setup>, clock: &Clock) -> TurnTrace {
        let Some(exporting) = &self.0 else { return TurnTrace::default() };
        let caller = context.and_then(CallerSpan::of);
        let trace_id = caller.map_or_else(|| turn.turn_id.into_bytes(), |caller| caller.trace_id);
        if !exporting.sampler.takes(trace_id, caller.map(|caller| caller.sampled)) {
            return TurnTrace::default();
        }
        let mut common = vec![(names::WERKRUF_TENANT_ID, turn.tenant_id.into()), (names::WERKRUF_TURN_ID, turn.turn_id.into())];
        if let Some(id) = turn.conversation_id {
            common.extend([(names::WERKRUF_CONVERSATION_ID, id.into()), (names::CONVERSATION_ID, id.into())]);
        }
        if turn.taken_over {
            common.push((names::WERKRUF_TAKEOVER, Attribute::Flag(true)));
        }
        TurnTrace(Some(Arc::new(Open {
            exporting: Arc::clone(exporting),
            setup: Arc::clone(setup),
            clock: clock.clone(),
            trace_id,
            caller: caller.map(|caller| caller.span_id),
            turn_id: turn.turn_id,
            assistant: turn.assistant.to_owned(),
            common,
        })))
    }
}

/// The trace of one turn; empty where traces are off or this one is not sampled.
#[derive(Clone, Default)]
pub(crate) struct TurnTrace(Option<Arc<Open>>);

struct Open {
    exporting: Arc<Exporting>,
    /// Its redaction, and the names of its tools.
    setup: Arc<Setup>,
    clock: Clock,
    trace_id: TraceId,
    /// The caller's span.
    caller: Option<SpanId>,
    turn_id: Uuid,
    assistant: String,
    /// On every span.
    common: Vec<(&'static str, Attribute)>,
}

/// How a turn ended.
pub(crate) struct TurnEnd<'a> {
    pub(crate) provider: &'a str,
    pub(crate) error: Option<&'a str>,
    /// As [`TurnTrace::content`] returns them.
    pub(crate) input: Option<String>,
    pub(crate) output: Option<String>,
}

/// What is not the same in every span.
pub(crate) struct NewSpan<'a> {
    pub(crate) id: SpanId,
    pub(crate) parent: SpanId,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Timestamp,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
    pub(crate) error: Option<&'a str>,
}

impl TurnTrace {
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether spans have messages, arguments and results.
    pub(crate) fn captures_content(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.exporting.captures_content)
    }

    /// The content of a span, redacted; `None` where content is not captured.
    pub(crate) fn content(&self, make: impl FnOnce(&Content<'_>) -> Value) -> Option<String> {
        let open = self.0.as_ref().filter(|open| open.exporting.captures_content)?;
        let redaction = &open.setup.redaction;
        // Names and ids may hold a secret too.
        Some(redaction.json(&mut make(&Content(redaction))))
    }

    /// The same for one text.
    pub(crate) fn text(&self, make: impl FnOnce() -> String) -> Option<String> {
        let open = self.0.as_ref().filter(|open| open.exporting.captures_content)?;
        Some(Content(&open.setup.redaction).text(&make()))
    }

    /// The span of the turn itself, or of a call.
    pub(crate) fn span_of(&self, call_id: Option<Uuid>) -> SpanId {
        call_id.or(self.0.as_ref().map(|open| open.turn_id)).map_or_else(SpanId::default, span_id)
    }

    /// The tool's name, unless a model invented it.
    pub(crate) fn tool_name<'a>(&self, name: &'a str) -> &'a str {
        let is_known = self.0.as_ref().is_some_and(|open| open.setup.registry.find(name).is_some());
        if is_known { name } else { names::UNKNOWN_TOOL }
    }

    /// Replaces the caller's span in the context of a call by the call's own.
    pub(crate) fn enter_call(&self, context: &mut ToolContext, call_id: Uuid) {
        context.extra.remove(TRACEPARENT);
        if let Some(open) = &self.0 {
            let own = format!("00-{}-{}-01", hex(&open.trace_id), hex(&span_id(call_id)));
            context.extra.insert(TRACEPARENT.to_owned(), own.into());
        }
    }

    /// An id for a span that nothing refers to.
    pub(crate) fn new_span_id(&self) -> SpanId {
        self.0.as_ref().map_or_else(SpanId::default, |open| span_id(open.clock.new_id()))
    }

    /// The turn has ended, and this process has written that.
    pub(crate) fn end(&self, end: TurnEnd<'_>) {
        let Some(open) = &self.0 else { return };
        let mut attributes = vec![(names::OPERATION_NAME, Attribute::from(names::INVOKE_AGENT))];
        attributes.extend([(names::PROVIDER_NAME, end.provider.into()), (names::SYSTEM, end.provider.into())]);
        if !open.assistant.is_empty() {
            attributes.push((names::AGENT_NAME, Attribute::from(open.assistant.as_str())));
        }
        let content = [(names::INPUT_MESSAGES, end.input), (names::OUTPUT_MESSAGES, end.output)];
        attributes.extend(content.into_iter().filter_map(|(name, text)| Some((name, Attribute::Text(text?)))));
        let ended_at = open.clock.now();
        let span = open.ended(
            open.caller,
            NewSpan {
                id: span_id(open.turn_id),
                parent: SpanId::default(),
                name: names::INVOKE_AGENT.to_owned(),
                kind: SpanKind::Internal,
                started_at: made_at(open.turn_id).unwrap_or(ended_at),
                ended_at,
                attributes,
                error: end.error,
            },
        );
        span.send();
    }

    /// A span inside the turn has ended.
    pub(crate) fn ended(&self, span: NewSpan<'_>) -> Option<EndedSpan> {
        self.0.as_ref().map(|open| open.ended(Some(span.parent), span))
    }
}

/// A span on its way to the sink.
pub(crate) struct EndedSpan {
    sink: Arc<dyn SpanSink>,
    span: Box<Span>,
}

impl EndedSpan {
    pub(crate) fn send(self) {
        self.sink.take(*self.span);
    }
}

impl Open {
    fn ended(&self, parent: Option<SpanId>, span: NewSpan<'_>) -> EndedSpan {
        let NewSpan { id, name, kind, started_at, ended_at, mut attributes, error, .. } = span;
        attributes.extend(self.common.iter().cloned());
        if let Some(error) = error {
            attributes.push((names::ERROR_TYPE, Attribute::from(error_type(error))));
        }
        let span = Box::new(Span {
            trace_id: self.trace_id,
            span_id: id,
            parent,
            name,
            kind,
            started_at,
            // A clock may be set back.
            ended_at: ended_at.max(started_at),
            attributes,
            failed: error.is_some(),
        });
        EndedSpan { sink: Arc::clone(&self.exporting.sink), span }
    }
}

/// A code as it is. A service may have chosen it, so anything longer or with other signs is not shown.
fn error_type(code: &str) -> &str {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if code.is_empty() || code.len() > 64 || !code.chars().all(fits) { names::OTHER_ERROR } else { code }
}

/// The last half of an id is random, and it is never zero.
fn span_id(id: Uuid) -> SpanId {
    let [.., a, b, c, d, e, f, g, h] = id.into_bytes();
    [a, b, c, d, e, f, g, h]
}

/// An id says when it was made.
fn made_at(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
