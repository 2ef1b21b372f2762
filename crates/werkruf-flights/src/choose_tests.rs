use jiff::civil::date;
use serde_json::{Value, json};
use werkruf_contract::Texts;

use super::{awards, cash};
use crate::money::Money;
use crate::offer::{Award, Cash, Itinerary, Place};
use crate::request::{ParsedRequest, Request};

fn request(mut change: Value) -> Request {
    let mut whole = json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "cabin": "BUSINESS"});
    whole.as_object_mut().unwrap().append(change.as_object_mut().unwrap());
    match Request::read(serde_json::from_value(whole).unwrap(), date(2026, 11, 15), &Texts::of("en")) {
        Ok(ParsedRequest::Complete(request)) => *request,
        _ => panic!("the request is complete"),
    }
}

fn award(id: &str, miles: i64, taxes: Option<Money>, seats_left: Option<i64>, airline: &str) -> Award {
    let (origin, destination, cabin, program) = ("FRA".to_owned(), "JFK".to_owned(), "business".to_owned(), "united".to_owned());
    let (availability_id, date, airlines) = (id.to_owned(), date(2026, 12, 1), vec![airline.to_owned()]);
    let (has_nonstop, nonstop_miles, data_as_of, trip) = (false, None, None, None);
    let (booking_links, unchecked) = (Vec::new(), Vec::new());
    Award {
        availability_id,
        program,
        date,
        origin,
        destination,
        cabin,
        miles,
        taxes,
        seats_left,
        airlines,
        has_nonstop,
        nonstop_miles,
        data_as_of,
        trip,
        booking_links,
        unchecked,
    }
}

#[test]
fn constraints_are_applied_and_unpublished_values_are_kept() {
    let usd = |cents| Some(Money::of_minor(cents, Some("USD")));
    let found = vec![
        award("dear", 90_000, usd(20_100), Some(9), "LH"),
        award("unknown taxes", 80_000, None, None, "LH"),
        award("other currency", 70_000, Some(Money::of_minor(99_900, Some("CAD"))), Some(4), "AC"),
        award("fits", 60_000, usd(20_000), Some(2), "UA"),
        award("too few seats", 50_000, usd(100), Some(1), "LH"),
        award("another alliance", 40_000, usd(100), Some(9), "BA"),
    ];
    let constraints = json!({"pax": 2, "constraints": {"max_taxes": 200, "alliances": ["Star Alliance"]}});
    let kept = awards(found.clone(), &request(constraints));
    let names: Vec<(&str, &[String])> = kept.iter().map(|award| (award.availability_id.as_str(), award.unchecked.as_slice())).collect();
    let unchecked = ["max_taxes".to_owned()];
    assert_eq!(names, [("fits", [].as_slice()), ("other currency", &unchecked), ("unknown taxes", &unchecked)]);
    assert_eq!(awards(found, &request(json!({"max_results": 2}))).len(), 2);
}

fn offer(id: &str, amount: &str, currency: &str, number: &str, stops: i64, seats_left: Option<i64>) -> Cash {
    let place = |airport: &str, time: &str| Place { airport: Some(airport.to_owned()), local_time: Some(time.to_owned()) };
    let leg = Itinerary {
        departure: place("FRA", "2026-12-01T10:30:00"),
        arrival: place("JFK", "2026-12-01T13:15:00"),
        duration_minutes: Some(525),
        stops,
        flight_numbers: vec![number.to_owned()],
        operating: vec!["LH".to_owned()],
        cabins: vec![Some("BUSINESS".to_owned())],
    };
    Cash {
        offer_id: id.to_owned(),
        provider: "amadeus".to_owned(),
        price_total_all_travellers: Money::new(amount, Some(currency)),
        price_first_traveller: None,
        travellers: 1,
        seats_left,
        airline_code: "LH".to_owned(),
        airline_name: None,
        itineraries: vec![leg],
        also_sold_as: Vec::new(),
    }
}

#[test]
fn the_cheapest_comes_first_and_codeshares_are_merged() {
    let found = vec![
        offer("1", "1000.00", "EUR", "LH400", 0, None),
        offer("2", "999.99", "EUR", "UA8840", 0, Some(9)),
        offer("3", "10.00", "USD", "LH402", 1, Some(9)),
        offer("4", "5.00", "EUR", "LH404", 0, Some(0)),
    ];
    let kept = cash(found.clone(), &request(json!({})));
    let names: Vec<(&str, Vec<String>)> = kept.iter().map(|one| (one.offer_id.as_str(), one.also_sold_as.clone())).collect();
    assert_eq!(names, [("2", vec!["LH400".to_owned()]), ("3", vec![])]);
    let direct = cash(found, &request(json!({"constraints": {"nonstop_only": true}})));
    assert_eq!(direct.iter().map(|one| one.offer_id.as_str()).collect::<Vec<_>>(), ["2"]);
}
