//! Stubs of Seats.aero, Amadeus and Duffel on loopback, with their headers, quotas, tokens and rate limits.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use werkruf_contract::Deadline;

use crate::behavior::Behavior;
use crate::payloads::{duffel, offer, page, row, trip_details};

pub const SEATS_KEY: &str = "pro_1234";

/// The recorded calls and the configured behavior of all three stubs.
#[derive(Default)]
pub struct Stub {
    pub seats_behavior: Mutex<VecDeque<Behavior>>,
    pub amadeus_behavior: Mutex<VecDeque<Behavior>>,
    pub token_behavior: Mutex<VecDeque<Behavior>>,
    pub duffel_behavior: Mutex<VecDeque<Behavior>>,
    pub trips_behavior: Mutex<VecDeque<Behavior>>,
    pub trip_calls: Mutex<Vec<String>>,
    pub seats_calls: Mutex<Vec<HashMap<String, String>>>,
    pub offer_calls: Mutex<Vec<HashMap<String, String>>>,
    pub duffel_calls: Mutex<Vec<Bytes>>,
    pub token_calls: AtomicUsize,
    /// The remaining daily quota that Seats.aero reports.
    pub remaining: AtomicI64,
    /// The `expires_in` of a token, in seconds.
    pub lifetime: AtomicI64,
    /// The valid token; empty means none.
    good_token: Mutex<String>,
    /// Until when Amadeus refuses another request.
    refuse_until: Mutex<Option<Deadline>>,
}

/// The running stubs.
pub struct Stubs {
    pub url: String,
    pub stub: Arc<Stub>,
    _tasks: JoinSet<()>,
}

impl Stubs {
    pub async fn start() -> Self {
        let stub = Arc::new(Stub { remaining: AtomicI64::new(1000), lifetime: AtomicI64::new(1799), ..Stub::default() });
        let router = Router::new()
            .route("/partnerapi/search", get(seats))
            .route("/partnerapi/trips/{id}", get(trips))
            .route("/v1/security/oauth2/token", post(token))
            .route("/v2/shopping/flight-offers", get(offers))
            .route("/air/offer_requests", post(duffel_offers))
            .with_state(Arc::clone(&stub));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, stub, _tasks: tasks }
    }
}

impl Stub {
    /// Expires all issued tokens.
    pub fn expire(&self) {
        self.good_token.lock().unwrap().clear();
    }

    pub fn seats_count(&self) -> usize {
        self.seats_calls.lock().unwrap().len()
    }

    pub fn offer_count(&self) -> usize {
        self.offer_calls.lock().unwrap().len()
    }

    pub fn tokens(&self) -> usize {
        self.token_calls.load(Ordering::SeqCst)
    }
}

fn next(behavior: &Mutex<VecDeque<Behavior>>) -> Behavior {
    let mut queue = behavior.lock().unwrap();
    // The last behavior stays in the queue.
    if queue.len() > 1 { queue.pop_front().unwrap() } else { queue.front().copied().unwrap_or(Behavior::Normal) }
}

fn plain(status: u16, kind: &str, body: &str) -> Response<Body> {
    Response::builder().status(status).header("content-type", kind).body(Body::from(body.to_owned())).unwrap()
}

async fn seats(State(stub): State<Arc<Stub>>, headers: HeaderMap, Query(params): Query<HashMap<String, String>>) -> Response<Body> {
    if headers.get("partner-authorization").is_none_or(|key| key != SEATS_KEY) {
        return plain(401, "text/plain", "bad_partner_key");
    }
    stub.seats_calls.lock().unwrap().push(params.clone());
    let left = stub.remaining.fetch_sub(1, Ordering::SeqCst) - 1;
    if left < 0 {
        return plain(429, "text/plain", "rate limited");
    }
    let behavior = next(&stub.seats_behavior);
    let named: Vec<&str> = params.get("sources").map_or_else(|| vec!["aeroplan", "united"], |text| text.split(',').collect());
    let known = named.into_iter().filter(|source| ["aeroplan", "united", "lufthansa"].contains(source));
    let rows: Vec<_> = known
        .zip([85_000, 90_000, 95_000])
        .map(|(source, miles)| row(source, &params["origin_airport"], &params["destination_airport"], &params["start_date"], miles))
        .collect();
    // Like the real API: only the right parameter gives results.
    let body = if params.get("cabins").is_some_and(|cabins| cabins == "business") { page(&rows) } else { page(&[]) };
    let headers = [
        ("cache-control", "public, max-age=60".to_owned()),
        ("x-ratelimit-limit", "1000".to_owned()),
        ("x-ratelimit-remaining", left.to_string()),
        ("x-ratelimit-reset", "40000".to_owned()),
    ];
    behavior.answer(body, &headers).await
}

