//! The `search_flights` tool: turns arguments and session state into a search and its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use werkruf_contract::{Deadline, Effect, ErrorCode, Failure, Invocation, Reply, State, Texts, Tool, ToolSpec};

use super::args::{Args, DEFAULTS, LAST, PENDING};
use super::flights::{CombinedResults, Flights};
use super::offer::{Award, Cash};
use super::provider::Report;
use super::request::{ParsedRequest, Request};
use super::summary::SearchSummary;
use super::texts::TEXTS;
use super::{choose, last_results, legacy, propose};

/// Time before the call's deadline that is reserved for rendering the answer.
const WRITE_MARGIN: Duration = Duration::from_millis(100);
/// The tool's timeout beyond the deadline of the search.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(3);

/// The name of the tool.
pub(super) const SEARCH_FLIGHTS: &str = "search_flights";

pub(super) struct SearchFlights(pub(super) Arc<Flights>);

/// The result. It has the same fields whether flights were found or arguments are missing.
#[derive(Debug, Serialize, JsonSchema)]
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

    fn owns_state(&self) -> &'static [&'static str] {
        &[PENDING, LAST, last_results::LAST_RESULTS]
    }

    fn spec(&self) -> ToolSpec {
        let description = "Searches flights for miles (award flights, Seats.aero) and flights for money. Give what the person said and leave out the rest: the tool asks for what is missing and remembers what it was given. Dates are YYYY-MM-DD, airports IATA codes. For a change of the last search set reuse_last_request and give only what changes.";
        let mut spec = ToolSpec::new(SEARCH_FLIGHTS, description, Effect::Read);
        spec.timeout = Some(self.0.deadline() + EXTRA_TIMEOUT);
        // A search without results states its reasons, and a retry would spend the provider quotas again.
        spec.attempts = 1;
        spec.answers_directly = true;
        spec.defaults = &DEFAULTS;
        // Too many passengers or a day in the past are refused in the user's language.
        spec.judges_values = true;
        // Amadeus offers for many travellers are large and are returned as received.
        spec.max_response_bytes = 8 * 1024 * 1024;
        spec.texts = Some(&TEXTS);
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Answer>, Failure> {
        let texts = invocation.texts().with(&TEXTS);
        let today = self.0.clock().now().to_zoned(invocation.time_zone()).date();
        let args = args.completed(&invocation.state, invocation.context.defaults.get(SEARCH_FLIGHTS));
        let request = match Request::read(args, today, &texts)? {
            ParsedRequest::Complete(request) => request,
            ParsedRequest::Incomplete { known, missing } => return Ok(missing_fields_reply(&known, missing, &texts)),
        };
        let own = Deadline::after(invocation.deadline.left().saturating_sub(WRITE_MARGIN));
        let deadline = Deadline::after(self.0.deadline()).earlier(own);
        let search = self.0.search(invocation.principal.tenant_id, &request.query, request.award_only, deadline);
        let combined = tokio::select! {
            biased;
            combined = search => combined,
            () = invocation.cancel.raised() => return Err(Failure::fatal(ErrorCode::Canceled, "").nothing_happened()),
        };
        Ok(self.answer(&request, combined, &texts))
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        propose::search(text, locale, today)
    }

    fn follow_up(&self, result: &Value, text: &str, locale: &str, today: Date) -> Option<Args> {
        propose::follow_up(result, text, locale, today)
    }
}

impl SearchFlights {
    fn answer(&self, request: &Request, combined: CombinedResults, texts: &Texts) -> Reply<Answer> {
        let raw_amadeus = combined
            .results
            .iter()
            .find(|(name, _)| *name == "amadeus")
            .map(|(_, found)| legacy::amadeus_result(found, request.max_results));
        let has_more = combined.results.iter().any(|(_, found)| found.has_more);
        let source_counts: BTreeMap<String, u64> =
            combined.reports.iter().map(|report| (report.name.clone(), u64::try_from(report.count).unwrap_or(u64::MAX))).collect();
        let has_award_source = combined.results.iter().any(|(name, _)| matches!(*name, "seatsaero" | "sandbox"));
        let (mut awards, mut back, mut cash) = (Vec::new(), Vec::new(), Vec::new());
        for (_, found) in combined.results {
            awards.extend(found.awards);
            back.extend(found.awards_return);
            cash.extend(found.cash);
        }
        let (awards, awards_return) = (choose::awards(awards, request), choose::awards(back, request));
        let cash = choose::cash(cash, request);
        let summary = SearchSummary {
            request,
            awards: &awards,
            awards_return: &awards_return,
            cash: &cash,
            reports: &combined.reports,
            sandbox: combined.sandbox,
            has_cash: self.0.has_cash(),
        };
        let message = summary.text(texts);
        let raw_seats = has_award_source.then(|| legacy::seats_result(&awards, &awards_return, &request.query, has_more, texts));
        let patch = State::from_iter([
            (LAST.to_owned(), request.remembered()),
            (PENDING.to_owned(), Value::Null),
            (last_results::LAST_RESULTS.to_owned(), last_results::list(&summary, texts)),
        ]);
        let found = !(awards.is_empty() && awards_return.is_empty() && cash.is_empty());
        let mut reply = Reply::new(Answer {
            kind: if found { "results" } else { "nothing" },
            message: message.clone(),
            sandbox: combined.sandbox,
            request: request.to_json(),
            missing: Vec::new(),
            raw: json!({"amadeusResult": raw_amadeus, "seatsResult": raw_seats}),
            awards,
            awards_return,
            cash,
            providers: combined.reports,
        });
        reply.message = Some(message);
        reply.state_patch = Some(patch);
        reply.source_counts = Some(source_counts);
        reply
    }
}

/// Asks for the missing arguments and stores the others in the session state.
fn missing_fields_reply(known: &Args, missing: Vec<&'static str>, texts: &Texts) -> Reply<Answer> {
    let names: Vec<String> = missing.iter().map(|field| texts.text(&format!("flights-ask-{field}"), &[])).collect();
    let message = texts.text("flights-ask", &[("missing", names.join(", ").into())]);
    let mut reply = Reply::new(Answer {
        kind: "question",
        message: message.clone(),
        sandbox: false,
        request: known.to_json(),
        missing,
        raw: json!({"amadeusResult": null, "seatsResult": null}),
        awards: Vec::new(),
        awards_return: Vec::new(),
        cash: Vec::new(),
        providers: Vec::new(),
    });
    reply.message = Some(message);
    reply.state_patch = Some(State::from_iter([(PENDING.to_owned(), known.to_json())]));
    reply
}
