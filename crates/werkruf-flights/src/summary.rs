//! The message of a search result: numbered flights, and notes on providers that failed.

use werkruf_contract::{TextArg, Texts};

use super::offer::{Award, Cash, Itinerary, Place};
use super::provider::{Report, Status};
use super::provider_error::Reason;
use super::query::Days;
use super::request::{Request, cabin_text};
use super::{price, programs};

/// Everything that the message shows.
pub(super) struct SearchSummary<'a> {
    pub(super) request: &'a Request,
    pub(super) awards: &'a [Award],
    pub(super) awards_return: &'a [Award],
    pub(super) cash: &'a [Cash],
    pub(super) reports: &'a [Report],
    pub(super) sandbox: bool,
    /// Whether a provider of cash flights is configured.
    pub(super) has_cash: bool,
}

impl SearchSummary<'_> {
    /// The whole message.
    pub(super) fn text(&self, texts: &Texts) -> String {
        let mut number = 0;
        let mut sections = Vec::new();
        if self.sandbox {
            sections.push(texts.text("flights-sandbox", &[]));
        }
        if self.is_empty() {
            sections.push(self.heading(texts, "flights-none", self.request.query.out, false));
        }
        if self.request.awards_first || self.cash.is_empty() {
            self.award_sections(texts, &mut number, &mut sections);
            self.cash_section(texts, &mut number, &mut sections);
        } else {
            self.cash_section(texts, &mut number, &mut sections);
            self.award_sections(texts, &mut number, &mut sections);
        }
        sections.extend(self.provider_notes(texts));
        sections.join("\n\n")
    }

    fn is_empty(&self) -> bool {
        self.awards.is_empty() && self.awards_return.is_empty() && self.cash.is_empty()
    }

    fn heading(&self, texts: &Texts, key: &str, days: Days, back: bool) -> String {
        let query = &self.request.query;
        let (from, to) = if back { (&query.destination, &query.origin) } else { (&query.origin, &query.destination) };
        let parts: [(&str, TextArg<'_>); 4] = [
            ("from", from.into()),
            ("to", to.into()),
            ("day", texts.date(days.wanted).into()),
            ("cabin", cabin_text(texts, query.cabin).into()),
        ];
        texts.text(key, &parts)
    }

    fn award_sections(&self, texts: &Texts, number: &mut usize, sections: &mut Vec<String>) {
        let days = [(self.awards, Some(self.request.query.out), false), (self.awards_return, self.request.query.back, true)];
        for (awards, days, back) in days {
            let Some(days) = days.filter(|_| !awards.is_empty()) else { continue };
            let key = if back { "flights-awards-return" } else { "flights-awards" };
            let mut section = self.heading(texts, key, days, back);
            for award in awards {
                *number += 1;
                section.push_str(&format!("\n{number}. {}", award_line(texts, award, days)));
            }
            sections.push(section);
        }
    }

    fn cash_section(&self, texts: &Texts, number: &mut usize, sections: &mut Vec<String>) {
        if self.cash.is_empty() {
            return;
        }
        let mut section = self.heading(texts, "flights-cash", self.request.query.out, false);
        for offer in self.cash {
            *number += 1;
            section.push_str(&format!("\n{number}. {}", cash_line(texts, offer)));
        }
        sections.push(section);
    }

    /// Notes on providers that failed, with reasons. Unconfigured providers are not mentioned, unless no provider of cash flights
    /// is configured.
    fn provider_notes(&self, texts: &Texts) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for report in self.reports.iter().filter(|report| report.reason.is_some() && report.status != Status::Skipped) {
            let reason = report.reason.map(|reason| texts.text(reason_key(reason), &[])).unwrap_or_default();
            notes.push(
                texts.text("flights-missing-provider", &[("provider", provider_name(&report.name).into()), ("reason", reason.into())]),
            );
        }
        if !self.has_cash && !self.request.award_only {
            notes.push(texts.text("flights-no-cash-source", &[]));
        }
        notes
    }
}