async fn trips(State(stub): State<Arc<Stub>>, Path(id): Path<String>) -> Response<Body> {
    stub.trip_calls.lock().unwrap().push(id.clone());
    let left = stub.remaining.fetch_sub(1, Ordering::SeqCst) - 1;
    let program = id.split('-').next().unwrap_or_default();
    next(&stub.trips_behavior).answer(trip_details(program), &[("x-ratelimit-remaining", left.to_string())]).await
}

async fn token(State(stub): State<Arc<Stub>>, body: String) -> Response<Body> {
    let number = stub.token_calls.fetch_add(1, Ordering::SeqCst) + 1;
    let behavior = next(&stub.token_behavior);
    if !body.contains("grant_type=client_credentials") || !body.contains("client_secret=s%2Fcret") {
        return plain(
            401,
            "application/json",
            r#"{"error":"invalid_client","error_description":"Client credentials are invalid","code":38187}"#,
        );
    }
    let good = format!("token-{number}");
    stub.good_token.lock().unwrap().clone_from(&good);
    let body = serde_json::json!({"type": "amadeusOAuth2Token", "token_type": "Bearer", "access_token": good, "state": "approved",
        "expires_in": stub.lifetime.load(Ordering::SeqCst)});
    behavior.answer(body.to_string(), &[]).await
}

async fn offers(State(stub): State<Arc<Stub>>, headers: HeaderMap, Query(params): Query<HashMap<String, String>>) -> Response<Body> {
    let refuse = |status: u16, code: u32, title: &str| {
        let body = serde_json::json!({"errors": [{"status": status, "code": code, "title": title, "detail": title}]});
        plain(status, "application/vnd.amadeus+json", &body.to_string())
    };
    {
        let mut not_before = stub.refuse_until.lock().unwrap();
        if not_before.is_some_and(|until| !until.passed()) {
            return refuse(429, 38194, "Too many requests");
        }
        *not_before = Some(Deadline::after(Duration::from_millis(20)));
    }
    let sent = headers.get("authorization").and_then(|value| value.to_str().ok()).and_then(|text| text.strip_prefix("Bearer "));
    if sent.is_none_or(|sent| *stub.good_token.lock().unwrap() != sent) {
        return refuse(401, 38192, "Access token expired");
    }
    let class = params.get("travelClass").map_or("", String::as_str);
    if !["ECONOMY", "PREMIUM_ECONOMY", "BUSINESS", "FIRST"].contains(&class) {
        return refuse(400, 477, "INVALID FORMAT");
    }
    stub.offer_calls.lock().unwrap().push(params.clone());
    let behavior = next(&stub.amadeus_behavior);
    let both = [offer("1", "1590.78", "795.39", "LH400", &params), offer("2", "1601.00", "800.50", "UA8840", &params)];
    let body = serde_json::json!({"meta": {"count": 2}, "data": both, "dictionaries": {"carriers": {"LH": "LUFTHANSA"}}});
    behavior.answer(body.to_string(), &[]).await
}

async fn duffel_offers(State(stub): State<Arc<Stub>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    if headers.get("duffel-version").is_none_or(|version| version != "v2") {
        return plain(400, "application/json", r#"{"errors":[{"title":"Unsupported version"}]}"#);
    }
    stub.duffel_calls.lock().unwrap().push(body);
    let behavior = next(&stub.duffel_behavior);
    behavior.answer(duffel(), &[]).await
}
