//! The flights shown last, with their numbers, so that `select_itinerary` can resolve "the second one".

use serde_json::{Value, json};
use werkruf_contract::Texts;

use super::offer::{Award, Cash};
use super::summary::{SearchSummary, award_line, cash_line};

/// The session state field.
pub(crate) const LAST_RESULTS: &str = "last_flight_results";

/// The list for the session state. It is kept small, because it is part of every session state.
pub(super) fn list(summary: &SearchSummary<'_>, texts: &Texts) -> Value {
    let query = &summary.request.query;
    let awards = |kind: &'static str, awards: &[Award], days| -> Vec<Value> {
        awards.iter().map(|award| award_entry(kind, award, &award_line(texts, award, days))).collect()
    };
    let mut out = awards("award", summary.awards, query.out);
    out.extend(query.back.map(|days| awards("award_return", summary.awards_return, days)).unwrap_or_default());
    let cash: Vec<Value> = summary.cash.iter().map(|offer| cash_entry(offer, &cash_line(texts, offer))).collect();
    let mut all = if summary.request.awards_first || cash.is_empty() { [out, cash].concat() } else { [cash, out].concat() };
    for (at, entry) in all.iter_mut().enumerate() {
        entry["index"] = json!(at + 1);
        if summary.sandbox {
            entry["sandbox"] = json!(true);
        }
    }
    Value::Array(all)
}

fn award_entry(kind: &str, award: &Award, line: &str) -> Value {
    json!({
        "index": 0, "kind": kind, "id": award.availability_id, "trip_id": award.trip.as_ref().map(|trip| &trip.trip_id),
        "program": award.program, "date": award.date, "origin": award.origin, "destination": award.destination, "cabin": award.cabin,
        "miles": award.miles, "taxes": award.taxes, "text": line,
    })
}

fn cash_entry(offer: &Cash, line: &str) -> Value {
    let numbers: Vec<&String> = offer.itineraries.iter().flat_map(|one| &one.flight_numbers).collect();
    json!({
        "index": 0, "kind": "cash", "id": offer.offer_id, "provider": offer.provider, "price": offer.price_total_all_travellers,
        "travellers": offer.travellers, "airline": offer.airline_code, "flight_numbers": numbers, "text": line,
    })
}
