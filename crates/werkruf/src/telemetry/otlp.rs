//! Sends spans to an OTLP receiver over HTTP, in batches, from one task.
//!
//! A turn only puts a span into a queue that is bounded in spans and bytes, so a receiver that is slow or gone costs spans, never time. Spans
//! that were not sent are counted, and the log says so at most once a minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use prost::Message;
use secrecy::ExposeSecret;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use werkruf_contract::Clock;
use werkruf_llm::cause;
use werkruf_runtime::{Attribute, Span, SpanSink, Tracer};

use super::otlp_message::{ExportTraceServiceRequest, ExportTraceServiceResponse, Resource};
use crate::config::TracesConfig;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long a process that stops tries to send what is left.
const FLUSH: Duration = Duration::from_secs(5);
/// What the spans in the queue may take, roughly.
const QUEUE_BYTES: usize = 16 * 1024 * 1024;
/// How often a batch is sent in all.
const SENDS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The most bytes that are read of a response.
const RESPONSE_BYTES: usize = 64 * 1024;

/// The traces of a process; without a receiver there are none.
pub struct Traces(Option<Arc<SpanExporter>>);

impl Traces {
    /// Starts the task that sends spans.
    pub(crate) fn start(config: Option<&TracesConfig>, client: &reqwest::Client, clock: &Clock, tasks: &TaskTracker) -> Self {
        let exporter = config.map(|config| SpanExporter::new(config.clone(), client.clone(), clock.clone()));
        if let Some(exporter) = exporter.clone() {
            tasks.spawn(async move { exporter.run().await });
        }
        Self(exporter)
    }

    pub(crate) fn tracer(&self) -> Tracer {
        self.0.as_ref().map(|exporter| exporter.tracer()).unwrap_or_default()
    }

    /// Sends the spans that still wait, within a bound; those of later turns are lost.
    pub async fn flush(&self) {
        if let Some(exporter) = &self.0 {
            exporter.stop.cancel();
            exporter.stopped.cancelled().await;
        }
    }
}

struct SpanExporter {
    config: TracesConfig,
    client: reqwest::Client,
    clock: Clock,
    resource: Resource,
    queue: Arc<SpanQueue>,
    stop: CancellationToken,
    stopped: CancellationToken,
}

/// The spans that wait to be sent.
struct SpanQueue {
    waiting: Mutex<Waiting>,
    most: usize,
    batch: usize,
    /// A whole batch waits.
    filled: Notify,
    /// Spans that were not sent.
    lost: AtomicU64,
    /// Those that the log has told of.
    reported: AtomicU64,
    /// Spans of the batch that is being sent.
    sending: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    spans: VecDeque<Span>,
    bytes: usize,
}

impl SpanExporter {
    fn new(config: TracesConfig, client: reqwest::Client, clock: Clock) -> Arc<Self> {
        let mut resource = config.resource.clone();
        let mut add = |name: &str, value: String| {
            if !resource.iter().any(|(known, _)| known == name) {
                resource.push((name.to_owned(), value));
            }
        };
        add("service.version", VERSION.to_owned());
        add("service.instance.id", clock.new_id().to_string());
        let queue = SpanQueue {
            waiting: Mutex::default(),
            most: config.queue,
            batch: config.batch,
            filled: Notify::new(),
            lost: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            sending: AtomicUsize::new(0),
        };
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        Arc::new(Self { config, client, clock, resource: Resource::new(resource), queue: Arc::new(queue), stop, stopped })
    }

    fn tracer(&self) -> Tracer {
        Tracer::new(Arc::clone(&self.queue) as _, self.config.sampler, self.config.captures_content)
    }

    /// Sends spans until the process stops, and what is left then, within a bound.
    async fn run(&self) {
        let _ended = self.stopped.clone().drop_guard();
        let late = async {
            self.stop.cancelled().await;
            tokio::time::sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.send_until_stopped() => {}
            () = late => {}
        }
        let left = self.queue.lock().spans.len() + self.queue.sending.load(Ordering::Relaxed);
        self.queue.lose(left);
        self.report("the process stopped before they were sent");
    }

