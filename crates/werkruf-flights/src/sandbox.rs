//! Made-up flights for a server without provider keys. The same request gives the same flights; every result is marked as sample data.

use sha2::{Digest, Sha256};
use werkruf_contract::{BoxFuture, Deadline};

use super::money::Money;
use super::offer::{Award, Cash, Itinerary, Place, Trip};
use super::provider::{FlightProvider, FlightResults, OfferKind};
use super::provider_error::ProviderError;
use super::query::{Days, Query};

/// Program, airline, flight number, miles in economy, taxes in US cents, minutes after midnight, stops.
const AWARDS: [(&str, &str, u32, i64, i64, i64, i64); 4] = [
    ("aeroplan", "LH", 400, 35_000, 7_840, 630, 0),
    ("united", "UA", 961, 40_000, 560, 705, 0),
    ("lufthansa", "LX", 16, 30_000, 31_250, 590, 1),
    ("flyingblue", "AF", 8, 27_500, 19_900, 815, 1),
];
/// Airline, its name, flight number, cents in economy, minutes after midnight, stops.
const FARES: [(&str, &str, u32, i64, i64, i64); 3] =
    [("LH", "Lufthansa", 400, 61_240, 630, 0), ("UA", "United Airlines", 961, 58_915, 705, 0), ("KL", "KLM", 641, 49_780, 760, 1)];

#[derive(Debug, Clone, Copy)]
pub struct Sandbox;

impl FlightProvider for Sandbox {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    fn offer_kind(&self) -> OfferKind {
        OfferKind::Both
    }

    fn search<'a>(&'a self, query: &'a Query, _: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>> {
        let awards = awards(query, &query.origin, &query.destination, query.out);
        let awards_return = query.back.map(|days| awards_back(query, days)).unwrap_or_default();
        let cash = FARES.iter().filter(|fare| !query.nonstop || fare.5 == 0).map(|fare| cash(query, fare)).collect();
        Box::pin(std::future::ready(Ok(FlightResults { awards, awards_return, cash, ..FlightResults::default() })))
    }
}

fn awards_back(query: &Query, days: Days) -> Vec<Award> {
    awards(query, &query.destination, &query.origin, days)
}

fn awards(query: &Query, from: &str, to: &str, days: Days) -> Vec<Award> {
    let wanted = |program: &str| query.sources.is_empty() || query.sources.iter().any(|source| source == program);
    let rows = AWARDS.iter().filter(|row| wanted(row.0) && (!query.nonstop || row.6 == 0));
    rows.map(|(program, airline, number, miles, cents, start, stops)| {
        let miles = miles * factor(query) / 100;
        let taxes = Some(Money::of_minor(cents + spread(from, to) * 100, Some("USD")));
        let minutes = duration(from, to) + stops * 95;
        let (departure, arrival) = (place(from, days, *start), place(to, days, start + minutes));
        let id = format!("sandbox-{program}-{from}-{to}-{}", days.wanted);
        Award {
            availability_id: id.clone(),
            program: (*program).to_owned(),
            date: days.wanted,
            origin: from.to_owned(),
            destination: to.to_owned(),
            cabin: query.cabin.award().to_owned(),
            miles,
            taxes: taxes.clone(),
            seats_left: Some(9),
            airlines: vec![(*airline).to_owned()],
            has_nonstop: *stops == 0,
            nonstop_miles: (*stops == 0).then_some(miles),
            data_as_of: None,
            trip: Some(Trip {
                trip_id: format!("{id}-1"),
                cabin: query.cabin.award().to_owned(),
                miles,
                taxes,
                seats_left: Some(9),
                stops: *stops,
                duration_minutes: Some(minutes),
                airlines: vec![(*airline).to_owned()],
                flight_numbers: Some(vec![format!("{airline}{number}")]),
                departure,
                arrival,
                connections: None,
                segments: None,
            }),
            booking_links: Vec::new(),
            unchecked: Vec::new(),
        }
    })
    .collect()
}

fn cash(query: &Query, (airline, name, number, cents, start, stops): &(&str, &str, u32, i64, i64, i64)) -> Cash {
    let legs = 1 + i64::from(query.back.is_some());
    let each = (cents * factor(query) / 100 + spread(&query.origin, &query.destination) * 137) * legs;
    let direction = |from: &str, to: &str, days: Days, number: u32| {
        let minutes = duration(from, to) + stops * 95;
        Itinerary {
            departure: place(from, days, *start),
            arrival: place(to, days, start + minutes),
            duration_minutes: Some(minutes),
            stops: *stops,
            flight_numbers: vec![format!("{airline}{number}")],
            operating: vec![(*airline).to_owned()],
            cabins: vec![Some(query.cabin.upper().to_owned())],
        }
    };
    let mut itineraries = vec![direction(&query.origin, &query.destination, query.out, *number)];
    itineraries.extend(query.back.map(|days| direction(&query.destination, &query.origin, days, number + 1)));
    let total = Money::of_minor(each * query.seats(), Some(&query.currency));
    Cash {
        offer_id: format!("sandbox-{airline}-{}", query.out.wanted),
        provider: "sandbox".to_owned(),
        price_total_all_travellers: total,
        price_first_traveller: Some(Money::of_minor(each, Some(&query.currency)).amount),
        travellers: usize::try_from(query.seats() + i64::from(query.infants)).unwrap_or(1),
        seats_left: Some(9),
        airline_code: (*airline).to_owned(),
        airline_name: Some((*name).to_owned()),
        itineraries,
        also_sold_as: Vec::new(),
    }
}

/// The price in percent of the economy price.
fn factor(query: &Query) -> i64 {
    match query.cabin.letter() {
        'W' => 155,
        'J' => 245,
        'F' => 390,
        _ => 100,
    }
}

/// A number from 0 to 99 that depends only on the route.
fn spread(from: &str, to: &str) -> i64 {
    i64::from(Sha256::digest(format!("{from}{to}").as_bytes())[0]) % 100
}

fn duration(from: &str, to: &str) -> i64 {
    90 + (spread(from, to) + spread(to, from)) * 4
}

fn place(airport: &str, days: Days, minutes: i64) -> Place {
    let at = days.wanted.at(0, 0, 0, 0).checked_add(jiff::Span::new().minutes(minutes));
    Place { airport: Some(airport.to_owned()), local_time: at.ok().map(|at| at.to_string()) }
}
