//! Parses responses of Amadeus Flight Offers Search v2.
//!
//! The total is for all travellers. The cabin is given per segment and may differ. A segment without an operating carrier
//! is operated by the marketing carrier.

use serde_json::Value;

use crate::json::text;
use crate::money::Money;
use crate::offer::{Cash, Itinerary, Place, minutes_of};

/// Parses the offers of a response. An invalid offer is left out.
pub fn offers(body: &Value) -> Result<Vec<Cash>, String> {
    let data = body.get("data").and_then(Value::as_array).ok_or("no list of offers")?;
    let carriers = body.pointer("/dictionaries/carriers").unwrap_or(&Value::Null);
    Ok(data.iter().filter_map(|one| offer(one, carriers)).collect())
}

fn offer(offer: &Value, carriers: &Value) -> Option<Cash> {
    let price = offer.get("price")?;
    let total = text(price, "grandTotal").or_else(|| text(price, "total"))?;
    let pricings: &[Value] = offer.get("travelerPricings").and_then(Value::as_array).map_or(&[], Vec::as_slice);
    let first = pricings.first();
    let itineraries: Option<Vec<Itinerary>> =
        offer.get("itineraries")?.as_array()?.iter().map(|one| itinerary(one, first.unwrap_or(&Value::Null))).collect();
    let itineraries = itineraries.filter(|list| !list.is_empty())?;
    let validating = offer.pointer("/validatingAirlineCodes/0").and_then(Value::as_str);
    let airline_code = validating.or_else(|| offer.pointer("/itineraries/0/segments/0/carrierCode")?.as_str())?.to_owned();
    Some(Cash {
        offer_id: text(offer, "id")?.to_owned(),
        provider: "amadeus".to_owned(),
        price_total_all_travellers: Money::new(total, text(price, "currency")),
        price_first_traveller: first.and_then(|one| one.pointer("/price/total")).and_then(Value::as_str).map(str::to_owned),
        travellers: pricings.len(),
        seats_left: offer.get("numberOfBookableSeats").and_then(Value::as_i64).filter(|seats| *seats > 0),
        airline_name: text(carriers, &airline_code).map(str::to_owned),
        airline_code,
        itineraries,
        also_sold_as: Vec::new(),
    })
}

fn itinerary(itinerary: &Value, traveller: &Value) -> Option<Itinerary> {
    let segments = itinerary.get("segments")?.as_array()?;
    let (first, last) = (segments.first()?, segments.last()?);
    let halts: i64 = segments.iter().map(|one| one.get("numberOfStops").and_then(Value::as_i64).unwrap_or(0)).sum();
    let flight = |one: &Value| Some(format!("{}{}", text(one, "carrierCode")?, text(one, "number")?));
    let operated = |one: &Value| {
        let code = one.pointer("/operating/carrierCode").and_then(Value::as_str).or_else(|| text(one, "carrierCode"))?;
        Some(code.to_owned())
    };
    Some(Itinerary {
        departure: place(first.get("departure")?)?,
        arrival: place(last.get("arrival")?)?,
        duration_minutes: text(itinerary, "duration").and_then(minutes_of),
        stops: i64::try_from(segments.len()).ok()? - 1 + halts,
        flight_numbers: segments.iter().map(flight).collect::<Option<_>>()?,
        operating: segments.iter().map(operated).collect::<Option<_>>()?,
        cabins: segments.iter().map(|one| cabin(one, traveller)).collect(),
    })
}

/// The cabin of the first traveller on this segment.
fn cabin(segment: &Value, traveller: &Value) -> Option<String> {
    let id = text(segment, "id")?;
    let fares = traveller.get("fareDetailsBySegment")?.as_array()?;
    fares.iter().find(|fare| text(fare, "segmentId") == Some(id)).and_then(|fare| text(fare, "cabin")).map(str::to_owned)
}

fn place(end: &Value) -> Option<Place> {
    Some(Place { airport: Some(text(end, "iataCode")?.to_owned()), local_time: text(end, "at").map(str::to_owned) })
}
