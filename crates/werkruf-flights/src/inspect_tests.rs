use std::path::Path;

use serde_json::{Value, json};

use super::{ProviderName, inspect};
use crate::cabin::Cabin;

/// Asserts that `actual` contains everything in `expected`; `actual` may contain more.
fn assert_contains(expected: &Value, actual: &Value, path: &str) {
    match expected {
        Value::Object(fields) => {
            for (name, value) in fields {
                assert_contains(value, actual.get(name).unwrap_or(&Value::Null), &format!("{path}/{name}"));
            }
        }
        Value::Array(items) => {
            assert_eq!(Some(items.len()), actual.as_array().map(Vec::len), "{path} has another length");
            for (at, item) in items.iter().enumerate() {
                assert_contains(item, &actual[at], &format!("{path}/{at}"));
            }
        }
        _ => assert_eq!(expected, actual, "{path}"),
    }
}

/// Checks the payloads of a folder against its index; returns how many there are.
fn check_payloads(folder: &Path) -> usize {
    let index: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    let mut checked = 0;
    for entry in index["files"].as_array().unwrap() {
        let file = entry["file"].as_str().unwrap();
        let provider = match file.split('_').next().unwrap() {
            "seatsaero" => ProviderName::Seatsaero,
            "amadeus" => ProviderName::Amadeus,
            "duffel" => ProviderName::Duffel,
            _ => continue,
        };
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let actual = inspect(provider, &bytes, None).unwrap();
        let mut expected = entry["expected"].clone();
        if expected.get("per_entry").is_some() {
            let entries: Value = serde_json::from_slice(&bytes).unwrap();
            let facts = |one: &Value| json!({"name": one["name"], "status": one["status"], "retryable": one["retryable"]});
            expected = json!({"errors": entries.as_array().unwrap().iter().map(facts).collect::<Vec<_>>()});
        }
        expected.as_object_mut().unwrap().remove("refresh_before_s");
        assert_contains(&expected, &actual, file);
        checked += 1;
    }
    checked
}

/// The project's own corpus, and the payloads beside the checkout if they exist.
#[test]
fn every_recorded_payload_is_parsed_as_its_index_expects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(check_payloads(&root.join("tests/corpus/flights")), 6);
    let beside = root.join("../shared/fixtures/apis");
    if beside.join("index.json").exists() {
        assert!(check_payloads(&beside) >= 8);
    }
}

fn row() -> Value {
    json!({
        "ID": "a1", "Date": "2026-12-01", "Source": "american", "TaxesCurrency": "USD", "UpdatedAt": "2026-11-01T08:00:00Z",
        "Route": {"OriginAirport": "FRA", "DestinationAirport": "JFK"},
        "JAvailable": true, "JMileageCost": "57500", "JTotalTaxes": 560, "JRemainingSeats": 0, "JAirlines": "AA, BA",
        "JDirect": true, "JDirectMileageCost": 85000, "JDirectTotalTaxes": 45000, "JDirectRemainingSeats": 2, "JDirectAirlines": "LH",
        "FAvailable": false, "FMileageCost": "0", "FMileageCostRaw": 300000, "FAvailableRaw": true,
        "YAvailable": true, "YMileageCost": "0",
        "AvailabilityTrips": [{"ID": "t1", "Cabin": "business", "MileageCost": 57500, "TotalTaxes": 560, "Stops": 1, "TotalDuration": 700,
            "Carriers": "AA, BA", "FlightNumbers": "AA1, BA2", "OriginAirport": "FRA", "DestinationAirport": "JFK",
            "DepartsAt": "2026-12-01T10:30:00Z", "ArrivesAt": "2026-12-01T13:15:00Z", "RemainingSeats": 0}]
    })
}

