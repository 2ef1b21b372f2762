//! What is missing is asked for, what makes no sense is refused, and neither costs a call.

use serde_json::{Value, json};

use crate::fixture::{Fixture, Options, args_with};

#[tokio::test]
async fn a_request_is_put_together_over_several_messages() {
    let fixture = Fixture::open().await;
    let first = fixture.tools(&Options::default()).search(json!({"destination": "JFK", "pax": 2, "award_only": true})).await;
    assert_eq!((&first.data["kind"], &first.data["missing"]), (&json!("question"), &json!(["origin", "depart_date", "cabin"])));
    let patch = Value::Object(first.state_patch.unwrap());
    assert_eq!(patch, json!({"pending_flight_request": {"destination": "JFK", "pax": 2, "award_only": true}}));
    let text = first.message.unwrap();
    assert!(text.contains("Abflughafen") && text.contains("Datum") && text.contains("Klasse") && !text.contains("Ziel"), "{text}");
    let second = fixture.tools(&Options::default()).with_state(&patch).search(json!({"origin": "FRA", "cabin": "BUSINESS"})).await;
    assert_eq!(second.data["missing"], json!(["depart_date"]));
    assert_eq!(fixture.stub().seats_count(), 0, "nobody was asked yet");
    let patch = Value::Object(second.state_patch.unwrap());
    let third = fixture.tools(&Options::default()).with_state(&patch).search(json!({"depart_date": "2026-12-01"})).await;
    assert_eq!((&third.data["kind"], &third.data["request"]["pax"]), (&json!("results"), &json!(2)));
    assert_eq!(third.state_patch.unwrap()["pending_flight_request"], Value::Null);
}

#[tokio::test]
async fn preferences_fill_what_is_missing() {
    let fixture = Fixture::open().await;
    let state = json!({"preferences": {"home_airport": "FRA", "cabin": "BUSINESS", "programs": ["united"]}});
    let reply =
        fixture.tools(&Options::default()).with_state(&state).search(json!({"destination": "JFK", "depart_date": "2026-12-01"})).await;
    assert_eq!((&reply.data["kind"], &reply.data["request"]["origin"]), (&json!("results"), &json!("FRA")));
    assert_eq!(fixture.stub().seats_calls.lock().unwrap()[0]["sources"], "united");
}

#[tokio::test]
async fn nonsense_is_refused_before_a_call_is_spent() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options::default());
    let nonsense = [
        (json!({"depart_date": "2026-11-14"}), "date_in_past"),
        (json!({"return_date": "2026-11-30"}), "return_before_departure"),
        (json!({"origin": "XQX"}), "unknown_airport"),
        (json!({"destination": "FRA"}), "same_airports"),
        (json!({"pax": 12}), "too_many_passengers"),
        (json!({"loyalty_programs": ["Payback"]}), "unknown_program"),
        (json!({"depart_date": "2028-01-01"}), "date_too_far"),
    ];
    for (change, code) in nonsense {
        let failure = tools.call("search_flights", args_with(change.clone())).await.unwrap_err();
        assert_eq!(failure.code, code, "{change}");
    }
    assert_eq!((fixture.stub().seats_count(), fixture.stub().tokens()), (0, 0));
}

#[tokio::test]
async fn today_is_where_the_person_is() {
    let fixture = Fixture::open().await;
    // Noon of the 15th in Greenwich is the 16th on Kiritimati, and still the 15th in Berlin.
    let mut tools = fixture.tools(&Options::default());
    assert!(tools.call("search_flights", args_with(json!({"depart_date": "2026-11-15"}))).await.is_ok());
    let mut person = (*tools.invocation.principal).clone();
    person.time_zone = "Pacific/Kiritimati".to_owned();
    tools.invocation.principal = std::sync::Arc::new(person);
    let failure = tools.call("search_flights", args_with(json!({"depart_date": "2026-11-15"}))).await.unwrap_err();
    assert_eq!(failure.code, "date_in_past");
}
