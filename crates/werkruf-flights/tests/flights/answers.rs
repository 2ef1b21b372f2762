//! Successful searches: the provider requests, the result and the session state.

use std::time::Duration;

use serde_json::{Value, json};

use crate::behavior::Behavior;
use crate::fixture::{Fixture, Options, args_with, base_args, len, provider_status};

#[tokio::test]
async fn awards_and_cash_flights_are_shown_together() {
    let fixture = Fixture::open().await;
    let reply = fixture.tools(&Options::default()).search(base_args()).await;
    assert_eq!((&reply.data["kind"], &reply.data["sandbox"]), (&json!("results"), &json!(false)));
    let award = &reply.data["awards"][0];
    assert_eq!((&award["miles"], &award["program"]), (&json!(85_000), &json!("aeroplan")));
    assert_eq!(award["taxes"], json!({"amount": "450.00", "currency": "USD"}));
    let trip = &award["trip"];
    assert_eq!((&trip["trip_id"], &trip["miles"]), (&json!("aeroplan-short"), &json!(85_000)), "the shortest trip at the quoted price");
    assert_eq!(trip["departure"], json!({"airport": "FRA", "local_time": "2026-12-01T10:30:00"}));
    let cash = reply.data["cash"].as_array().unwrap();
    assert_eq!(cash.len(), 1, "a codeshare is one flight");
    assert_eq!((&cash[0]["also_sold_as"], &cash[0]["airline_name"]), (&json!(["UA8840"]), &json!("LUFTHANSA")));
    let text = reply.message.clone().unwrap();
    assert!(text.contains("85.000 Meilen + 450,00 $") && text.contains("1.590,78 €"), "{text}");
    assert!(text.find("Flüge gegen Geld") < text.find("Prämienflüge"), "cash first unless the request is about miles: {text}");
    assert_eq!(
        (provider_status(&reply, "seatsaero"), provider_status(&reply, "amadeus")),
        (("ok".into(), "".into()), ("ok".into(), "".into()))
    );
    assert_eq!(provider_status(&reply, "duffel"), ("skipped".into(), "not_configured".into()));
    let counts = reply.source_counts.unwrap();
    assert_eq!((counts["seatsaero"], counts["amadeus"]), (2, 2));
    assert_eq!(reply.data["raw"]["seatsResult"]["results"]["count"], 2);
    assert_eq!(reply.data["raw"]["seatsResult"]["results"]["flights"][0]["taxes"], json!({"amount": 450.0, "currency": "USD"}));
    assert_eq!(reply.data["raw"]["amadeusResult"]["results"]["flights"][0]["id"], "1");

    let sent = fixture.stub().seats_calls.lock().unwrap()[0].clone();
    assert_eq!(
        (sent["cabins"].as_str(), sent["order_by"].as_str(), sent["include_trips"].as_str()),
        ("business", "lowest_mileage", "true")
    );
    assert_eq!((sent["start_date"].as_str(), sent["end_date"].as_str()), ("2026-12-01", "2026-12-01"));
    let sent = fixture.stub().offer_calls.lock().unwrap()[0].clone();
    assert_eq!((sent["travelClass"].as_str(), sent["currencyCode"].as_str(), sent["adults"].as_str()), ("BUSINESS", "EUR", "1"));
    assert!(!sent.contains_key("returnDate") && !sent.contains_key("children"));
}

