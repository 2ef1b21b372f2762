//! Parses responses to Duffel offer requests.
//!
//! The total is for all passengers and there is no price per person, so the price per person is known only for a single passenger.

use serde_json::Value;

use crate::json::text;
use crate::money::Money;
use crate::offer::{Cash, Itinerary, Place, minutes_of};

/// Parses the offers of an offer request or of a list of offers.
pub fn offers(body: &Value) -> Result<Vec<Cash>, String> {
    let listed = body.pointer("/data/offers").or_else(|| body.get("data")).and_then(Value::as_array);
    Ok(listed.ok_or("no list of offers")?.iter().filter_map(offer).collect())
}

fn offer(offer: &Value) -> Option<Cash> {
    let total = text(offer, "total_amount")?;
    let itineraries: Option<Vec<Itinerary>> = offer.get("slices")?.as_array()?.iter().map(itinerary).collect();
    let itineraries = itineraries.filter(|list| !list.is_empty())?;
    let travellers = offer.get("passengers").and_then(Value::as_array).map_or(0, Vec::len);
    let owner = offer.get("owner").unwrap_or(&Value::Null);
    let seller = || offer.pointer("/slices/0/segments/0/marketing_carrier/iata_code")?.as_str();
    Some(Cash {
        offer_id: text(offer, "id")?.to_owned(),
        provider: "duffel".to_owned(),
        price_total_all_travellers: Money::new(total, text(offer, "total_currency")),
        price_first_traveller: (travellers == 1).then(|| total.to_owned()),
        travellers,
        seats_left: None,
        airline_code: text(owner, "iata_code").or_else(seller)?.to_owned(),
        airline_name: text(owner, "name").map(str::to_owned),
        itineraries,
        also_sold_as: Vec::new(),
    })
}

fn itinerary(slice: &Value) -> Option<Itinerary> {
    let segments = slice.get("segments")?.as_array()?;
    let (first, last) = (segments.first()?, segments.last()?);
    let halts: usize = segments.iter().map(|one| one.get("stops").and_then(Value::as_array).map_or(0, Vec::len)).sum();
    let place = |segment: &Value, end: &str, at: &str| Place {
        airport: segment.get(end).and_then(|airport| text(airport, "iata_code")).map(str::to_owned),
        local_time: text(segment, at).map(str::to_owned),
    };
    let flight = |one: &Value| {
        let carrier = one.pointer("/marketing_carrier/iata_code")?.as_str()?;
        Some(format!("{carrier}{}", text(one, "marketing_carrier_flight_number").unwrap_or_default().trim_start_matches('0')))
    };
    let operated = |one: &Value| {
        let code = one.pointer("/operating_carrier/iata_code").or_else(|| one.pointer("/marketing_carrier/iata_code"));
        code.and_then(Value::as_str).map(str::to_owned)
    };
    let cabin = |one: &Value| Some(one.pointer("/passengers/0/cabin_class")?.as_str()?.to_ascii_uppercase());
    Some(Itinerary {
        departure: place(first, "origin", "departing_at"),
        arrival: place(last, "destination", "arriving_at"),
        duration_minutes: text(slice, "duration").and_then(minutes_of),
        stops: i64::try_from(segments.len() - 1 + halts).ok()?,
        flight_numbers: segments.iter().map(flight).collect::<Option<_>>()?,
        operating: segments.iter().map(operated).collect::<Option<_>>()?,
        cabins: segments.iter().map(cabin).collect(),
    })
}
