//! An OTLP receiver: it decodes the protobuf of traces by field numbers and keeps the spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use werkruf_contract::hex;

/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Span {
    pub trace_id: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub started: u64,
    pub ended: u64,
    pub attributes: BTreeMap<String, Value>,
    /// Status code 2.
    pub failed: bool,
}

#[derive(Clone, Default)]
struct Shared {
    spans: Arc<Mutex<Vec<Span>>>,
    resources: Arc<Mutex<Vec<BTreeMap<String, Value>>>>,
    raw: Arc<Mutex<Vec<u8>>>,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
}

pub struct Collector {
    pub url: String,
    shared: Shared,
}

impl Collector {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    pub async fn start() -> Self {
        let shared = Shared::default();
        let own = shared.clone();
        let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            assert_eq!((uri.path(), &headers["content-type"]), ("/v1/traces", &"application/x-protobuf".parse().unwrap()));
            own.headers.lock().unwrap().push(headers);
            own.raw.lock().unwrap().extend_from_slice(&body);
            own.receive(&body);
            async { Bytes::new() }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, shared }
    }

    /// The spans, once there are so many turns among them.
    pub async fn turns(&self, count: usize) -> Vec<Span> {
        let work = async {
            loop {
                let spans = self.spans();
                if spans.iter().filter(|span| span.name == "invoke_agent").count() >= count {
                    return spans;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, work).await.unwrap()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.shared.spans.lock().unwrap().clone()
    }

    pub fn resource(&self) -> BTreeMap<String, Value> {
        self.shared.resources.lock().unwrap()[0].clone()
    }

    pub fn headers(&self) -> HeaderMap {
        self.shared.headers.lock().unwrap()[0].clone()
    }

    /// Whether anything that came contains these bytes.
    pub fn has_received(&self, text: &str) -> bool {
        self.shared.raw.lock().unwrap().windows(text.len()).any(|window| window == text.as_bytes())
    }
}

impl Shared {
    fn receive(&self, body: &[u8]) {
        for resource_spans in parts(body, 1) {
            let resource = parts(&resource_spans, 1).remove(0);
            self.resources.lock().unwrap().push(attributes(&resource, 1));
            for span in parts(&resource_spans, 2).iter().flat_map(|scope_spans| parts(scope_spans, 2)) {
                let text = |number| String::from_utf8(parts(&span, number).concat()).unwrap();
                let id = |number| hex(&parts(&span, number).concat());
                let status = parts(&span, 15).concat();
                self.spans.lock().unwrap().push(Span {
                    trace_id: id(1),
                    id: id(2),
                    parent: id(4),
                    name: text(5),
                    started: numbers(&span, 7)[0],
                    ended: numbers(&span, 8)[0],
                    attributes: attributes(&span, 9),
                    failed: numbers(&status, 3) == [2],
                });
            }
        }
    }
}

enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// All fields of a message with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u64, Field)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => Field::Number(u64::from_le_bytes(take(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut message);
                Field::Bytes(take(&mut message, usize::try_from(length).unwrap()).to_vec())
            }
            5 => Field::Number(u64::from(u32::from_le_bytes(take(&mut message, 4).try_into().unwrap()))),
            other => panic!("there is no wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for at in 0.. {
        let byte = take(message, 1)[0];
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn parts(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    let bytes = |(found, field)| match field {
        Field::Bytes(bytes) if found == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

fn numbers(message: &[u8], number: u64) -> Vec<u64> {
    let value = |(found, field)| match field {
        Field::Number(value) if found == number => Some(value),
        _ => None,
    };
    fields(message).into_iter().filter_map(value).collect()
}

fn attributes(message: &[u8], number: u64) -> BTreeMap<String, Value> {
    let pair = |pair: &Vec<u8>| (String::from_utf8(parts(pair, 1).concat()).unwrap(), value(&parts(pair, 2).concat()));
    parts(message, number).iter().map(pair).collect()
}

/// `AnyValue`.
fn value(message: &[u8]) -> Value {
    match fields(message).pop() {
        Some((1, Field::Bytes(text))) => json!(String::from_utf8(text).unwrap()),
        Some((2, Field::Number(flag))) => json!(flag == 1),
        Some((3, Field::Number(number))) => json!(number.cast_signed()),
        Some((5, Field::Bytes(list))) => parts(&list, 1).iter().map(|item| value(item)).collect(),
        _ => Value::Null,
    }
}
