//! Parses responses of Seats.aero.
//!
//! The price is `{C}MileageCost`, never `{C}MileageCostRaw` (dynamically priced seats). Zero seats and zero taxes mean "not
//! published". Times end in `Z` but are local times. Rows are parsed field by field: an invalid row is skipped, not the page.

use jiff::civil::Date;
use serde_json::{Map, Value};

use crate::cabin::Cabin;
use crate::json::text;
use crate::money::Money;
use crate::offer::{Award, BookingLink, Place, Segment, Trip, codes};

/// One page of the cached search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    pub rows: Vec<Row>,
    pub count: i64,
    pub has_more: bool,
    pub cursor: Option<i64>,
}

/// One route, day and program: the price per cabin, and the included trips.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub awards: Vec<Priced>,
    pub trips: Vec<Trip>,
}

/// The price of a cabin, and the price of its nonstop flights if they have a separate one.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    pub cabin: Cabin,
    pub award: Award,
    pub nonstop: Option<Award>,
}

/// The trips and booking links of one availability.
#[derive(Debug, Clone, PartialEq)]
pub struct TripsPage {
    pub trips: Vec<Trip>,
    pub booking_links: Vec<BookingLink>,
    pub carriers: Map<String, Value>,
}

/// Parses a page of `/search`. The error quotes the message of the response.
pub fn search_page(body: &Value) -> Result<SearchPage, String> {
    let data = body.get("data").and_then(Value::as_array).ok_or_else(|| not_a("search result", body))?;
    let mut known_ids: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for row in data {
        // Pages overlap, so each availability is counted once.
        let id = text(row, "ID").unwrap_or_default();
        if !id.is_empty() && known_ids.contains(&id) {
            continue;
        }
        known_ids.push(id);
        rows.extend(self::row(row));
    }
    Ok(SearchPage {
        rows,
        count: number(body, "count").unwrap_or_else(|| i64::try_from(data.len()).unwrap_or(i64::MAX)),
        has_more: flag(body, "hasMore"),
        cursor: number(body, "cursor"),
    })
}

/// Parses a response of `/trips/{id}`.
pub fn trips_page(body: &Value) -> Result<TripsPage, String> {
    let data = body.get("data").and_then(Value::as_array).ok_or_else(|| not_a("list of trips", body))?;
    // A trip without a currency gets the currency of the other trips, if they all have the same one.
    let mut currencies: Vec<&str> = data.iter().filter_map(|trip| text(trip, "TaxesCurrency")).filter(|text| !text.is_empty()).collect();
    currencies.dedup();
    let shared = if let [only] = currencies.as_slice() { Some(*only) } else { None };
    let links = body.get("booking_links").and_then(Value::as_array).into_iter().flatten();
    Ok(TripsPage {
        trips: data.iter().filter_map(|one| trip(one, shared)).collect(),
        booking_links: links.filter_map(|link| serde_json::from_value(link.clone()).ok()).collect(),
        carriers: body.get("carriers").and_then(Value::as_object).cloned().unwrap_or_default(),
    })
}

fn not_a(what: &str, body: &Value) -> String {
    let reason = ["message", "error", "code"].into_iter().find_map(|name| text(body, name)).unwrap_or_default();
    format!("no {what}: {}", reason.chars().take(200).collect::<String>())
}

fn row(row: &Value) -> Option<Row> {
    let route = row.get("Route").unwrap_or(&Value::Null);
    let date: Date = text(row, "Date").and_then(|date| date.get(..10))?.parse().ok()?;
    let currency = text(row, "TaxesCurrency").filter(|code| !code.is_empty());
    let base = Award {
        availability_id: text(row, "ID")?.to_owned(),
        program: text(row, "Source").or_else(|| text(route, "Source"))?.to_owned(),
        date,
        origin: text(route, "OriginAirport")?.to_owned(),
        destination: text(route, "DestinationAirport")?.to_owned(),
        cabin: String::new(),
        miles: 0,
        taxes: None,
        seats_left: None,
        airlines: Vec::new(),
        has_nonstop: false,
        nonstop_miles: None,
        data_as_of: text(row, "UpdatedAt").map(str::to_owned),
        trip: None,
        booking_links: Vec::new(),
        unchecked: Vec::new(),
    };
    let awards = Cabin::ALL.into_iter().filter_map(|cabin| priced(row, &base, cabin, currency)).collect();
    let trips = row.get("AvailabilityTrips").and_then(Value::as_array).into_iter().flatten();
    Some(Row { awards, trips: trips.filter_map(|one| trip(one, currency)).collect() })
}

