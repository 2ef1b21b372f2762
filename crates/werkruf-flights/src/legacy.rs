//! The legacy result format for older clients: a `FlightResult` per award, and Amadeus offers as received.

use serde_json::{Map, Value, json};
use werkruf_contract::Texts;

use super::offer::{Award, Place};
use super::price;
use super::provider::FlightResults;
use super::query::{Days, Query};

/// `{success, results: {count, flights}, returnResults?, stats}`.
pub(super) fn seats_result(awards: &[Award], back: &[Award], query: &Query, has_more: bool, texts: &Texts) -> Value {
    let results = |awards: &[Award]| json!({"count": awards.len(), "flights": awards.iter().map(|award| flight(award, query, texts)).collect::<Vec<_>>()});
    let mut output = json!({"success": true, "results": results(awards)});
    if query.back.is_some() {
        output["returnResults"] = results(back);
    }
    let Days { first, last, .. } = query.out;
    output["stats"] = json!({"totalAvailable": awards.len() + back.len(), "hasMore": has_more, "startDate": first, "endDate": last, "cabin": query.cabin.title()});
    output
}

/// `{success, results: {count, flights}, dictionaries}`: at most `most` offers, as received.
pub(super) fn amadeus_result(found: &FlightResults, most: usize) -> Value {
    let received = found.received.as_ref();
    let offers: Vec<Value> =
        received.and_then(|body| body["data"].as_array()).map(|list| list.iter().take(most).cloned().collect()).unwrap_or_default();
    let dictionaries = received.map(|body| body["dictionaries"].clone()).filter(|value| !value.is_null()).unwrap_or_else(|| json!({}));
    json!({"success": true, "results": {"count": offers.len(), "flights": offers}, "dictionaries": dictionaries})
}

fn flight(award: &Award, query: &Query, texts: &Texts) -> Value {
    let trip = award.trip.as_ref();
    let price = price::miles(texts, award.miles, award.taxes.as_ref());
    let place = |place: Option<&Place>, airport: &str| {
        let at = place.and_then(|place| place.airport.as_deref()).unwrap_or(airport);
        json!({"airport": at, "time": place.and_then(|place| place.local_time.as_deref())})
    };
    let stops = trip.map_or(i64::from(!award.has_nonstop), |trip| trip.stops);
    let stops_text = if stops == 0 { texts.text("flights-nonstop", &[]) } else { texts.text("flights-stops", &[("count", stops.into())]) };
    let links: Map<String, Value> = award.booking_links.iter().map(|link| (link.label.clone(), json!(link.link))).collect();
    json!({
        "id": award.availability_id,
        "provider": "seatsaero",
        "price": price,
        "pricePerPerson": price,
        "airline": award.airlines.join(", "),
        "cabin": query.cabin.title(),
        "tags": [award.program],
        "totalStops": stops,
        "miles": award.miles,
        "taxes": {
            "amount": award.taxes.as_ref().and_then(|taxes| taxes.amount.parse::<f64>().ok()),
            "currency": award.taxes.as_ref().and_then(|taxes| taxes.currency.clone()),
        },
        "seatsLeft": award.seats_left,
        "bookingLinks": links,
        "outbound": {
            "departure": place(trip.map(|trip| &trip.departure), &award.origin),
            "arrival": place(trip.map(|trip| &trip.arrival), &award.destination),
            "duration": trip.and_then(|trip| trip.duration_minutes).map(|minutes| texts.duration_minutes(minutes)).unwrap_or_default(),
            "stops": stops_text,
            "flightNumbers": trip.and_then(|trip| trip.flight_numbers.as_ref()).map(|numbers| numbers.join(", ")).unwrap_or_default(),
        },
    })
}
