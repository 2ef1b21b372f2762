//! The tool asks for missing arguments and refuses invalid ones, without a call to a provider.

use serde_json::{Value, json};

use crate::fixture::{Fixture, Options, args_with};

#[tokio::test]
async fn a_request_is_completed_over_several_messages() {
    let fixture = Fixture::open().await;
    let first = fixture.tools(&Options::default()).search(json!({"destination": "JFK", "pax": 2, "award_only": true})).await;
    assert_eq!((&first.data["kind"], &first.data["missing"]), (&json!("question"), &json!(["origin", "depart_date", "cabin"])));
    let patch = Value::Object(first.state_patch.unwrap());
    assert_eq!(patch, json!({"pending_flight_request": {"destination": "JFK", "pax": 2, "award_only": true}}));
    let text = first.message.unwrap();
    assert!(text.contains("Abflughafen") && text.contains("Datum") && text.contains("Klasse") && !text.contains("Ziel"), "{text}");
    let second = fixture.tools(&Options::default()).with_state(&patch).search(json!({"origin": "FRA", "cabin": "BUSINESS"})).await;
    assert_eq!(second.data["missing"], json!(["depart_date"]));
    assert_eq!(fixture.stub().seats_count(), 0, "no provider was called yet");
    let patch = Value::Object(second.state_patch.unwrap());
    let third = fixture.tools(&Options::default()).with_state(&patch).search(json!({"depart_date": "2026-12-01"})).await;
    assert_eq!((&third.data["kind"], &third.data["request"]["pax"]), (&json!("results"), &json!(2)));
    assert_eq!(third.state_patch.unwrap()["pending_flight_request"], Value::Null);
}

#[tokio::test]
async fn preferences_fill_missing_arguments() {
    let fixture = Fixture::open().await;
    let state = json!({"preferences": {"home_airport": "FRA", "cabin": "BUSINESS", "programs": ["united"]}});
    let reply =
        fixture.tools(&Options::default()).with_state(&state).search(json!({"destination": "JFK", "depart_date": "2026-12-01"})).await;
    assert_eq!((&reply.data["kind"], &reply.data["request"]["origin"]), (&json!("results"), &json!("FRA")));
    assert_eq!(fixture.stub().seats_calls.lock().unwrap()[0]["sources"], "united");
}

#[tokio::test]
async fn invalid_requests_are_refused_without_a_provider_call() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options::default());
    let invalid = [
        (json!({"depart_date": "2026-11-14"}), "date_in_past"),
        (json!({"return_date": "2026-11-30"}), "return_before_departure"),
        (json!({"origin": "XQX"}), "unknown_airport"),
        (json!({"destination": "FRA"}), "same_airports"),
        (json!({"pax": 12}), "too_many_passengers"),
        (json!({"loyalty_programs": ["Payback"]}), "unknown_program"),
        (json!({"currency": "ZZZ"}), "unknown_currency"),
        (json!({"constraints": {"max_taxes": 100, "max_taxes_currency": "EURO"}}), "unknown_currency"),
        (json!({"depart_date": "2028-01-01"}), "date_too_far"),
    ];
    for (change, code) in invalid {
        let failure = tools.call("search_flights", args_with(change.clone())).await.unwrap_err();
        assert_eq!(failure.code, code, "{change}");
    }
    assert_eq!((fixture.stub().seats_count(), fixture.stub().tokens()), (0, 0));
}

#[tokio::test]
async fn today_is_in_the_callers_time_zone() {
    let fixture = Fixture::open().await;
    // Noon UTC on the 15th is the 16th on Kiritimati and still the 15th in Berlin.
    let mut tools = fixture.tools(&Options::default());
    assert!(tools.call("search_flights", args_with(json!({"depart_date": "2026-11-15"}))).await.is_ok());
    let mut principal = (*tools.invocation.principal).clone();
    principal.time_zone = "Pacific/Kiritimati".to_owned();
    tools.invocation.principal = std::sync::Arc::new(principal);
    let failure = tools.call("search_flights", args_with(json!({"depart_date": "2026-11-15"}))).await.unwrap_err();
    assert_eq!(failure.code, "date_in_past");
}
