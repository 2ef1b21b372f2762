//! The endpoints `seatsaero-flight-search` and `amadeus-flight-search`: one provider each, in the legacy request and response format.

use std::sync::Arc;

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Deadline, ErrorCode, Failure, Invocation, Reply, Texts, Tool, ToolErrorType, ToolObject, ToolSpec};

use super::args::{Args, Constraints, MAX_FLEXIBILITY};
use super::cabin::Cabin;
use super::flights::Flights;
use super::offer::Award;
use super::provider_error::{ProviderError, Reason};
use super::request::{ParsedRequest, Request};
use super::texts::TEXTS;
use super::tool::{SEARCH_FLIGHTS, SearchFlights};
use super::{choose, legacy};

/// The tool of `/functions/v1/seatsaero-flight-search`.
pub const SEATSAERO_FUNCTION: &str = "seatsaero_flight_search";
/// The tool of `/functions/v1/amadeus-flight-search`.
pub const AMADEUS_FUNCTION: &str = "amadeus_flight_search";

/// So many flights of each direction get booking links: each costs a call of the day's quota.
const LINKED_FLIGHTS: usize = 5;

/// The request body of both endpoints. Missing fields get defaults; unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    origin: Option<String>,
    destination: Option<String>,
    departure_date: Option<String>,
    return_date: Option<String>,
    travel_class: Option<String>,
    adults: Option<u32>,
    children: Option<u32>,
    infants: Option<u32>,
    flexibility: Option<i64>,
    include_return_awards: Option<bool>,
    max_results: Option<u8>,
    max: Option<u8>,
    non_stop: Option<bool>,
    currency: Option<String>,
    currency_code: Option<String>,
}

/// The caller's current date and texts.
struct Caller {
    today: Date,
    texts: Texts,
}

/// Which of the endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Seatsaero,
    Amadeus,
}

/// An endpoint as a tool, so that its calls have rows, rights and limits like every other call.
pub(super) struct FlightFunction {
    flights: Arc<Flights>,
    endpoint: Endpoint,
    spec: ToolSpec,
    parameters: Value,
}

impl FlightFunction {
    /// The tool of `seatsaero-flight-search`.
    pub(super) fn seatsaero(flights: &Arc<Flights>) -> Self {
        Self::new(flights, Endpoint::Seatsaero, SEATSAERO_FUNCTION)
    }

    /// The tool of `amadeus-flight-search`.
    pub(super) fn amadeus(flights: &Arc<Flights>) -> Self {
        Self::new(flights, Endpoint::Amadeus, AMADEUS_FUNCTION)
    }

    fn new(flights: &Arc<Flights>, endpoint: Endpoint, name: &'static str) -> Self {
        let mut spec = ToolSpec { name: name.into(), ..SearchFlights(Arc::clone(flights)).spec() };
        spec.direct_form_of = Some(SEARCH_FLIGHTS.into());
        spec.answers_directly = false;
        // Programs of the seed send more fields than the endpoints read.
        Self { flights: Arc::clone(flights), endpoint, spec, parameters: json!({"type": "object"}) }
    }

    async fn search(&self, body: Value, invocation: &Invocation) -> Result<Value, Failure> {
        let today = self.flights.clock().now().to_zoned(invocation.time_zone()).date();
        let caller = Caller { today, texts: invocation.texts().with(&TEXTS) };
        let (provider, results) = match self.endpoint {
            Endpoint::Seatsaero => ("seatsaero", 5),
            Endpoint::Amadeus => ("amadeus", 10),
        };
        let request = read(body, results, &caller)?;
        let deadline = Deadline::after(self.flights.deadline()).earlier(invocation.deadline);
        let found = self.flights.search_one(provider, invocation.principal.tenant_id, &request.query, deadline).await;
        let (found, sandbox) = found.map_err(|error| failure(error, &caller.texts))?;
        match self.endpoint {
            Endpoint::Seatsaero => {
                let mut awards = [choose::awards(found.awards, &request), choose::awards(found.awards_return, &request)];
                let firsts = awards.iter_mut().flat_map(|awards| awards.iter_mut().take(LINKED_FLIGHTS));
                self.flights.add_booking_links(invocation.principal.tenant_id, firsts, deadline).await;
                let [out, back] = &awards;
                Ok(seats_answer([out, back], found.has_more, sandbox, &request, &caller.texts))
            }
            Endpoint::Amadeus if !sandbox => Ok(legacy::amadeus_result(&found, request.max_results)),
            // Sandbox flights have no offers as received from Amadeus.
            Endpoint::Amadeus => Err(failure(ProviderError::new(Reason::NotConfigured, "no key for amadeus is set"), &caller.texts)),
        }
    }
}