#[tokio::test]
async fn every_argument_has_its_effect() {
    let fixture = Fixture::open().await;
    let args = args_with(
        json!({"return_date": "2026-12-10", "pax": 2, "children": 1, "infants": 1, "loyalty_programs": ["Miles & More"], "flexibility": 2,
        "currency": "USD", "constraints": {"nonstop_only": true}}),
    );
    let reply = fixture.tools(&Options::default()).search(args).await;
    let searches = fixture.stub().seats_calls.lock().unwrap().clone();
    assert_eq!(searches.len(), 2, "the return direction is a separate search");
    let back = searches.iter().find(|sent| sent["origin_airport"] == "JFK").unwrap();
    assert_eq!(
        (back["start_date"].as_str(), back["end_date"].as_str(), back["sources"].as_str()),
        ("2026-12-08", "2026-12-12", "lufthansa")
    );
    assert_eq!(back["only_direct_flights"], "true");
    let sent = fixture.stub().offer_calls.lock().unwrap()[0].clone();
    let fields = ["returnDate", "adults", "children", "infants", "nonStop", "currencyCode"].map(|name| sent[name].as_str());
    assert_eq!(fields, ["2026-12-10", "2", "1", "1", "true", "USD"]);
    let award = &reply.data["awards"][0];
    assert_eq!((&award["miles"], &award["taxes"]["amount"], &award["seats_left"]), (&json!(105_000), &json!("99.00"), &json!(null)));
    assert_eq!(
        (&award["trip"]["trip_id"], &award["airlines"]),
        (&json!("lufthansa-direct"), &json!(["UA"])),
        "priced from the direct fields"
    );
    assert_eq!(len(&reply, "awards_return"), 1);
    assert_eq!(reply.data["cash"][0]["itineraries"].as_array().unwrap().len(), 2);
    let text = reply.message.unwrap();
    assert!(text.find("Prämienflüge").unwrap() < text.find("Flüge gegen Geld").unwrap(), "a program was named: {text}");
}

#[tokio::test]
async fn an_award_only_search_calls_no_cash_provider() {
    let fixture = Fixture::open().await;
    let reply = fixture.tools(&Options::default()).in_locale("en-US").search(args_with(json!({"award_only": true, "pax": 3}))).await;
    assert_eq!((fixture.stub().offer_count(), fixture.stub().tokens()), (0, 0));
    assert_eq!(provider_status(&reply, "amadeus"), ("skipped".into(), "award_only".into()));
    assert_eq!((&reply.data["kind"], len(&reply, "awards")), (&json!("nothing"), 0), "two seats are too few for three");
    assert!(reply.message.unwrap().contains("No flights found"));
}

#[tokio::test]
async fn the_session_state_is_patched_and_later_calls_use_it() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options::default());
    let reply = tools.search(args_with(json!({"award_only": true}))).await;
    let mut patch = Value::Object(reply.state_patch.unwrap());
    let remembered = json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "return_date": null, "cabin": "BUSINESS", "pax": 1, "award_only": true});
    assert_eq!((&patch["last_flight_request"], &patch["pending_flight_request"]), (&remembered, &json!(null)));
    patch.as_object_mut().unwrap().remove("pending_flight_request");
    let later = fixture.tools(&Options::default()).with_state(&patch);
    let again = later.search(json!({"reuse_last_request": true, "depart_date": "2026-12-02"})).await;
    assert_eq!((&again.data["request"]["origin"], &again.data["awards"][0]["date"]), (&json!("FRA"), &json!("2026-12-02")));
    let chosen = later.call("select_itinerary", json!({"index": 2})).await.unwrap();
    let selected = &chosen.state_patch.unwrap()["selected_itineraries"];
    assert_eq!((&selected[0]["program"], selected.as_array().unwrap().len()), (&json!("united"), 1));
    let message = chosen.message.unwrap();
    assert!(message.contains("90.000 Meilen") && message.contains("Book here: https://example.org/a"), "{message}");
    assert_eq!(fixture.stub().trip_calls.lock().unwrap().as_slice(), ["united-FRA-2026-12-01"]);
    let flights: Vec<&Value> = selected[0]["segments"].as_array().unwrap().iter().map(|one| &one["flight"]).collect();
    assert_eq!(flights, [&json!("LH1"), &json!("LH2")], "in travel order");
    fixture.stub().trips_behavior.lock().unwrap().push_back(Behavior::Html);
    let without = later.call("select_itinerary", json!({"index": 1})).await.unwrap();
    assert!(without.message.unwrap().contains("85.000 Meilen"), "a selection works without details");
    let refused = later.call("select_itinerary", json!({"index": 9})).await.unwrap_err();
    assert_eq!(refused.code, "unknown_itinerary");
}

#[tokio::test]
async fn duffel_is_a_provider_too() {
    let fixture = Fixture::open().await;
    let change = Options { amadeus: false, duffel: true, ..Options::default() };
    let reply = fixture.tools(&change).search(args_with(json!({"pax": 2, "children": 1}))).await;
    assert_eq!(
        (provider_status(&reply, "duffel"), provider_status(&reply, "amadeus")),
        (("ok".into(), "".into()), ("skipped".into(), "not_configured".into()))
    );
    assert_eq!(reply.data["cash"][0]["price_total_all_travellers"], json!({"amount": "999.00", "currency": "EUR"}));
    let sent: Value = serde_json::from_slice(&fixture.stub().duffel_calls.lock().unwrap()[0]).unwrap();
    assert_eq!(sent["data"]["passengers"], json!([{"type": "adult"}, {"type": "adult"}, {"type": "child"}]));
    assert_eq!(sent["data"]["slices"], json!([{"origin": "FRA", "destination": "JFK", "departure_date": "2026-12-01"}]));
}