pub(super) const fn reason_key(reason: Reason) -> &'static str {
    match reason {
        Reason::Quota => "flights-reason-quota",
        Reason::Credentials => "flights-reason-credentials",
        Reason::Timeout => "flights-reason-timeout",
        Reason::Upstream => "flights-reason-upstream",
        Reason::BadResponse => "flights-reason-bad_response",
        Reason::NotConfigured => "flights-reason-not_configured",
        Reason::AwardOnly => "flights-reason-award_only",
    }
}

fn provider_name(name: &str) -> String {
    match name {
        "seatsaero" => "Seats.aero".to_owned(),
        "amadeus" => "Amadeus".to_owned(),
        "duffel" => "Duffel".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn award_line(texts: &Texts, award: &Award, days: Days) -> String {
    let airlines = award.airlines.join(", ");
    let trip = award.trip.as_ref();
    let numbers = trip.and_then(|trip| trip.flight_numbers.as_ref()).map(|numbers| numbers.join(", "));
    let who = numbers.filter(|numbers| !numbers.is_empty()).unwrap_or(airlines);
    let mut facts = vec![who, price::miles(texts, award.miles, award.taxes.as_ref()), programs::label(&award.program).to_owned()];
    facts.retain(|fact| !fact.is_empty());
    let mut line = facts.join(" · ");
    let mut more = Vec::new();
    if award.date != days.wanted {
        more.push(texts.date(award.date));
    }
    match trip {
        Some(trip) => {
            more.extend(times(&trip.departure, &trip.arrival));
            more.push(stops(texts, trip.stops));
            more.extend(trip.duration_minutes.map(|minutes| texts.duration_minutes(minutes)));
        }
        None if award.nonstop_miles == Some(award.miles) => more.push(stops(texts, 0)),
        None => {}
    }
    more.extend(award.seats_left.map(|seats| texts.text("flights-seats", &[("count", seats.into())])));
    if !award.unchecked.is_empty() {
        more.push(texts.text("flights-unchecked", &[]));
    }
    if !more.is_empty() {
        line.push_str("\n   ");
        line.push_str(&more.join(" · "));
    }
    line
}

pub(super) fn cash_line(texts: &Texts, offer: &Cash) -> String {
    let total = price::money(texts, &offer.price_total_all_travellers);
    let price = if offer.travellers > 1 {
        texts.text("flights-total", &[("price", total.into()), ("count", offer.travellers.into())])
    } else {
        total
    };
    let name = offer.airline_name.clone().unwrap_or_else(|| offer.airline_code.clone());
    let mut line = [name, price].join(" · ");
    for leg in &offer.itineraries {
        line.push_str("\n   ");
        line.push_str(&leg_line(texts, leg));
    }
    if !offer.also_sold_as.is_empty() {
        line.push_str("\n   ");
        line.push_str(&texts.text("flights-also", &[("numbers", offer.also_sold_as.join(", ").into())]));
    }
    line
}

fn leg_line(texts: &Texts, leg: &Itinerary) -> String {
    let mut facts = vec![leg.flight_numbers.join(", ")];
    facts.extend(times(&leg.departure, &leg.arrival));
    facts.push(stops(texts, leg.stops));
    facts.extend(leg.duration_minutes.map(|minutes| texts.duration_minutes(minutes)));
    facts.join(" · ")
}

fn stops(texts: &Texts, stops: i64) -> String {
    if stops == 0 { texts.text("flights-nonstop", &[]) } else { texts.text("flights-stops", &[("count", stops.into())]) }
}

/// `FRA 10:30 → JFK 13:15 (+1)`: local times, as received.
fn times(departure: &Place, arrival: &Place) -> Option<String> {
    let (from, to) = (departure.airport.as_deref()?, arrival.airport.as_deref()?);
    let (Some(start), Some(end)) = (departure.local_time.as_deref(), arrival.local_time.as_deref()) else {
        return Some(format!("{from} → {to}"));
    };
    let day = |text: &str| text.get(..10)?.parse::<jiff::civil::Date>().ok();
    let later = day(start).zip(day(end)).and_then(|(start, end)| start.until(end).ok()).map_or(0, |span| span.get_days());
    let next = if later == 0 { String::new() } else { format!(" ({later:+})") };
    Some(format!("{from} {} → {to} {}{next}", start.get(11..16)?, end.get(11..16)?))
}
