//! One provider in bad weather: the answer comes in time, the other's flights are whole, and the failure has a name.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use werkruf_contract::Deadline;

use crate::behavior::Behavior;
use crate::fixture::{Fixture, Options, args_with, base_args, len, provider_status};

const DEADLINE: Duration = Duration::from_millis(600);
/// What the interface allows beyond the deadline.
const GRACE: Duration = Duration::from_millis(50);

/// Whose weather is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Seats,
    Amadeus,
    Token,
}

fn reason(behavior: Behavior, side: Side) -> &'static str {
    match (behavior, side) {
        (Behavior::Hangs | Behavior::HangsMidBody, _) => "timeout",
        (Behavior::Truncated | Behavior::Status(500 | 503 | 404), _) => "upstream",
        (Behavior::Html | Behavior::InvalidJson | Behavior::BadGzip | Behavior::OtherShape, _) => "bad_response",
        (Behavior::BadKey, _) => "credentials",
        (Behavior::RateLimited(_) | Behavior::QuotaExhausted, _) => "quota",
        (Behavior::Normal | Behavior::Delayed(_) | Behavior::Status(_), _) => "",
    }
}

/// A machine that stands still for a moment makes anybody late; the same case late four times is our fault.
async fn one(side: Side, behavior: Behavior) {
    for _ in 0..3 {
        if searched(side, behavior).await {
            return;
        }
    }
    assert!(searched(side, behavior).await, "{side:?} {behavior:?}: later than the deadline and 50 ms, four times");
}

/// Whether the answer came in time; what it says is checked whenever it came.
async fn searched(side: Side, behavior: Behavior) -> bool {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options { deadline: DEADLINE, ..Options::default() });
    let stub = fixture.stub();
    let queue = match side {
        Side::Seats => &stub.seats_behavior,
        Side::Amadeus => &stub.amadeus_behavior,
        Side::Token => &stub.token_behavior,
    };
    queue.lock().unwrap().push_back(behavior);
    let promised = Deadline::after(DEADLINE + GRACE);
    let reply = tools.search(base_args()).await;
    let in_time = !promised.passed();
    let (bad, good) = if side == Side::Seats { ("seatsaero", "amadeus") } else { ("amadeus", "seatsaero") };
    let status = if reason(behavior, side).is_empty() { "ok" } else { "failed" };
    assert_eq!(provider_status(&reply, bad), (status.to_owned(), reason(behavior, side).to_owned()), "{side:?} {behavior:?}");
    assert_eq!(provider_status(&reply, good).0, "ok", "{side:?} {behavior:?}");
    let whole_part = if side == Side::Seats { len(&reply, "cash") == 1 } else { len(&reply, "awards") == 2 };
    assert!(whole_part, "{side:?} {behavior:?}");
    let text = reply.message.unwrap();
    let named = if side == Side::Seats { "Seats.aero fehlt" } else { "Amadeus fehlt" };
    assert_eq!(text.contains(named), status == "failed", "{text}");
    in_time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_weather_at_one_costs_the_other_nothing() {
    for behavior in Behavior::ALL {
        one(Side::Seats, behavior).await;
        one(Side::Amadeus, behavior).await;
    }
    for behavior in
        [Behavior::Hangs, Behavior::HangsMidBody, Behavior::Truncated, Behavior::Status(500), Behavior::Html, Behavior::InvalidJson]
    {
        one(Side::Token, behavior).await;
    }
}

#[tokio::test]
async fn half_a_search_is_still_an_answer() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().extend([Behavior::Normal, Behavior::Status(500)]);
    let reply =
        fixture.tools(&Options { amadeus: false, ..Options::default() }).search(args_with(json!({"return_date": "2026-12-09"}))).await;
    assert_eq!(len(&reply, "awards") + len(&reply, "awards_return"), 2);
    assert_eq!(provider_status(&reply, "seatsaero"), ("ok".into(), "upstream".into()));
    assert!(reply.message.unwrap().contains("Seats.aero fehlt"));
}

#[tokio::test]
async fn everything_failing_is_an_answer_too() {
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
async fn a_pause_that_fits_is_kept_and_the_search_goes_on() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().extend([Behavior::RateLimited(1), Behavior::Normal]);
    let reply = fixture.tools(&Options { amadeus: false, ..Options::default() }).search(base_args()).await;
    assert_eq!((provider_status(&reply, "seatsaero"), fixture.stub().seats_count()), (("ok".into(), "".into()), 2));
}

/// A number that follows from a seed alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A thousand searches in random weather; the seed of a run is its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_searches_in_random_weather_none_fails() {
    let fixture = Fixture::open().await;
    let results = stream::iter(0..1000_u64).map(|seed| run(&fixture, seed)).buffer_unordered(40).collect::<Vec<_>>().await;
    let found = results.iter().filter(|found| **found).count();
    assert_eq!(results.len(), 1000);
    assert!((100..1000).contains(&found), "{found} of 1000 found something: the weather was not random");
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
