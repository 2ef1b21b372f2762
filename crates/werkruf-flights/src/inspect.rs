//! `flights inspect`: parses a recorded provider payload with the code that a search uses.

use serde_json::{Map, Value, json};

use super::cabin::Cabin;
use super::{amadeus, duffel, seatsaero};

/// The provider of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderName {
    Seatsaero,
    Amadeus,
    Duffel,
}

/// `{offers, trips}` and further fields of the payload. The error states why the payload is not a response of the provider.
pub fn inspect(provider: ProviderName, bytes: &[u8], cabin: Option<Cabin>) -> Result<Value, String> {
    let body: Value = serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))?;
    let mut output = match (provider, body.as_array()) {
        (ProviderName::Seatsaero, Some(list)) if list.iter().all(|row| row.get("OriginAirport").is_some()) => routes(list),
        (ProviderName::Seatsaero | ProviderName::Amadeus, Some(list)) => errors(provider, list),
        (ProviderName::Seatsaero, None) => seatsaero_body(&body, cabin)?,
        (ProviderName::Amadeus, _) if body.get("access_token").is_some() => token(&body),
        (ProviderName::Amadeus, _) => offers(amadeus::offers(&body)?, cabin),
        (ProviderName::Duffel, _) => offers(duffel::offers(&body)?, cabin),
    };
    for name in ["offers", "trips"] {
        output.entry(name).or_insert_with(|| json!([]));
    }
    Ok(Value::Object(output))
}

fn seatsaero_body(body: &Value, cabin: Option<Cabin>) -> Result<Map<String, Value>, String> {
    let wanted = |word: &str| cabin.is_none_or(|cabin| cabin.award() == word);
    let is_trips = body.pointer("/data/0/MileageCost").is_some() || body.get("booking_links").is_some();
    let mut output = Map::new();
    if is_trips {
        let page = seatsaero::trips_page(body)?;
        let primary = page.booking_links.iter().find(|link| link.primary).map(|link| link.label.clone());
        let trips: Vec<_> = page.trips.into_iter().filter(|trip| wanted(&trip.cabin)).collect();
        output.insert("trips".to_owned(), json!(trips));
        output.insert("booking_links".to_owned(), json!(page.booking_links));
        output.insert("primary_booking_link_label".to_owned(), json!(primary));
        output.insert("carrier_names".to_owned(), Value::Object(page.carriers));
        return Ok(output);
    }
    let page = seatsaero::search_page(body)?;
    let trips: Vec<_> = page.rows.iter().flat_map(|row| &row.trips).filter(|trip| wanted(&trip.cabin)).collect();
    let offers: Vec<_> =
        page.rows.iter().flat_map(|row| &row.awards).map(|priced| &priced.award).filter(|one| wanted(&one.cabin)).collect();
    output.insert("offers".to_owned(), json!(offers));
    output.insert("trips".to_owned(), json!(trips));
    output.insert("page".to_owned(), json!({"count": page.count, "has_more": page.has_more, "cursor": page.cursor}));
    Ok(output)
}

fn offers(offers: Vec<super::offer::Cash>, cabin: Option<Cabin>) -> Map<String, Value> {
    let wanted = |cash: &super::offer::Cash| {
        let cabins = cash.itineraries.iter().flat_map(|one| &one.cabins).flatten();
        cabin.is_none_or(|cabin| cabins.into_iter().any(|word| word == cabin.upper()))
    };
    let kept: Vec<_> = offers.into_iter().filter(wanted).collect();
    Map::from_iter([("offers".to_owned(), json!(kept))])
}

fn routes(list: &[Value]) -> Map<String, Value> {
    let first = list
        .first()
        .map(|row| json!({"origin": row["OriginAirport"], "destination": row["DestinationAirport"], "distance_miles": row["Distance"]}));
    Map::from_iter([("rows".to_owned(), json!(list.len())), ("first".to_owned(), json!(first))])
}

fn token(body: &Value) -> Map<String, Value> {
    ["access_token", "expires_in"].into_iter().map(|name| (name.to_owned(), body[name].clone())).collect()
}

/// A list of error responses: the reason and whether each is retryable.
fn errors(provider: ProviderName, list: &[Value]) -> Map<String, Value> {
    let errors: Vec<Value> = list
        .iter()
        .map(|entry| {
            let status = entry["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
            let after = entry.pointer("/headers/retry-after").and_then(Value::as_str).and_then(|text| text.parse().ok());
            let after = after.map(std::time::Duration::from_secs);
            let body = entry["body_text"].as_str().map_or_else(|| entry["body"].to_string(), str::to_owned);
            let error = match provider {
                // An empty page is a valid response, not an error.
                ProviderName::Seatsaero if status == 200 && seatsaero::search_page(&entry["body"]).is_ok() => None,
                ProviderName::Seatsaero => Some(seatsaero::refusal(status, after, &body)),
                ProviderName::Amadeus | ProviderName::Duffel => Some(amadeus::refusal(status, after, &body).into_error()),
            };
            let reason = error.as_ref().map(|error| error.reason);
            json!({"name": entry["name"], "status": status, "reason": reason, "retryable": error.is_some_and(|one| one.retryable)})
        })
        .collect();
    Map::from_iter([("errors".to_owned(), Value::Array(errors))])
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