fn priced(row: &Value, base: &Award, cabin: Cabin, currency: Option<&str>) -> Option<Priced> {
    let name = |field: &str| format!("{}{field}", cabin.letter());
    let miles = number(row, &name("MileageCost")).filter(|miles| *miles > 0)?;
    if !flag(row, &name("Available")) {
        return None;
    }
    let has_nonstop = flag(row, &name("Direct"));
    let nonstop_miles = number(row, &name("DirectMileageCost")).filter(|miles| has_nonstop && *miles > 0);
    let award = Award {
        cabin: cabin.award().to_owned(),
        miles,
        taxes: taxes(row, &name("TotalTaxes"), currency),
        seats_left: seats(row, &name("RemainingSeats")),
        airlines: codes(text(row, &name("Airlines")).unwrap_or_default()),
        has_nonstop,
        nonstop_miles,
        ..base.clone()
    };
    let nonstop = nonstop_miles.map(|miles| Award {
        miles,
        taxes: taxes(row, &name("DirectTotalTaxes"), currency),
        seats_left: seats(row, &name("DirectRemainingSeats")),
        airlines: codes(text(row, &name("DirectAirlines")).unwrap_or_default()),
        ..award.clone()
    });
    Some(Priced { cabin, award, nonstop })
}

fn trip(trip: &Value, inherited: Option<&str>) -> Option<Trip> {
    let currency = text(trip, "TaxesCurrency").filter(|code| !code.is_empty()).or(inherited);
    let place = |airport: &str, at: &str| Place {
        airport: text(trip, airport).filter(|text| !text.is_empty()).map(str::to_owned),
        local_time: text(trip, at).and_then(local),
    };
    let list = |value: &Value| value.as_array().map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    Some(Trip {
        trip_id: text(trip, "ID")?.to_owned(),
        cabin: text(trip, "Cabin")?.to_ascii_lowercase(),
        miles: number(trip, "MileageCost")?,
        taxes: taxes(trip, "TotalTaxes", currency),
        seats_left: seats(trip, "RemainingSeats"),
        stops: number(trip, "Stops").unwrap_or(0),
        duration_minutes: number(trip, "TotalDuration").filter(|minutes| *minutes > 0),
        airlines: codes(text(trip, "Carriers").unwrap_or_default()),
        flight_numbers: text(trip, "FlightNumbers")
            .filter(|text| !text.is_empty())
            .map(|text| text.split(',').map(|one| one.trim().to_owned()).collect()),
        departure: place("OriginAirport", "DepartsAt"),
        arrival: place("DestinationAirport", "ArrivesAt"),
        connections: trip.get("Connections").and_then(list),
        segments: trip.get("AvailabilitySegments").and_then(Value::as_array).map(|segments| in_order(segments)),
    })
}

fn in_order(segments: &[Value]) -> Vec<Segment> {
    let mut ordered: Vec<&Value> = segments.iter().collect();
    ordered.sort_by_key(|segment| number(segment, "Order").unwrap_or(i64::MAX));
    ordered.into_iter().filter_map(segment).collect()
}

fn segment(segment: &Value) -> Option<Segment> {
    Some(Segment {
        flight: text(segment, "FlightNumber")?.to_owned(),
        from: text(segment, "OriginAirport")?.to_owned(),
        to: text(segment, "DestinationAirport")?.to_owned(),
        departs_local: text(segment, "DepartsAt").and_then(local)?,
        arrives_local: text(segment, "ArrivesAt").and_then(local)?,
        aircraft: text(segment, "AircraftName").filter(|name| !name.is_empty()).map(str::to_owned),
    })
}

/// The local time at the airport without the wrong `Z`; "0001-01-01…" means no time.
fn local(text: &str) -> Option<String> {
    let clock = text.get(..19)?;
    let fits = clock.as_bytes().get(10) == Some(&b'T') && !clock.starts_with("0001-");
    fits.then(|| clock.to_owned())
}

fn taxes(of: &Value, field: &str, currency: Option<&str>) -> Option<Money> {
    number(of, field).filter(|minor| *minor > 0).map(|minor| Money::of_minor(minor, currency))
}

fn seats(of: &Value, field: &str) -> Option<i64> {
    number(of, field).filter(|seats| *seats > 0)
}

fn flag(of: &Value, field: &str) -> bool {
    of.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// An integer field. Miles are a string in rows and a number in trips.
fn number(of: &Value, field: &str) -> Option<i64> {
    let value = of.get(field)?;
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}
