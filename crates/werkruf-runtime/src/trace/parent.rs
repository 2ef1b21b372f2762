//! The caller's span, as the header `traceparent` names it (W3C Trace Context).

use serde_json::Value;
use werkruf_contract::{TRACEPARENT, ToolContext};

use super::{SpanId, TraceId};

/// The span of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerSpan {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub sampled: bool,
}

impl CallerSpan {
    /// Reads the header; `None` for one that the standard does not allow.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let [version] = bytes::<1>(parts.next()?)?;
        let (trace_id, span_id, [flags]) = (bytes(parts.next()?)?, bytes(parts.next()?)?, bytes::<1>(parts.next()?)?);
        // A later version may add parts; 255 is forbidden.
        let whole = version != u8::MAX && (version > 0 || parts.next().is_none());
        (whole && trace_id != [0; 16] && span_id != [0; 8]).then_some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }

    /// The span that a stored context names.
    pub(super) fn of(context: &ToolContext) -> Option<Self> {
        context.extra.get(TRACEPARENT).and_then(Value::as_str).and_then(Self::parse)
    }
}

/// Lower-case digits only, as the standard says.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let pairs = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
