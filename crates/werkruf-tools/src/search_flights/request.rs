//! A request that is whole and makes sense. Everything that can be found out without a provider is found out here.

use jiff::civil::Date;
use serde_json::{Value, json};
use werkruf_contract::{Failure, TextArg, Texts};

use super::args::{Args, Constraints};
use super::cabin::Cabin;
use super::query::{Days, Query};
use super::{airports, programs};

/// Airlines sell about a year ahead.
const MOST_DAYS: i64 = 361;
const MOST_PEOPLE: u32 = 9;
/// Flights of each kind where nobody says how many.
const RESULTS: u8 = 5;

/// What will be searched.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) query: Query,
    pub(super) award_only: bool,
    /// Awards stand first.
    pub(super) awards_first: bool,
    pub(super) max_taxes: Option<(f64, String)>,
    /// Airlines of the alliances wanted; `None` wants all.
    pub(super) members: Option<Vec<&'static str>>,
    pub(super) max_results: usize,
    told: Args,
}

/// A request, or what is still to be asked for.
pub(super) enum Read {
    Whole(Box<Request>),
    Lacking { known: Box<Args>, missing: Vec<&'static str> },
}

impl Request {
    /// Refuses what makes no sense, also where something is still missing.
    pub(super) fn read(args: Args, today: Date, words: &Texts) -> Result<Read, Failure> {
        let mut told = args;
        for place in [&mut told.origin, &mut told.destination].into_iter().flatten() {
            *place = airports::read(place).ok_or_else(|| refused(words, "unknown_airport", &[("place", place.clone().into())]))?;
        }
        if let (Some(origin), Some(destination)) = (&told.origin, &told.destination)
            && origin == destination
        {
            return Err(refused(words, "same_airports", &[("place", origin.clone().into())]));
        }
        people(&told, words)?;
        let sources = sources(&mut told, words)?;
        let members = members(told.constraints.as_ref(), words)?;
        let currency = currency(told.currency.as_deref(), "EUR", words)?;
        let (out, back) = dates(&told, today, words)?;
        let missing = told.missing();
        let (Some(origin), Some(destination), Some(out), Some(cabin)) = (told.origin.clone(), told.destination.clone(), out, told.cabin)
        else {
            return Ok(Read::Lacking { known: Box::new(told), missing });
        };
        let constraints = told.constraints.clone().unwrap_or_default();
        let taxes_in = currency_of_taxes(&constraints, words)?;
        let flexibility = told.flexibility.unwrap_or(0);
        let award_only = told.award_only.unwrap_or(false);
        let query = Query {
            origin,
            destination,
            out: Days::around(out, flexibility, today),
            back: back.map(|day| Days::around(day, flexibility, today)),
            adults: told.pax.unwrap_or(1),
            children: told.children.unwrap_or(0),
            infants: told.infants.unwrap_or(0),
            cabin,
            nonstop: constraints.nonstop_only.unwrap_or(false),
            sources,
            currency,
        };
        let awards_first = award_only || !query.sources.is_empty();
        let max_taxes = constraints.max_taxes.map(|most| (most, taxes_in));
        let max_results = usize::from(told.max_results.unwrap_or(RESULTS));
        Ok(Read::Whole(Box::new(Self { query, award_only, awards_first, max_taxes, members, max_results, told })))
    }

    /// What the session state remembers: the seed's fields, and whatever else was said.
    pub(super) fn remembered(&self) -> Value {
        let query = &self.query;
        let mut fields = json!({
            "origin": query.origin, "destination": query.destination, "depart_date": query.out.wanted,
            "return_date": query.back.map(|days| days.wanted), "cabin": query.cabin, "pax": query.adults, "award_only": self.award_only,
        });
        if let (Some(known), Some(said)) = (fields.as_object_mut(), self.told.told().as_object()) {
            for (name, value) in said {
                known.entry(name).or_insert_with(|| value.clone());
            }
        }
        fields
    }