#[test]
fn a_row_is_priced_per_cabin_and_unpublished_is_not_zero() {
    let page = json!({"data": [row(), row(), {"ID": "odd"}], "count": 3, "hasMore": false});
    let actual = inspect(ProviderName::Seatsaero, page.to_string().as_bytes(), None).unwrap();
    let offers = actual["offers"].as_array().unwrap();
    assert_eq!(offers.len(), 1, "no dynamic price, no zero price, the same row once");
    assert_contains(
        &json!({"cabin": "business", "miles": 57500, "taxes": {"amount": "5.60", "currency": "USD"}, "seats_left": null,
            "airlines": ["AA", "BA"], "has_nonstop": true, "nonstop_miles": 85000, "date": "2026-12-01"}),
        &offers[0],
        "",
    );
    assert_contains(
        &json!([{"taxes": {"amount": "5.60", "currency": "USD"}, "departure": {"airport": "FRA", "local_time": "2026-12-01T10:30:00"},
            "flight_numbers": ["AA1", "BA2"], "seats_left": null, "connections": null, "segments": null}]),
        &actual["trips"],
        "",
    );
    let none = inspect(ProviderName::Seatsaero, page.to_string().as_bytes(), Some(Cabin::Economy)).unwrap();
    assert_eq!((&none["offers"], &none["trips"]), (&json!([]), &json!([])));
}

#[test]
fn an_offer_with_mixed_cabins_and_no_dictionary_is_parsed() {
    let segment = |id: &str, number: &str, from: &str, to: &str| {
        json!({"id": id, "carrierCode": "LH", "number": number, "numberOfStops": 1,
            "departure": {"iataCode": from, "at": "2026-12-01T10:00:00"}, "arrival": {"iataCode": to, "at": "2026-12-02T16:20:00"}})
    };
    let offer = json!({"id": "7", "price": {"currency": "EUR", "grandTotal": "3842.10"},
        "itineraries": [{"duration": "P1DT2H", "segments": [segment("1", "400", "FRA", "ZRH"), segment("2", "8", "ZRH", "JFK")]}],
        "travelerPricings": [
            {"price": {"total": "2178.55"}, "fareDetailsBySegment": [{"segmentId": "2", "cabin": "BUSINESS"}, {"segmentId": "1", "cabin": "ECONOMY"}]},
            {"price": {"total": "1663.55"}}]});
    let actual = inspect(ProviderName::Amadeus, json!({"data": [offer, {"id": "broken"}]}).to_string().as_bytes(), None).unwrap();
    assert_contains(
        &json!([{"offer_id": "7", "price_total_all_travellers": {"amount": "3842.10", "currency": "EUR"}, "price_first_traveller": "2178.55",
            "travellers": 2, "seats_left": null, "airline_code": "LH", "airline_name": null, "itineraries": [
            {"duration_minutes": 1560, "stops": 3, "flight_numbers": ["LH400", "LH8"], "operating": ["LH", "LH"], "cabins": ["ECONOMY", "BUSINESS"]}]}]),
        &actual["offers"],
        "",
    );
}

#[test]
fn a_duffel_offer_is_parsed() {
    let segment = json!({"marketing_carrier": {"iata_code": "BA"}, "marketing_carrier_flight_number": "0117",
        "operating_carrier": {"iata_code": "AA"}, "departing_at": "2026-12-01T08:25:00", "arriving_at": "2026-12-01T11:20:00",
        "origin": {"iata_code": "LHR"}, "destination": {"iata_code": "JFK"}, "passengers": [{"cabin_class": "premium_economy"}], "stops": []});
    let offer = json!({"id": "off_1", "total_amount": "812.44", "total_currency": "GBP", "owner": {"iata_code": "BA", "name": "British Airways"},
        "passengers": [{"id": "p1"}], "slices": [{"duration": "PT7H55M", "segments": [segment]}]});
    let actual =
        inspect(ProviderName::Duffel, json!({"data": {"offers": [offer]}}).to_string().as_bytes(), Some(Cabin::PremiumEconomy)).unwrap();
    assert_contains(
        &json!([{"offer_id": "off_1", "price_total_all_travellers": {"amount": "812.44", "currency": "GBP"}, "price_first_traveller": "812.44",
            "airline_code": "BA", "airline_name": "British Airways", "seats_left": null, "itineraries": [{"duration_minutes": 475, "stops": 0,
            "flight_numbers": ["BA117"], "operating": ["AA"], "cabins": ["PREMIUM_ECONOMY"]}]}]),
        &actual["offers"],
        "",
    );
}

#[test]
fn an_invalid_payload_is_an_error() {
    let refused = |provider, text: &str| inspect(provider, text.as_bytes(), None).unwrap_err();
    assert!(refused(ProviderName::Seatsaero, "<html>maintenance</html>").contains("not JSON"));
    assert!(refused(ProviderName::Seatsaero, r#"{"success": false, "error": "unsupported source"}"#).contains("unsupported source"));
    assert!(refused(ProviderName::Amadeus, "{}").contains("no list"));
}
