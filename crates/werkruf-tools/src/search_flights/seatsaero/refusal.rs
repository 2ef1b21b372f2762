//! Answers of Seats.aero that are no flights: three shapes of error, two kinds of 429, and HTML with status 200.

use std::time::Duration;

use serde_json::Value;

use crate::search_flights::trouble::{Reason, Trouble};

/// What a body that is not used as an answer means.
pub fn refusal(status: u16, retry_after: Option<Duration>, body: &str) -> Trouble {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let field = |name: &str| parsed.as_ref().and_then(|value| value.get(name)).and_then(Value::as_str).map(str::to_owned);
    let words = field("message").or_else(|| field("error")).unwrap_or_else(|| body.chars().take(200).collect());
    let cause = format!("Seats.aero answered {status}: {words}");
    let trouble = match status {
        401 | 403 => Trouble::new(Reason::Credentials, cause),
        // Without a time to come back at, the day's calls are gone.
        429 if retry_after.is_none() => Trouble::new(Reason::Quota, cause),
        429 => Trouble::new(Reason::Quota, cause).worth_another(retry_after),
        200..=299 if parsed.is_some() => Trouble::new(Reason::BadResponse, cause).final_one(),
        200..=299 => Trouble::new(Reason::BadResponse, cause),
        400..=499 => Trouble::new(Reason::Upstream, cause).final_one(),
        _ => Trouble::new(Reason::Upstream, cause),
    };
    trouble.with_status(status)
}