#[tokio::test]
async fn without_keys_the_sandbox_answers_and_marks_its_data() {
    let fixture = Fixture::open().await;
    for (locale, word) in [("de", "Beispieldaten"), ("en", "sample data"), ("es", "datos de ejemplo")] {
        let tools = fixture.tools_without_keys().in_locale(locale);
        let reply = tools.search(args_with(json!({"return_date": "2026-12-09"}))).await;
        assert_eq!((&reply.data["kind"], &reply.data["sandbox"]), (&json!("results"), &json!(true)));
        assert!(reply.message.clone().unwrap().contains(word), "{locale}");
        let again = tools.search(args_with(json!({"return_date": "2026-12-09"}))).await;
        assert!(
            reply.data["raw"] == again.data["raw"] && reply.data["cash"] == again.data["cash"],
            "the same request gives the same flights"
        );
        assert!(len(&reply, "awards_return") > 0 && reply.data["cash"][0]["itineraries"].as_array().unwrap().len() == 2);
    }
    let awards = fixture.tools_without_keys().search(args_with(json!({"award_only": true, "constraints": {"nonstop_only": true}}))).await;
    assert_eq!(len(&awards, "cash"), 0);
    assert!(awards.data["awards"].as_array().unwrap().iter().all(|award| award["trip"]["stops"] == 0));
    assert_eq!(fixture.stub().seats_count(), 0);
}

#[tokio::test]
async fn a_missing_cash_provider_is_valid_and_mentioned() {
    let fixture = Fixture::open().await;
    let change = Options { amadeus: false, cache: Duration::from_secs(300), ..Options::default() };
    let reply = fixture.tools(&change).search(base_args()).await;
    assert_eq!(len(&reply, "awards"), 2);
    assert!(reply.message.unwrap().contains("keine Quelle eingerichtet"));
}

#[tokio::test]
async fn older_programs_get_the_booking_links_of_each_flight() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options { cache: Duration::from_secs(60), ..Options::default() });
    let body = json!({"origin": "FRA", "destination": "JFK", "departureDate": "2026-12-01", "travelClass": "BUSINESS", "flexibility": -1});
    let links = json!({"Elsewhere": "https://example.org/b", "Book here": "https://example.org/a"});
    for _ in 0..2 {
        let answer = tools.call("seatsaero_flight_search", body.clone()).await.unwrap().data;
        let flights = answer["results"]["flights"].as_array().unwrap();
        assert_eq!(flights.iter().map(|flight| &flight["bookingLinks"]).collect::<Vec<_>>(), [&links, &links]);
    }
    let mut asked = fixture.stub().trip_calls.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["aeroplan-FRA-2026-12-01", "united-FRA-2026-12-01"], "one request per flight, then the cache");
}

#[tokio::test]
async fn a_search_without_booking_links_is_complete_otherwise() {
    let fixture = Fixture::open().await;
    fixture.stub().trips_behavior.lock().unwrap().push_back(Behavior::Html);
    let body = json!({"origin": "FRA", "destination": "JFK", "departureDate": "2026-12-01", "travelClass": "BUSINESS"});
    let answer = fixture.tools(&Options::default()).call("seatsaero_flight_search", body).await.unwrap().data;
    assert_eq!((&answer["results"]["count"], &answer["results"]["flights"][0]["bookingLinks"]), (&json!(2), &json!({})));
}

#[tokio::test]
async fn a_flexibility_below_zero_is_none() {
    let fixture = Fixture::open().await;
    let reply = fixture.tools(&Options::default()).search(args_with(json!({"flexibility": -1}))).await;
    assert_eq!(reply.data["request"]["flexibility"], 0);
    let sent = fixture.stub().seats_calls.lock().unwrap()[0].clone();
    assert_eq!((sent["start_date"].as_str(), sent["end_date"].as_str()), ("2026-12-01", "2026-12-01"));
}