impl ToolObject for FlightFunction {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = Box::pin(self.search(args, &invocation)) => Ok(Reply::new(answer?)),
                () = invocation.cancel.raised() => Err(Failure::fatal(ErrorCode::Canceled, "").nothing_happened()),
            }
        })
    }
}

/// `{success, results, returnResults?, stats}`.
fn seats_answer([out, back]: [&[Award]; 2], has_more: bool, sandbox: bool, request: &Request, texts: &Texts) -> Value {
    let mut output = legacy::seats_result(out, back, &request.query, has_more, texts);
    if sandbox {
        output["sandbox"] = json!(true);
        output["notice"] = json!(texts.text("flights-sandbox", &[]));
    }
    output
}

fn read(body: Value, results: u8, caller: &Caller) -> Result<Request, Failure> {
    let body: Body = serde_json::from_value(body)
        .map_err(|error| Failure::validation(ErrorCode::InvalidArguments, format!("The body does not fit: {error}")))?;
    let class = body.travel_class.as_deref().unwrap_or("ECONOMY");
    let cabin = Cabin::read(class).ok_or_else(|| {
        Failure::validation(ErrorCode::InvalidArguments, "travelClass is one of ECONOMY, PREMIUM_ECONOMY, BUSINESS and FIRST.")
    })?;
    let args = Args {
        origin: body.origin,
        destination: body.destination,
        depart_date: body.departure_date,
        return_date: body.return_date.filter(|day| !day.is_empty() && body.include_return_awards.unwrap_or(true)),
        pax: body.adults,
        children: body.children,
        infants: body.infants,
        cabin: Some(cabin),
        flexibility: Some(body.flexibility.unwrap_or(0).clamp(0, MAX_FLEXIBILITY)),
        currency: body.currency.or(body.currency_code),
        max_results: Some(body.max_results.or(body.max).unwrap_or(results).clamp(1, 20)),
        constraints: body.non_stop.map(|direct| Constraints { nonstop_only: Some(direct), ..Constraints::default() }),
        ..Args::default()
    };
    match Request::read(args, caller.today, &caller.texts)? {
        ParsedRequest::Complete(request) => Ok(*request),
        ParsedRequest::Incomplete { missing, .. } => {
            let names: Vec<&str> = missing.iter().map(|name| if *name == "depart_date" { "departureDate" } else { *name }).collect();
            Err(Failure::validation(ErrorCode::InvalidArguments, format!("These fields are missing: {}.", names.join(", "))))
        }
    }
}

/// Converts a provider error into a failure of the whole call, because only one provider was searched.
fn failure(error: ProviderError, texts: &Texts) -> Failure {
    let (kind, code) = match error.reason {
        Reason::Quota => (ToolErrorType::RateLimit, "quota"),
        Reason::Timeout => (ToolErrorType::Timeout, "timeout"),
        Reason::Credentials => (ToolErrorType::Upstream, "credentials"),
        Reason::BadResponse => (ToolErrorType::Upstream, "bad_response"),
        Reason::NotConfigured | Reason::AwardOnly => (ToolErrorType::Upstream, "not_configured"),
        Reason::Upstream => (ToolErrorType::Upstream, "upstream_error"),
    };
    let message = texts.text(super::summary::reason_key(error.reason), &[]);
    tracing::warn!(reason = ?error.reason, cause = %error.cause, "a flight search endpoint failed");
    Failure::new(kind, code, message).because(error.cause).retry_after(error.retry_after)
}
