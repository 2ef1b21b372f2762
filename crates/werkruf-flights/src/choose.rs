//! Selects the flights to show: those that meet the constraints, the cheapest first, each flight once.
//!
//! A value that a provider does not publish never excludes a flight. The flight is kept and lists the constraint as unchecked.

use super::offer::{Award, Cash};
use super::request::Request;

/// Awards that meet the constraints, ordered by miles.
pub(super) fn awards(found: Vec<Award>, request: &Request) -> Vec<Award> {
    let mut kept: Vec<Award> = found.into_iter().filter_map(|award| matching(award, request)).collect();
    kept.sort_by_key(|award| (award.miles, award.date));
    kept.truncate(request.max_results);
    kept
}

fn matching(mut award: Award, request: &Request) -> Option<Award> {
    if award.seats_left.is_some_and(|seats| seats < request.query.seats()) {
        return None;
    }
    let airlines_flown = award.airlines.iter().chain(award.trip.iter().flat_map(|trip| &trip.airlines));
    if !includes_member(request.members.as_deref(), airlines_flown) {
        return None;
    }
    if let Some((most, currency)) = &request.max_taxes {
        let comparable = award.taxes.as_ref().filter(|taxes| taxes.currency.as_deref() == Some(currency));
        match comparable.and_then(|taxes| taxes.is_over(*most)) {
            Some(true) => return None,
            Some(false) => {}
            None => award.unchecked.push("max_taxes".to_owned()),
        }
    }
    Some(award)
}

/// Cash flights that meet the constraints, ordered by price. Prices in the requested currency come first, because prices in
/// different currencies cannot be compared.
pub(super) fn cash(found: Vec<Cash>, request: &Request) -> Vec<Cash> {
    let query = &request.query;
    let fits = |offer: &Cash| {
        let airlines_flown = offer.itineraries.iter().flat_map(|one| &one.operating).chain([&offer.airline_code]);
        offer.seats_left.is_none_or(|seats| seats >= query.seats())
            && (!query.nonstop || offer.itineraries.iter().all(|one| one.stops == 0))
            && includes_member(request.members.as_deref(), airlines_flown)
    };
    let mut kept: Vec<Cash> = found.into_iter().filter(fits).collect();
    kept.sort_by_cached_key(|offer| {
        let price = &offer.price_total_all_travellers;
        (price.currency.as_deref() != Some(&query.currency), price.currency.clone(), price.scaled().unwrap_or(i128::MAX))
    });
    let mut kept = merge_codeshares(kept);
    kept.truncate(request.max_results);
    kept
}

fn includes_member<'a>(members: Option<&[&str]>, mut airlines: impl Iterator<Item = &'a String>) -> bool {
    members.is_none_or(|members| airlines.any(|airline| members.contains(&airline.as_str())))
}

/// Merges codeshares: the cheaper offer is kept and lists the other flight numbers. Expects the cheapest offers first.
fn merge_codeshares(offers: Vec<Cash>) -> Vec<Cash> {
    let mut kept: Vec<Cash> = Vec::new();
    for offer in offers {
        match kept.iter_mut().find(|known| is_codeshare(known, &offer)) {
            Some(known) => {
                let numbers = offer.itineraries.iter().flat_map(|one| &one.flight_numbers);
                let own: Vec<String> = known.itineraries.iter().flat_map(|one| one.flight_numbers.clone()).collect();
                for number in numbers.filter(|number| !own.contains(number)) {
                    if !known.also_sold_as.contains(number) {
                        known.also_sold_as.push(number.clone());
                    }
                }
            }
            None => kept.push(offer),
        }
    }
    kept
}

fn is_codeshare(one: &Cash, other: &Cash) -> bool {
    let same = |(a, b): (&super::offer::Itinerary, &super::offer::Itinerary)| {
        a.departure == b.departure && a.arrival == b.arrival && a.operating == b.operating && a.stops == b.stops
    };
    let numbers = |offer: &Cash| offer.itineraries.iter().map(|one| one.flight_numbers.clone()).collect::<Vec<_>>();
    one.itineraries.len() == other.itineraries.len()
        && one.itineraries.iter().zip(&other.itineraries).all(same)
        && numbers(one) != numbers(other)
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
