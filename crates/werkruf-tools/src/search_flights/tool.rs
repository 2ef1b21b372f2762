//! `search_flights` itself: from arguments and session state to an answer a person can read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Value, json};
use werkruf_contract::{Deadline, Effect, Failure, Invocation, Reply, State, Texts, Tool, ToolSpec};

use super::args::{Args, LAST, PENDING};
use super::flights::{Flights, Gathered};
use super::offer::{Award, Cash};
use super::provider::Report;
use super::request::{Read, Request};
use super::text::Told;
use super::{choose, propose, seed, shown};

/// Left of the call's own deadline for writing the answer.
const WRITING: Duration = Duration::from_millis(100);
/// What the tool may take beyond the search itself.
const BEYOND: Duration = Duration::from_secs(3);

/// The tool.
pub(super) struct SearchFlights(pub(super) Arc<Flights>);

/// What it answers. The shape is the same whether flights were found or something is missing.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    kind: &'static str,
    message: String,
    sandbox: bool,
    request: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<&'static str>,
    raw: Value,
    awards: Vec<Award>,
    awards_return: Vec<Award>,
    cash: Vec<Cash>,
    providers: Vec<Report>,
}

impl Tool for SearchFlights {
    type Args = Args;
    type Output = Answer;

    fn spec(&self) -> ToolSpec {
        let description = "Searches flights for miles (award flights, Seats.aero) and flights for money. Give what the person said and leave out the rest: the tool asks for what is missing and remembers what it was given. Dates are YYYY-MM-DD, airports IATA codes. For a change of the last search set reuse_last_request and give only what changes.";
        let mut spec = ToolSpec::new("search_flights", description, Effect::Read);
        spec.timeout = self.0.deadline() + BEYOND;
        // A search that found nothing says why by itself; asking again would spend the quota again.
        spec.attempts = 1;
        spec.answers_directly = true;
        // Offers for many travellers are handed on as they came.
        spec.max_response_bytes = 8 * 1024 * 1024;
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Answer>, Failure> {
        let words = Texts::of(invocation.context.locale.as_deref().unwrap_or(&invocation.principal.locale));
        let zone = TimeZone::get(&invocation.principal.time_zone).unwrap_or(TimeZone::UTC);
        let today = self.0.clock().now().to_zoned(zone).date();
        let request = match Request::read(args.completed(&invocation.state), today, &words)? {
            Read::Whole(request) => request,
            Read::Lacking { known, missing } => return Ok(question(&known, missing, &words)),
        };
        let own = Deadline::after(invocation.deadline.left().saturating_sub(WRITING));
        let deadline = Deadline::after(self.0.deadline()).earlier(own);
        let search = self.0.search(invocation.principal.tenant_id, &request.query, request.award_only, deadline);
        let gathered = tokio::select! {
            biased;
            gathered = search => gathered,
            () = invocation.cancel.raised() => return Err(Failure::fatal("canceled", "").nothing_happened()),
        };
        Ok(self.answer(&request, gathered, &words))
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        propose::search(text, locale, today)
    }
}

impl SearchFlights {
    fn answer(&self, request: &Request, gathered: Gathered, words: &Texts) -> Reply<Answer> {
        let raw_amadeus =
            gathered.parts.iter().find(|(name, _)| *name == "amadeus").map(|(_, found)| seed::amadeus_result(found, request.max_results));
        let has_more = gathered.parts.iter().any(|(_, found)| found.has_more);
        let source_counts: BTreeMap<String, u64> =
            gathered.reports.iter().map(|report| (report.name.clone(), u64::try_from(report.count).unwrap_or(u64::MAX))).collect();
        let awarding = gathered.parts.iter().any(|(name, _)| matches!(*name, "seatsaero" | "sandbox"));
        let (mut awards, mut back, mut cash) = (Vec::new(), Vec::new(), Vec::new());
        for (_, found) in gathered.parts {
            awards.extend(found.awards);
            back.extend(found.awards_return);
            cash.extend(found.cash);
        }
        let (awards, awards_return) = (choose::awards(awards, request), choose::awards(back, request));
        let cash = choose::cash(cash, request);
        let told = Told {
            request,
            awards: &awards,
            awards_return: &awards_return,
            cash: &cash,
            reports: &gathered.reports,
            sandbox: gathered.sandbox,
            has_cash: self.0.has_cash(),
        };
        let message = told.text(words);
        let raw_seats = awarding.then(|| seed::seats_result(&awards, &awards_return, &request.query, has_more, words));
        let patch = State::from_iter([
            (LAST.to_owned(), request.remembered()),
            (PENDING.to_owned(), Value::Null),
            (shown::SHOWN.to_owned(), shown::list(&told, words)),
        ]);
        let found = !(awards.is_empty() && awards_return.is_empty() && cash.is_empty());
        let mut reply = Reply::new(Answer {
            kind: if found { "results" } else { "nothing" },
            message: message.clone(),
            sandbox: gathered.sandbox,
            request: request.told(),
            missing: Vec::new(),
            raw: json!({"amadeusResult": raw_amadeus, "seatsResult": raw_seats}),
            awards,
            awards_return,
            cash,
            providers: gathered.reports,
        });
        reply.message = Some(message);
        reply.state_patch = Some(patch);
        reply.source_counts = Some(source_counts);
        reply
    }
}

/// Asks for exactly what is missing and remembers the rest.
fn question(known: &Args, missing: Vec<&'static str>, words: &Texts) -> Reply<Answer> {
    let names: Vec<String> = missing.iter().map(|field| words.text(&format!("flights-ask-{field}"), &[])).collect();
    let message = words.text("flights-ask", &[("missing", names.join(", ").into())]);
    let mut reply = Reply::new(Answer {
        kind: "question",
        message: message.clone(),
        sandbox: false,
        request: known.told(),
        missing,
        raw: json!({"amadeusResult": null, "seatsResult": null}),
        awards: Vec::new(),
        awards_return: Vec::new(),
        cash: Vec::new(),
        providers: Vec::new(),
    });
    reply.message = Some(message);
    reply.state_patch = Some(State::from_iter([(PENDING.to_owned(), known.told())]));
    reply
}
