//! HTTP requests by the template of their route, and the open event streams.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use axum::extract::MatchedPath;
use http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// The template of a route, such as `/api/turns/{id}`. A path that is no route has none.
#[derive(Debug, Clone)]
pub(crate) struct Route(Option<MatchedPath>);

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Route {
    pub(crate) fn of(extensions: &http::Extensions) -> Self {
        Self(extensions.get::<MatchedPath>().cloned())
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_ref().map_or("unknown", MatchedPath::as_str)
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

/// The method's name; a client may invent methods, which all have one name.
pub(crate) fn method_name(method: &Method) -> &'static str {
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS]
        .into_iter()
        .zip(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        .find_map(|(known, name)| (known == method).then_some(name))
        .unwrap_or("OTHER")
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Route,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: Route,
}

type Durations = Family<RouteLabel, Histogram, fn() -> Histogram>;

/// What is counted of HTTP requests.
pub(crate) struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Durations,
    streams: Gauge,
}

impl HttpMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            seconds: Durations::new_with_constructor(|| Histogram::new(BUCKETS)),
            streams: Gauge::default(),
        };
        registry.register("werkruf_http_requests", "HTTP requests by route and class of status", metrics.requests.clone());
        registry.register("werkruf_http_seconds", "Seconds from a request to the head of its response", metrics.seconds.clone());
        registry.register("werkruf_streams", "Event streams that are open in this process", metrics.streams.clone());
        metrics
    }

    /// The head of a response is ready.
    pub(crate) fn responded(&self, method: &'static str, route: &Route, status: StatusCode, took: Duration) {
        let status = match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&RequestLabels { method, route: route.clone(), status }).inc();
        self.seconds.get_or_create(&RouteLabel { route: route.clone() }).observe(took.as_secs_f64());
    }

    /// Counts an event stream until the value is dropped.
    pub(crate) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }
}

/// One open event stream.
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
