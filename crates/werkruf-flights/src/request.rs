//! Validates a search request. Everything that can be checked without a provider is checked here.

use jiff::civil::Date;
use serde_json::{Value, json};
use werkruf_contract::{ErrorCode, Failure, TextArg, Texts};

use super::args::{Args, Constraints, MAX_FLEXIBILITY};
use super::cabin::Cabin;
use super::query::{Days, Query};
use super::{airports, currencies, programs};

/// Airlines sell tickets about a year ahead.
const MAX_DAYS_AHEAD: i64 = 361;
const MAX_PEOPLE: u32 = 9;
/// The default number of flights of each kind.
const DEFAULT_RESULTS: u8 = 5;
const MAX_RESULTS: u8 = 20;

/// A validated request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) query: Query,
    pub(super) award_only: bool,
    /// Whether awards are listed before cash flights.
    pub(super) awards_first: bool,
    pub(super) max_taxes: Option<(f64, String)>,
    /// Airlines of the requested alliances; `None` means all airlines.
    pub(super) members: Option<Vec<&'static str>>,
    pub(super) max_results: usize,
    args: Args,
}

/// A complete request, or the arguments so far and the missing ones.
pub(super) enum ParsedRequest {
    Complete(Box<Request>),
    Incomplete { known: Box<Args>, missing: Vec<&'static str> },
}

impl Request {
    /// Validates the arguments. Invalid arguments are refused even if other arguments are still missing.
    pub(super) fn read(args: Args, today: Date, texts: &Texts) -> Result<ParsedRequest, Failure> {
        let mut args = args;
        for place in [&mut args.origin, &mut args.destination].into_iter().flatten() {
            *place = airports::read(place).ok_or_else(|| refused(texts, "unknown_airport", &[("place", place.clone().into())]))?;
        }
        if let (Some(origin), Some(destination)) = (&args.origin, &args.destination)
            && origin == destination
        {
            return Err(refused(texts, "same_airports", &[("place", origin.clone().into())]));
        }
        people(&args, texts)?;
        if !(1..=MAX_RESULTS).contains(&args.max_results.unwrap_or(DEFAULT_RESULTS)) {
            return Err(invalid(texts, "max_results"));
        }
        let sources = sources(&mut args, texts)?;
        let members = members(args.constraints.as_ref(), texts)?;
        let currency = currency(args.currency.as_deref(), "EUR", texts)?;
        let constraints = args.constraints.clone().unwrap_or_default();
        let taxes_in = currency_of_taxes(&constraints, texts)?;
        let (out, back) = dates(&args, today, texts)?;
        let missing = args.missing();
        let (Some(origin), Some(destination), Some(out), Some(cabin)) = (args.origin.clone(), args.destination.clone(), out, args.cabin)
        else {
            return Ok(ParsedRequest::Incomplete { known: Box::new(args), missing });
        };
        let flexibility = u8::try_from(args.flexibility.unwrap_or(0).clamp(0, MAX_FLEXIBILITY)).unwrap_or(0);
        let award_only = args.award_only.unwrap_or(false);
        let query = Query {
            origin,
            destination,
            out: Days::around(out, flexibility, today),
            back: back.map(|day| Days::around(day, flexibility, today)),
            adults: args.pax.unwrap_or(1),
            children: args.children.unwrap_or(0),
            infants: args.infants.unwrap_or(0),
            cabin,
            nonstop: constraints.nonstop_only.unwrap_or(false),
            sources,
            currency,
        };
        let awards_first = award_only || !query.sources.is_empty();
        let max_taxes = constraints.max_taxes.map(|most| (most, taxes_in));
        let max_results = usize::from(args.max_results.unwrap_or(DEFAULT_RESULTS));
        Ok(ParsedRequest::Complete(Box::new(Self { query, award_only, awards_first, max_taxes, members, max_results, args })))
    }

    /// The request for the session state: a fixed set of fields, and all other given arguments.
    pub(super) fn remembered(&self) -> Value {
        let query = &self.query;
        let mut fields = json!({
            "origin": query.origin, "destination": query.destination, "depart_date": query.out.wanted,
            "return_date": query.back.map(|days| days.wanted), "cabin": query.cabin, "pax": query.adults, "award_only": self.award_only,
        });
        if let (Some(known), Some(given)) = (fields.as_object_mut(), self.args.to_json().as_object()) {
            for (name, value) in given {
                known.entry(name).or_insert_with(|| value.clone());
            }
        }
        fields
    }

