//! One provider in bad weather: the answer comes in time, the other's flights are whole, and the failure has a name.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use werkruf_contract::Deadline;

use crate::house::{Change, House, did, len, whole, with};
use crate::weather::Weather;

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

fn reason(weather: Weather, side: Side) -> &'static str {
    match (weather, side) {
        (Weather::Hangs | Weather::HangsInside, _) => "timeout",
        (Weather::Cut | Weather::Status(500 | 503 | 404), _) => "upstream",
        (Weather::Html | Weather::Garbage | Weather::BadGzip | Weather::OtherShape, _) => "bad_response",
        (Weather::BadKey, _) => "credentials",
        (Weather::Burst(_) | Weather::Gone, _) => "quota",
        (Weather::Fine | Weather::Late(_) | Weather::Status(_), _) => "",
    }
}

/// A machine that stands still for a moment makes anybody late; the same case late four times is our fault.
async fn one(side: Side, weather: Weather) {
    for _ in 0..3 {
        if searched(side, weather).await {
            return;
        }
    }
    assert!(searched(side, weather).await, "{side:?} {weather:?}: later than the deadline and 50 ms, four times");
}

/// Whether the answer came in time; what it says is checked whenever it came.
async fn searched(side: Side, weather: Weather) -> bool {
    let house = House::open().await;
    let tools = house.tools(&Change { deadline: DEADLINE, ..Change::default() });
    let stub = house.stub();
    let queue = match side {
        Side::Seats => &stub.seats_weather,
        Side::Amadeus => &stub.amadeus_weather,
        Side::Token => &stub.token_weather,
    };
    queue.lock().unwrap().push_back(weather);
    let promised = Deadline::after(DEADLINE + GRACE);
    let reply = tools.search(whole()).await;
    let in_time = !promised.passed();
    let (bad, good) = if side == Side::Seats { ("seatsaero", "amadeus") } else { ("amadeus", "seatsaero") };
    let status = if reason(weather, side).is_empty() { "ok" } else { "failed" };
    assert_eq!(did(&reply, bad), (status.to_owned(), reason(weather, side).to_owned()), "{side:?} {weather:?}");
    assert_eq!(did(&reply, good).0, "ok", "{side:?} {weather:?}");
    let whole_part = if side == Side::Seats { len(&reply, "cash") == 1 } else { len(&reply, "awards") == 2 };
    assert!(whole_part, "{side:?} {weather:?}");
    let text = reply.message.unwrap();
    let named = if side == Side::Seats { "Seats.aero fehlt" } else { "Amadeus fehlt" };
    assert_eq!(text.contains(named), status == "failed", "{text}");
    in_time
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_weather_at_one_costs_the_other_nothing() {
    for weather in Weather::ALL {
        one(Side::Seats, weather).await;
        one(Side::Amadeus, weather).await;
    }
    for weather in [Weather::Hangs, Weather::HangsInside, Weather::Cut, Weather::Status(500), Weather::Html, Weather::Garbage] {
        one(Side::Token, weather).await;
    }
}

#[tokio::test]
async fn half_a_search_is_still_an_answer() {
    let house = House::open().await;
    house.stub().seats_weather.lock().unwrap().extend([Weather::Fine, Weather::Status(500)]);
    let reply = house.tools(&Change { amadeus: false, ..Change::default() }).search(with(json!({"return_date": "2026-12-09"}))).await;
    assert_eq!(len(&reply, "awards") + len(&reply, "awards_return"), 2);
    assert_eq!(did(&reply, "seatsaero"), ("ok".into(), "upstream".into()));
    assert!(reply.message.unwrap().contains("Seats.aero fehlt"));
}

#[tokio::test]
async fn everything_failing_is_an_answer_too() {
    let house = House::open().await;
    house.stub().seats_weather.lock().unwrap().push_back(Weather::Html);
    house.stub().amadeus_weather.lock().unwrap().push_back(Weather::Garbage);
    let reply = house.tools(&Change::default()).search(whole()).await;
    assert_eq!(reply.data["kind"], "nothing");
    assert_eq!((did(&reply, "seatsaero").1, did(&reply, "amadeus").1), ("bad_response".into(), "bad_response".into()));
}

#[tokio::test]
async fn a_pause_that_fits_is_kept_and_the_search_goes_on() {
    let house = House::open().await;
    house.stub().seats_weather.lock().unwrap().extend([Weather::Burst(1), Weather::Fine]);
    let reply = house.tools(&Change { amadeus: false, ..Change::default() }).search(whole()).await;
    assert_eq!((did(&reply, "seatsaero"), house.stub().seats_count()), (("ok".into(), "".into()), 2));
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
    let house = House::open().await;
    let results = stream::iter(0..1000_u64).map(|seed| run(&house, seed)).buffer_unordered(40).collect::<Vec<_>>().await;
    let found = results.iter().filter(|found| **found).count();
    assert_eq!(results.len(), 1000);
    assert!((100..1000).contains(&found), "{found} of 1000 found something: the weather was not random");
}

async fn run(house: &House, seed: u64) -> bool {
    let mut dice = Dice(seed);
    let stub = house.stub();
    for queue in [&stub.seats_weather, &stub.amadeus_weather, &stub.token_weather, &stub.duffel_weather] {
        let weather = Weather::ALL[dice.roll(Weather::ALL.len())];
        let mut queue = queue.lock().unwrap();
        queue.push_back(weather);
        if queue.len() > 40 {
            queue.pop_front();
        }
    }
    if dice.roll(10) == 0 {
        stub.expire();
    }
    let deadline = Duration::from_millis(40 + u64::try_from(dice.roll(80)).unwrap());
    let tools = house.tools(&Change { deadline, duffel: true, quota: 1_000_000, ..Change::default() });
    stub.remaining.store(1_000_000, std::sync::atomic::Ordering::SeqCst);
    let change = if dice.roll(2) == 0 { json!({"return_date": "2026-12-09"}) } else { json!({}) };
    let reply = tools.call("search_flights", with(change)).await;
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
