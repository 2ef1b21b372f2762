//! The messages of OTLP that are needed for spans (opentelemetry/proto/{trace,common,resource,collector}/v1).

use werkruf_runtime::{Attribute, Span, SpanKind};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

const INTERNAL: i32 = 1;
const CLIENT: i32 = 3;
const ERROR: i32 = 2;
/// The trace is sampled.
const SAMPLED: u32 = 1;

impl ExportTraceServiceRequest {
    pub(super) fn new(resource: Resource, version: &str, spans: Vec<Span>) -> Self {
        let scope = InstrumentationScope { name: "werkruf".to_owned(), version: version.to_owned() };
        let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(SpanMessage::from).collect() };
        Self { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans: vec![scope_spans] }] }
    }
}

impl Resource {
    pub(super) fn new(attributes: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { attributes: attributes.into_iter().map(|(key, text)| pair(key, Value::Text(text))).collect() }
    }
}

impl From<Span> for SpanMessage {
    fn from(span: Span) -> Self {
        let nanos = |at: jiff::Timestamp| u64::try_from(at.as_nanosecond()).unwrap_or(0);
        Self {
            trace_id: span.trace_id.to_vec(),
            span_id: span.span_id.to_vec(),
            parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
            name: span.name,
            kind: match span.kind {
                SpanKind::Internal => INTERNAL,
                SpanKind::Client => CLIENT,
            },
            start_time_unix_nano: nanos(span.started_at),
            end_time_unix_nano: nanos(span.ended_at),
            attributes: span.attributes.into_iter().map(|(key, value)| pair(key.to_owned(), value.into())).collect(),
            status: span.failed.then_some(Status { code: ERROR }),
            flags: SAMPLED,
        }
    }
}

impl From<Attribute> for Value {
    fn from(attribute: Attribute) -> Self {
        match attribute {
            Attribute::Text(text) => Self::Text(text),
            Attribute::Number(number) => Self::Number(number),
            Attribute::Flag(flag) => Self::Flag(flag),
            Attribute::Texts(texts) => {
                let value = |text| AnyValue { value: Some(Self::Text(text)) };
                Self::List(ArrayValue { values: texts.into_iter().map(value).collect() })
            }
        }
    }
}

fn pair(key: String, value: Value) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }) }
}
