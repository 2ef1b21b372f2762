//! The endpoints `seatsaero-flight-search` and `amadeus-flight-search`: one provider each, in the legacy request and response format.

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_contract::{Deadline, ErrorCode, Failure, Texts, ToolErrorType, Uuid};

use super::args::{Args, Constraints};
use super::cabin::Cabin;
use super::flights::Flights;
use super::provider_error::{ProviderError, Reason};
use super::request::{ParsedRequest, Request};
use super::{choose, legacy};

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
    flexibility: Option<u8>,
    include_return_awards: Option<bool>,
    max_results: Option<u8>,
    max: Option<u8>,
    non_stop: Option<bool>,
    currency: Option<String>,
    currency_code: Option<String>,
}

/// The caller's tenant, current date and texts.
pub struct Caller {
    pub tenant_id: Uuid,
    pub today: Date,
    pub texts: Texts,
}

impl Flights {
    /// `seatsaero-flight-search`: `{success, results, returnResults?, stats}`.
    pub async fn seats_function(&self, body: Value, caller: &Caller) -> Result<Value, Failure> {
        let request = read(body, 5, caller)?;
        let found = self.search_one("seatsaero", caller.tenant_id, &request.query, Deadline::after(self.deadline())).await;
        let (found, sandbox) = found.map_err(|error| failure(error, &caller.texts))?;
        let (awards, back) = (choose::awards(found.awards, &request), choose::awards(found.awards_return, &request));
        let mut output = legacy::seats_result(&awards, &back, &request.query, found.has_more, &caller.texts);
        if sandbox {
            output["sandbox"] = json!(true);
            output["notice"] = json!(caller.texts.text("flights-sandbox", &[]));
        }
        Ok(output)
    }

    /// `amadeus-flight-search`: `{success, results, dictionaries}`.
    pub async fn amadeus_function(&self, body: Value, caller: &Caller) -> Result<Value, Failure> {
        let request = read(body, 10, caller)?;
        let found = self.search_one("amadeus", caller.tenant_id, &request.query, Deadline::after(self.deadline())).await;
        match found {
            Ok((found, false)) => Ok(legacy::amadeus_result(&found, request.max_results)),
            // Sandbox flights have no offers as received from Amadeus.
            Ok((_, true)) => Err(failure(ProviderError::new(Reason::NotConfigured, "no key for amadeus is set"), &caller.texts)),
            Err(error) => Err(failure(error, &caller.texts)),
        }
    }
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
        flexibility: Some(body.flexibility.unwrap_or(0).min(3)),
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