    async fn send_until_stopped(&self) {
        let (mut reported, mut fault) = (None::<Instant>, String::new());
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = self.queue.filled.notified() => {}
                () = tokio::time::sleep(self.config.delay) => {}
            }
            while let Some(spans) = self.queue.take_batch() {
                let count = spans.len();
                if let Err(error) = self.send(spans).await {
                    fault = error;
                    self.queue.lose(count);
                }
                self.queue.sending.store(0, Ordering::Relaxed);
                if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) && self.report(&fault) {
                    reported = Some(Instant::now());
                }
            }
            if self.stop.is_cancelled() {
                return;
            }
        }
    }

    /// Says how many spans were lost since the last report; false for none.
    fn report(&self, cause: &str) -> bool {
        let all = self.queue.lost.load(Ordering::Relaxed);
        let lost = all - self.queue.reported.swap(all, Ordering::Relaxed);
        if lost > 0 {
            let receiver = self.config.url.host_str().unwrap_or_default();
            tracing::warn!(code = "spans_lost", spans = lost, receiver, cause, "spans were not sent to the receiver of traces");
        }
        lost > 0
    }

    /// Sends a batch, again if the receiver may take it later.
    async fn send(&self, spans: Vec<Span>) -> Result<(), String> {
        let body = ExportTraceServiceRequest::new(self.resource.clone(), VERSION, spans).encode_to_vec();
        let mut sent = 0;
        loop {
            sent += 1;
            let (fault, pause) = match self.post(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(Refused { fault, again: Some(pause) }) if sent < SENDS => {
                    (fault, pause.unwrap_or(FIRST_PAUSE * sent).mul_f64(1.0 + self.clock.chance() / 4.0))
                }
                Err(Refused { fault, .. }) => return Err(fault),
            };
            tracing::debug!(fault, sent, "the receiver of traces did not take a batch");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Nothing is gained by waiting now.
                () = self.stop.cancelled() => {}
            }
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), Refused> {
        let mut request = self.client.post(self.config.url.clone()).timeout(self.config.timeout);
        for (name, value) in &self.config.headers {
            request = request.header(name, value.expose_secret());
        }
        let sent = request.header(CONTENT_TYPE, "application/x-protobuf").body(body).send().await;
        let mut response = sent.map_err(|error| Refused { fault: cause(&error), again: Some(None) })?;
        let status = response.status();
        if !status.is_success() {
            let again = matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            );
            let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = asked.map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
            return Err(Refused { fault: format!("status {status}"), again: again.then_some(pause) });
        }
        let mut answer = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await
            && answer.len() + chunk.len() <= RESPONSE_BYTES
        {
            answer.extend_from_slice(&chunk);
        }
        // The receiver may take a batch and refuse some of its spans.
        let refused = ExportTraceServiceResponse::decode(&answer[..]).ok().and_then(|answer| answer.partial_success);
        self.queue.lose(refused.and_then(|part| usize::try_from(part.rejected_spans).ok()).unwrap_or(0));
        Ok(())
    }
}

/// Why a batch was not taken, and whether it may be sent again, perhaps after a pause that the receiver named.
struct Refused {
    fault: String,
    again: Option<Option<Duration>>,
}

impl SpanQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, spans: usize) {
        self.lost.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The oldest spans; `None` where none wait.
    fn take_batch(&self) -> Option<Vec<Span>> {
        let mut waiting = self.lock();
        let count = waiting.spans.len().min(self.batch);
        let batch: Vec<Span> = waiting.spans.drain(..count).collect();
        waiting.bytes = waiting.bytes.saturating_sub(batch.iter().map(size).sum());
        self.sending.store(count, Ordering::Relaxed);
        (count > 0).then_some(batch)
    }
}

impl SpanSink for SpanQueue {
    fn take(&self, span: Span) {
        let bytes = size(&span);
        let mut waiting = self.lock();
        if waiting.spans.len() >= self.most || waiting.bytes + bytes > QUEUE_BYTES {
            return self.lose(1);
        }
        waiting.bytes += bytes;
        waiting.spans.push_back(span);
        if waiting.spans.len() >= self.batch {
            self.filled.notify_one();
        }
    }
}

/// Roughly what a span takes.
fn size(span: &Span) -> usize {
    let value = |value: &Attribute| match value {
        Attribute::Text(text) => text.len(),
        Attribute::Texts(texts) => texts.iter().map(String::len).sum(),
        Attribute::Number(_) | Attribute::Flag(_) => 0,
    };
    size_of::<Span>() + span.name.len() + span.attributes.iter().map(|(_, text)| size_of_val(text) + value(text)).sum::<usize>()
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;