    /// The request with all defaults filled in, for the result.
    pub(super) fn to_json(&self) -> Value {
        let query = &self.query;
        let mut fields = self.remembered();
        let more = json!({
            "children": query.children, "infants": query.infants, "currency": query.currency, "max_results": self.max_results,
            "flexibility": self.args.flexibility.unwrap_or(0), "loyalty_programs": query.sources,
            "constraints": self.args.constraints.clone().unwrap_or_default(),
        });
        if let (Some(known), Value::Object(more)) = (fields.as_object_mut(), more) {
            known.extend(more);
        }
        fields
    }
}

/// The validation failure with this code, in the user's language.
fn refused(texts: &Texts, code: &'static str, parts: &[(&str, TextArg<'_>)]) -> Failure {
    Failure::validation(code, texts.text(&format!("flights-{code}"), parts))
}

fn invalid(texts: &Texts, field: &str) -> Failure {
    Failure::validation(ErrorCode::InvalidArguments, texts.text("flights-invalid", &[("field", field.into())]))
}

fn people(args: &Args, texts: &Texts) -> Result<(), Failure> {
    let (adults, children, infants) = (args.pax.unwrap_or(1), args.children.unwrap_or(0), args.infants.unwrap_or(0));
    if adults == 0 {
        return Err(invalid(texts, "pax"));
    }
    if adults.saturating_add(children) > MAX_PEOPLE || infants > adults {
        return Err(refused(texts, "too_many_passengers", &[("most", i64::from(MAX_PEOPLE).into())]));
    }
    Ok(())
}

/// The programs by their Seats.aero names. The names in `args` are replaced too.
fn sources(args: &mut Args, texts: &Texts) -> Result<Vec<String>, Failure> {
    let Some(named) = &mut args.loyalty_programs else { return Ok(Vec::new()) };
    let mut sources: Vec<String> = Vec::new();
    for name in named.iter() {
        let known = programs::sources().join(", ");
        let source = programs::source(name)
            .ok_or_else(|| refused(texts, "unknown_program", &[("program", name.into()), ("known", known.into())]))?;
        if !sources.iter().any(|one| one == source) {
            sources.push(source.to_owned());
        }
    }
    named.clone_from(&sources);
    Ok(sources)
}

fn members(constraints: Option<&Constraints>, texts: &Texts) -> Result<Option<Vec<&'static str>>, Failure> {
    let alliances = constraints.and_then(|constraints| constraints.alliances.as_deref()).unwrap_or_default();
    let mut members = Vec::new();
    for alliance in alliances {
        members.extend(programs::members(alliance).ok_or_else(|| invalid(texts, "constraints.alliances"))?);
    }
    Ok((!members.is_empty()).then_some(members))
}

fn currency(given: Option<&str>, default: &str, texts: &Texts) -> Result<String, Failure> {
    let named = given.unwrap_or(default);
    let known = currencies::read(named).map(str::to_owned);
    known.ok_or_else(|| refused(texts, "unknown_currency", &[("currency", named.into())]))
}

fn currency_of_taxes(constraints: &Constraints, texts: &Texts) -> Result<String, Failure> {
    if constraints.max_taxes.is_some_and(|most| !most.is_finite() || most < 0.0) {
        return Err(invalid(texts, "constraints.max_taxes"));
    }
    currency(constraints.max_taxes_currency.as_deref(), "USD", texts)
}

fn dates(args: &Args, today: Date, texts: &Texts) -> Result<(Option<Date>, Option<Date>), Failure> {
    let read =
        |field: &str, text: Option<&str>| text.map(|text| text.trim().parse::<Date>().map_err(|_| invalid(texts, field))).transpose();
    let out = read("depart_date", args.depart_date.as_deref())?;
    let back = read("return_date", args.return_date.as_deref())?;
    let last = today.checked_add(jiff::Span::new().days(MAX_DAYS_AHEAD)).unwrap_or(today);
    for day in [out, back].into_iter().flatten() {
        let given = [("day", texts.date(day).into())];
        if day < today {
            return Err(refused(texts, "date_in_past", &given));
        }
        if day > last {
            return Err(refused(texts, "date_too_far", &given));
        }
    }
    if let (Some(out), Some(back)) = (out, back)
        && back < out
    {
        return Err(refused(texts, "return_before_departure", &[]));
    }
    Ok((out, back))
}

/// The name of the cabin class in the user's language.
pub(super) fn cabin_text(texts: &Texts, cabin: Cabin) -> String {
    texts.text(&format!("flights-cabin-{}", cabin.lower()), &[])
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
