//! Faults of one provider: the answer is in time, the flights of the other provider are complete, and the fault has a reason.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use werkruf_contract::Deadline;

use crate::behavior::Behavior;
use crate::fixture::{Fixture, Options, args_with, base_args, len, provider_status};

const DEADLINE: Duration = Duration::from_millis(600);
/// The allowed delay beyond the deadline.
const GRACE: Duration = Duration::from_millis(50);

/// The endpoint with the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Seats,
    Amadeus,
    Token,
}

fn reason(behavior: Behavior, endpoint: Endpoint) -> &'static str {
    match (behavior, endpoint) {
        (Behavior::Hangs | Behavior::HangsMidBody, _) => "timeout",
        (Behavior::Truncated | Behavior::Status(500 | 503 | 404), _) => "upstream",
        (Behavior::Html | Behavior::InvalidJson | Behavior::BadGzip | Behavior::OtherShape, _) => "bad_response",
        (Behavior::BadKey, _) => "credentials",
        (Behavior::RateLimited(_) | Behavior::QuotaExhausted, _) => "quota",
        (Behavior::Normal | Behavior::Delayed(_) | Behavior::Status(_), _) => "",
    }
}

/// A busy machine can delay one answer. The same case late four times is a bug.
async fn in_time_within_four_runs(endpoint: Endpoint, behavior: Behavior) {
    for _ in 0..3 {
        if search_is_in_time(endpoint, behavior).await {
            return;
        }
    }
    assert!(search_is_in_time(endpoint, behavior).await, "{endpoint:?} {behavior:?}: later than the deadline and 50 ms, four times");
}

/// Runs one search and checks its result. Returns whether the answer was in time.
async fn search_is_in_time(endpoint: Endpoint, behavior: Behavior) -> bool {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options { deadline: DEADLINE, ..Options::default() });
    let stub = fixture.stub();
    let queue = match endpoint {
        Endpoint::Seats => &stub.seats_behavior,
        Endpoint::Amadeus => &stub.amadeus_behavior,
        Endpoint::Token => &stub.token_behavior,
    };
    queue.lock().unwrap().push_back(behavior);
    let time_limit = Deadline::after(DEADLINE + GRACE);
    let reply = tools.search(base_args()).await;
    let in_time = !time_limit.passed();
    let (bad, good) = if endpoint == Endpoint::Seats { ("seatsaero", "amadeus") } else { ("amadeus", "seatsaero") };
    let status = if reason(behavior, endpoint).is_empty() { "ok" } else { "failed" };
    assert_eq!(provider_status(&reply, bad), (status.to_owned(), reason(behavior, endpoint).to_owned()), "{endpoint:?} {behavior:?}");
    assert_eq!(provider_status(&reply, good).0, "ok", "{endpoint:?} {behavior:?}");
    let whole_part = if endpoint == Endpoint::Seats { len(&reply, "cash") == 1 } else { len(&reply, "awards") == 2 };
    assert!(whole_part, "{endpoint:?} {behavior:?}");
    let text = reply.message.unwrap();
    let named = if endpoint == Endpoint::Seats { "Seats.aero fehlt" } else { "Amadeus fehlt" };
    assert_eq!(text.contains(named), status == "failed", "{text}");
    in_time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_of_one_provider_does_not_affect_the_other() {
    for behavior in Behavior::ALL {
        in_time_within_four_runs(Endpoint::Seats, behavior).await;
        in_time_within_four_runs(Endpoint::Amadeus, behavior).await;
    }
    for behavior in
        [Behavior::Hangs, Behavior::HangsMidBody, Behavior::Truncated, Behavior::Status(500), Behavior::Html, Behavior::InvalidJson]
    {
        in_time_within_four_runs(Endpoint::Token, behavior).await;
    }
}

#[tokio::test]
async fn a_search_with_one_failed_direction_has_results() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().extend([Behavior::Normal, Behavior::Status(500)]);
    let reply =
        fixture.tools(&Options { amadeus: false, ..Options::default() }).search(args_with(json!({"return_date": "2026-12-09"}))).await;
    assert_eq!(len(&reply, "awards") + len(&reply, "awards_return"), 2);
    assert_eq!(provider_status(&reply, "seatsaero"), ("ok".into(), "upstream".into()));
    assert!(reply.message.unwrap().contains("Seats.aero fehlt"));
}

#[tokio::test]
async fn a_search_with_only_failures_is_not_an_error() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().push_back(Behavior::Html);
    fixture.stub().amadeus_behavior.lock().unwrap().push_back(Behavior::InvalidJson);
    let reply = fixture.tools(&Options::default()).search(base_args()).await;
    assert_eq!(reply.data["kind"], "nothing");
    assert_eq!(
        (provider_status(&reply, "seatsaero").1, provider_status(&reply, "amadeus").1),
        ("bad_response".into(), "bad_response".into())
    );
}

#[tokio::test]
async fn a_pause_before_the_deadline_is_waited_for() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().extend([Behavior::RateLimited(1), Behavior::Normal]);
    let reply = fixture.tools(&Options { amadeus: false, ..Options::default() }).search(base_args()).await;
    assert_eq!((provider_status(&reply, "seatsaero"), fixture.stub().seats_count()), (("ok".into(), "".into()), 2));
}

/// A pseudo-random generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A thousand searches with random provider behavior. The seed of a run is its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_searches_with_random_faults_never_fail() {
    let fixture = Fixture::open().await;
    let results = stream::iter(0..1000_u64).map(|seed| run(&fixture, seed)).buffer_unordered(40).collect::<Vec<_>>().await;
    let found = results.iter().filter(|found| **found).count();
    assert_eq!(results.len(), 1000);
    assert!((100..1000).contains(&found), "{found} of 1000 searches found flights: the behavior was not random");
}

async fn run(fixture: &Fixture, seed: u64) -> bool {
    let mut dice = Dice(seed);
    let stub = fixture.stub();
    for queue in [&stub.seats_behavior, &stub.amadeus_behavior, &stub.token_behavior, &stub.duffel_behavior] {
        let behavior = Behavior::ALL[dice.roll(Behavior::ALL.len())];
        let mut queue = queue.lock().unwrap();
        queue.push_back(behavior);
        if queue.len() > 40 {
            queue.pop_front();
        }
    }
    if dice.roll(10) == 0 {
        stub.expire();
    }
    let deadline = Duration::from_millis(40 + u64::try_from(dice.roll(80)).unwrap());
    let tools = fixture.tools(&Options { deadline, duffel: true, quota: 1_000_000, ..Options::default() });
    stub.remaining.store(1_000_000, std::sync::atomic::Ordering::SeqCst);
    let change = if dice.roll(2) == 0 { json!({"return_date": "2026-12-09"}) } else { json!({}) };
    let reply = tools.call("search_flights", args_with(change)).await;
    assert!(reply.is_ok(), "run {seed}: {reply:?}");
    let reply = reply.unwrap();
    let reports = reply.data["providers"].as_array().unwrap();
    assert_eq!(reports.len(), 3, "run {seed}");
    for report in reports {
        let fits = match report["status"].as_str().unwrap() {
            "failed" => report["reason"].is_string(),
            "ok" => report["count"].as_u64().unwrap() > 0,
            "empty" => report["reason"].is_null(),
            _ => false,
        };
        assert!(fits, "run {seed}: {report}");
    }
    reply.data["kind"] == "results"
}
