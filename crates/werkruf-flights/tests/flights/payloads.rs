//! Provider payloads in the formats of the real providers.

use std::collections::HashMap;

use serde_json::{Value, json};

/// A Seats.aero row with business awards, trips, and a more expensive nonstop price.
pub fn row(source: &str, from: &str, to: &str, date: &str, miles: i64) -> Value {
    let trip = |id: &str, miles: i64, stops: i64, minutes: i64, cabin: &str| {
        json!({"ID": format!("{source}-{id}"), "AvailabilityID": source, "Cabin": cabin, "MileageCost": miles, "TotalTaxes": 45000, "Stops": stops,
            "TotalDuration": minutes, "Carriers": "LH, LH", "RemainingSeats": 2, "FlightNumbers": if stops == 0 { "LH400" } else { "LH1, LH2" },
            "OriginAirport": from, "DestinationAirport": to, "DepartsAt": format!("{date}T10:30:00Z"), "ArrivesAt": format!("{date}T13:15:00Z")})
    };
    json!({
        "ID": format!("{source}-{from}-{date}"), "Date": date, "Source": source, "TaxesCurrency": "USD", "UpdatedAt": "2026-11-01T08:00:00Z",
        "Route": {"OriginAirport": from, "DestinationAirport": to, "Source": source},
        "JAvailable": true, "JMileageCost": miles.to_string(), "JTotalTaxes": 45000, "JRemainingSeats": 2, "JAirlines": "LH", "JDirect": true,
        "JDirectMileageCost": miles + 20_000, "JDirectTotalTaxes": 9900, "JDirectRemainingSeats": 0, "JDirectAirlines": "UA",
        "JMileageCostRaw": 1, "YAvailable": false, "YMileageCost": "0",
        "AvailabilityTrips": [trip("cheaper elsewhere", miles - 5000, 1, 500, "business"), trip("long", miles, 1, 900, "business"),
            trip("short", miles, 1, 525, "business"), trip("other cabin", miles, 1, 400, "economy"), trip("direct", miles + 20_000, 0, 510, "business")]
    })
}

/// A page of the cached search.
pub fn page(rows: &[Value]) -> String {
    json!({"data": rows, "count": rows.len(), "hasMore": false, "cursor": 0}).to_string()
}

/// An Amadeus offer for these request parameters; a return date makes it a round trip.
pub fn offer(id: &str, total: &str, each: &str, flight: &str, params: &HashMap<String, String>) -> Value {
    let (from, to, day) = (&params["originLocationCode"], &params["destinationLocationCode"], &params["departureDate"]);
    let adults: usize = params["adults"].parse().unwrap();
    let back = params.get("returnDate");
    let leg = |id: &str, from: &str, to: &str, day: &str| {
        json!({"duration": "PT8H45M", "segments": [{"id": id, "carrierCode": &flight[..2], "number": &flight[2..], "numberOfStops": 0,
            "operating": {"carrierCode": "LH"}, "departure": {"iataCode": from, "at": format!("{day}T10:30:00")},
            "arrival": {"iataCode": to, "at": format!("{day}T13:15:00")}}]})
    };
    let mut legs = vec![leg("1", from, to, day)];
    legs.extend(back.map(|day| leg("2", to, from, day)));
    let fares: Vec<Value> = (1..=legs.len()).map(|id| json!({"segmentId": id.to_string(), "cabin": "BUSINESS"})).collect();
    let people: Vec<Value> =
        (0..adults).map(|_| json!({"price": {"total": each, "currency": "EUR"}, "fareDetailsBySegment": fares})).collect();
    json!({"type": "flight-offer", "id": id, "numberOfBookableSeats": 9, "itineraries": legs, "validatingAirlineCodes": [&flight[..2]],
        "price": {"currency": "EUR", "total": total, "grandTotal": total}, "travelerPricings": people})
}

/// A Duffel response with one offer.
pub fn duffel() -> String {
    json!({"data": {"id": "orq_1", "offers": [{"id": "off_1", "total_amount": "999.00", "total_currency": "EUR",
        "owner": {"iata_code": "BA", "name": "British Airways"}, "passengers": [{"id": "p"}],
        "slices": [{"duration": "PT9H", "segments": [{"marketing_carrier": {"iata_code": "BA"}, "marketing_carrier_flight_number": "903",
            "operating_carrier": {"iata_code": "BA"}, "departing_at": "2026-12-01T07:00:00", "arriving_at": "2026-12-01T11:00:00",
            "origin": {"iata_code": "FRA"}, "destination": {"iata_code": "JFK"}, "passengers": [{"cabin_class": "business"}], "stops": []}]}]}]}})
    .to_string()
}

/// The response of `/trips/{id}` for an availability of a program.
pub fn trip_details(program: &str) -> String {
    let segment = |order: i64, flight: &str, from: &str, to: &str| {
        json!({"Order": order, "FlightNumber": flight, "OriginAirport": from, "DestinationAirport": to, "AircraftName": "Airbus A340",
            "DepartsAt": "2026-12-01T10:30:00Z", "ArrivesAt": "2026-12-01T13:15:00Z"})
    };
    json!({"data": [{"ID": format!("{program}-short"), "Cabin": "business", "MileageCost": 85_000, "Stops": 1,
            "AvailabilitySegments": [segment(1, "LH2", "MUC", "JFK"), segment(0, "LH1", "FRA", "MUC")]}],
        "booking_links": [{"label": "Elsewhere", "link": "https://example.org/b", "primary": false},
            {"label": "Book here", "link": "https://example.org/a", "primary": true}], "carriers": {"LH": "Lufthansa"}})
    .to_string()
}