    /// The same with every default filled in.
    pub(super) fn told(&self) -> Value {
        let query = &self.query;
        let mut fields = self.remembered();
        let more = json!({
            "children": query.children, "infants": query.infants, "currency": query.currency, "max_results": self.max_results,
            "flexibility": self.told.flexibility.unwrap_or(0), "loyalty_programs": query.sources,
            "constraints": self.told.constraints.clone().unwrap_or_default(),
        });
        if let (Some(known), Value::Object(more)) = (fields.as_object_mut(), more) {
            known.extend(more);
        }
        fields
    }
}

/// The refusal of this code, in the person's words.
fn refused(words: &Texts, code: &'static str, parts: &[(&str, TextArg<'_>)]) -> Failure {
    Failure::validation(code, words.text(&format!("flights-{code}"), parts))
}

fn invalid(words: &Texts, field: &str) -> Failure {
    Failure::validation("invalid_arguments", words.text("flights-invalid", &[("field", field.into())]))
}

fn people(told: &Args, words: &Texts) -> Result<(), Failure> {
    let (adults, children, infants) = (told.pax.unwrap_or(1), told.children.unwrap_or(0), told.infants.unwrap_or(0));
    if adults == 0 {
        return Err(invalid(words, "pax"));
    }
    if adults.saturating_add(children) > MOST_PEOPLE || infants > adults {
        return Err(refused(words, "too_many_passengers", &[("most", i64::from(MOST_PEOPLE).into())]));
    }
    Ok(())
}

/// The programs by their names at Seats.aero; the request keeps those names too.
fn sources(told: &mut Args, words: &Texts) -> Result<Vec<String>, Failure> {
    let Some(named) = &mut told.loyalty_programs else { return Ok(Vec::new()) };
    let mut sources: Vec<String> = Vec::new();
    for name in named.iter() {
        let known = programs::sources().join(", ");
        let source = programs::source(name)
            .ok_or_else(|| refused(words, "unknown_program", &[("program", name.into()), ("known", known.into())]))?;
        if !sources.iter().any(|one| one == source) {
            sources.push(source.to_owned());
        }
    }
    named.clone_from(&sources);
    Ok(sources)
}

fn members(constraints: Option<&Constraints>, words: &Texts) -> Result<Option<Vec<&'static str>>, Failure> {
    let alliances = constraints.and_then(|constraints| constraints.alliances.as_deref()).unwrap_or_default();
    let mut members = Vec::new();
    for alliance in alliances {
        members.extend(programs::members(alliance).ok_or_else(|| invalid(words, "constraints.alliances"))?);
    }
    Ok((!members.is_empty()).then_some(members))
}

fn currency(said: Option<&str>, default: &str, words: &Texts) -> Result<String, Failure> {
    let code = said.unwrap_or(default).trim().to_ascii_uppercase();
    let fits = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    if fits { Ok(code) } else { Err(invalid(words, "currency")) }
}

fn currency_of_taxes(constraints: &Constraints, words: &Texts) -> Result<String, Failure> {
    if constraints.max_taxes.is_some_and(|most| !most.is_finite() || most < 0.0) {
        return Err(invalid(words, "constraints.max_taxes"));
    }
    currency(constraints.max_taxes_currency.as_deref(), "USD", words)
}

fn dates(told: &Args, today: Date, words: &Texts) -> Result<(Option<Date>, Option<Date>), Failure> {
    let read =
        |field: &str, text: Option<&str>| text.map(|text| text.trim().parse::<Date>().map_err(|_| invalid(words, field))).transpose();
    let out = read("depart_date", told.depart_date.as_deref())?;
    let back = read("return_date", told.return_date.as_deref())?;
    let last = today.checked_add(jiff::Span::new().days(MOST_DAYS)).unwrap_or(today);
    for day in [out, back].into_iter().flatten() {
        let said = [("day", words.date(day).into())];
        if day < today {
            return Err(refused(words, "date_in_past", &said));
        }
        if day > last {
            return Err(refused(words, "date_too_far", &said));
        }
    }
    if let (Some(out), Some(back)) = (out, back)
        && back < out
    {
        return Err(refused(words, "return_before_departure", &[]));
    }
    Ok((out, back))
}

/// The classes in words.
pub(super) fn cabin_word(words: &Texts, cabin: Cabin) -> String {
    words.text(&format!("flights-cabin-{}", cabin.lower()), &[])
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
