//! The normalised results of all providers: awards with their trips, and cash flights.
//!
//! Times are local times of the airport and are never converted. `None` means "not published", never zero.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::money::Money;

/// Award availability: one route, day, program and cabin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Award {
    pub availability_id: String,
    pub program: String,
    pub date: Date,
    pub origin: String,
    pub destination: String,
    pub cabin: String,
    pub miles: i64,
    pub taxes: Option<Money>,
    pub seats_left: Option<i64>,
    pub airlines: Vec<String>,
    pub has_nonstop: bool,
    pub nonstop_miles: Option<i64>,
    pub data_as_of: Option<String>,
    pub trip: Option<Trip>,
    pub booking_links: Vec<BookingLink>,
    /// Constraints that could not be checked, because the provider does not publish the value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
}

/// One connection that an award can be booked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trip {
    pub trip_id: String,
    pub cabin: String,
    pub miles: i64,
    pub taxes: Option<Money>,
    pub seats_left: Option<i64>,
    pub stops: i64,
    pub duration_minutes: Option<i64>,
    pub airlines: Vec<String>,
    pub flight_numbers: Option<Vec<String>>,
    pub departure: Place,
    pub arrival: Place,
    pub connections: Option<Vec<String>>,
    pub segments: Option<Vec<Segment>>,
}

/// An airport and a local time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    pub airport: Option<String>,
    pub local_time: Option<String>,
}

/// One flight of a trip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    pub flight: String,
    pub from: String,
    pub to: String,
    pub departs_local: String,
    pub arrives_local: String,
    pub aircraft: Option<String>,
}

/// A link to book an award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BookingLink {
    pub label: String,
    pub link: String,
    #[serde(default)]
    pub primary: bool,
}

/// A cash flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cash {
    pub offer_id: String,
    pub provider: String,
    pub price_total_all_travellers: Money,
    pub price_first_traveller: Option<String>,
    pub travellers: usize,
    pub seats_left: Option<i64>,
    pub airline_code: String,
    pub airline_name: Option<String>,
    pub itineraries: Vec<Itinerary>,
    /// Other flight numbers of the same flights (codeshares).
    pub also_sold_as: Vec<String>,
}

/// One direction of a cash flight. The lists have one entry per segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Itinerary {
    pub departure: Place,
    pub arrival: Place,
    pub duration_minutes: Option<i64>,
    pub stops: i64,
    pub flight_numbers: Vec<String>,
    pub operating: Vec<String>,
    pub cabins: Vec<Option<String>>,
}

/// An ISO 8601 duration such as "PT19H5M" or "P1DT2H", in minutes.
pub(crate) fn minutes_of(duration: &str) -> Option<i64> {
    let rest = duration.strip_prefix('P')?;
    let (mut total, mut number, mut timed) = (0_i64, String::new(), false);
    for c in rest.chars() {
        let unit = match c {
            'T' if number.is_empty() => {
                timed = true;
                continue;
            }
            'D' => 24 * 60,
            'W' => 7 * 24 * 60,
            'H' if timed => 60,
            'M' if timed => 1,
            'S' if timed => 0,
            digit if digit.is_ascii_digit() => {
                number.push(digit);
                continue;
            }
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    number.is_empty().then_some(total)
}

/// The codes of a list such as "UA, UA", each once, in their order.
pub(crate) fn codes(text: &str) -> Vec<String> {
    let mut codes: Vec<String> = Vec::new();
    for code in text.split(',').map(str::trim).filter(|code| !code.is_empty()) {
        if !codes.iter().any(|known| known == code) {
            codes.push(code.to_owned());
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::{codes, minutes_of};

    #[test]
    fn durations_may_contain_days() {
        assert_eq!(minutes_of("PT19H5M"), Some(1145));
        assert_eq!(minutes_of("P1DT2H"), Some(1560));
        assert_eq!(minutes_of("PT9H"), Some(540));
        assert_eq!(minutes_of("PT45M30S"), Some(45));
        for nonsense in ["", "9H", "PT9", "P1M", "PTH"] {
            assert_eq!(minutes_of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_carrier_is_named_once() {
        assert_eq!(codes("UA, UA"), ["UA"]);
        assert_eq!(codes("AC, LH ,"), ["AC", "LH"]);
        assert!(codes("").is_empty());
    }
}
