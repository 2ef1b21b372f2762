use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use prost::Message;
use tokio::net::TcpListener;
use werkruf_contract::Clock;
use werkruf_llm::{HttpLimits, http_client};
use werkruf_runtime::{Attribute, Sampler, Span, SpanKind, SpanSink};

use super::super::otlp_message::{ExportTraceServiceRequest, ExportTraceServiceResponse, Resource};
use super::{QUEUE_BYTES, SpanExporter};
use crate::config::TracesConfig;

/// What the crate opentelemetry-proto 0.33.1 encodes for the span below, and for a response that rejects three spans.
const REQUEST: &str = "0ac6010a1b0a190a0c736572766963652e6e616d6512090a077765726b72756612a6010a100a077765726b7275661205302e322e301291010a1001020304\
05060708090a0b0c0d0e0f10120815161718191a1b1c22081f202122232425262a0663686174206d30033900002a36fe9c971741002f928ffe9c97174a0b0a047465787412030a01614a15\
0a066e756d626572120b18f9ffffffffffffffff014a0a0a04666c6167120210014a130a057465787473120a2a080a060a0473746f707a021802850101000000";
const REJECTED: [u8; 8] = [0x0a, 0x06, 0x08, 0x03, 0x12, 0x02, b'n', b'o'];

fn span() -> Span {
    let bytes = |first: u8| std::array::from_fn(|at| first + u8::try_from(at).unwrap());
    Span {
        trace_id: std::array::from_fn(|at| 1 + u8::try_from(at).unwrap()),
        span_id: bytes(21),
        parent: Some(bytes(31)),
        name: "chat m".to_owned(),
        kind: SpanKind::Client,
        started_at: Timestamp::from_second(1_700_000_000).unwrap(),
        ended_at: Timestamp::from_millisecond(1_700_000_001_500).unwrap(),
        attributes: vec![
            ("text", Attribute::from("a")),
            ("number", Attribute::Number(-7)),
            ("flag", Attribute::Flag(true)),
            ("texts", Attribute::Texts(vec!["stop".to_owned()])),
        ],
        failed: true,
    }
}

fn exporter(url: &str, queue: usize) -> Arc<SpanExporter> {
    let config = TracesConfig {
        url: url.parse().unwrap(),
        headers: Vec::new(),
        timeout: Duration::from_secs(10),
        delay: Duration::from_millis(10),
        queue,
        batch: queue,
        resource: vec![("service.name".to_owned(), "werkruf".to_owned())],
        sampler: Sampler { ratio: 1.0, follows_caller: true },
        captures_content: false,
    };
    SpanExporter::new(config, http_client(&HttpLimits::default()).unwrap(), Clock::system(0))
}

/// A receiver that answers with these, and afterwards accepts. Returns its address, and how many requests it got.
#[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
async fn receiver(mut answers: Vec<(StatusCode, Bytes)>) -> (String, Arc<Mutex<usize>>) {
    answers.reverse();
    let (answers, received) = (Arc::new(Mutex::new(answers)), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&received);
    let answer = move |headers: HeaderMap, body: Bytes| {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(ExportTraceServiceRequest::decode(body).unwrap().resource_spans.len(), 1);
        *counted.lock().unwrap() += 1;
        let answer = answers.lock().unwrap().pop().unwrap_or((StatusCode::OK, Bytes::new()));
        async move { answer }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (url, received)
}

/// Sends what waits and stops. Returns how many spans were lost.
async fn lost(exporter: &SpanExporter) -> u64 {
    exporter.stop.cancel();
    exporter.send_until_stopped().await;
    exporter.queue.lost.load(Ordering::Relaxed)
}

#[test]
fn messages_are_encoded_as_the_standard_says() {
    let resource = Resource::new([("service.name".to_owned(), "werkruf".to_owned())]);
    let encoded = ExportTraceServiceRequest::new(resource, "0.2.0", vec![span()]).encode_to_vec();
    assert_eq!(werkruf_contract::hex(&encoded), REQUEST);
    assert_eq!(ExportTraceServiceResponse::decode(&REJECTED[..]).unwrap().partial_success.unwrap().rejected_spans, 3);
}

#[tokio::test]
async fn a_batch_is_sent_again_only_if_the_receiver_may_take_it_later() {
    for (statuses, requests, expected) in [(&[503, 429][..], 3, 0), (&[503, 502, 504], 3, 1), (&[400], 1, 1)] {
        let answers = statuses.iter().map(|status| (StatusCode::from_u16(*status).unwrap(), Bytes::new())).collect();
        let (url, received) = receiver(answers).await;
        let exporter = exporter(&url, 10);
        exporter.queue.take(span());
        assert_eq!((lost(&exporter).await, *received.lock().unwrap()), (expected, requests), "{statuses:?}");
    }
}

#[tokio::test]
async fn rejected_spans_and_those_beyond_the_queue_are_counted() {
    let (url, received) = receiver(vec![(StatusCode::OK, Bytes::from_static(&REJECTED))]).await;
    let small = exporter(&url, 10);
    for _ in 0..12 {
        small.queue.take(span());
    }
    assert_eq!((lost(&small).await, *received.lock().unwrap()), (5, 1), "two did not fit, three were rejected");
    // A queue is bounded in bytes too.
    let large = exporter(&url, 1000);
    let text = Attribute::Text("x".repeat(QUEUE_BYTES / 4));
    for _ in 0..4 {
        large.queue.take(Span { attributes: vec![("text", text.clone())], ..span() });
    }
    assert_eq!(large.queue.lost.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_receiver_that_never_answers_delays_the_end_within_a_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let exporter = exporter(&format!("http://{}/", listener.local_addr().unwrap()), 10);
    exporter.queue.take(span());
    let running = async { tokio::time::timeout(Duration::from_secs(60), exporter.run()).await.unwrap() };
    let stopping = async {
        // The connection is never served.
        let _connection = listener.accept().await.unwrap();
        exporter.queue.take(span());
        super::Traces(Some(Arc::clone(&exporter))).flush().await;
    };
    tokio::join!(running, stopping);
    assert_eq!(exporter.queue.lost.load(Ordering::Relaxed), 2, "one was being sent, one waited");
}
