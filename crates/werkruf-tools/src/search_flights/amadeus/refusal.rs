//! Answers of Amadeus that are no offers: flat errors of the token endpoint, lists of errors of the API, numbers as text.

use std::time::Duration;

use serde_json::Value;

use crate::search_flights::trouble::{Reason, Trouble};

/// What to do about a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The token is no good any more: a new one, and once more.
    NewToken(Trouble),
    /// Too fast: once more after a pause.
    Pause(Trouble),
    /// As it is.
    Final(Trouble),
}

impl Refusal {
    /// What is said of it when nothing helped.
    pub fn into_trouble(self) -> Trouble {
        match self {
            Self::NewToken(trouble) | Self::Pause(trouble) | Self::Final(trouble) => trouble,
        }
    }
}

/// What a status and a body mean.
pub fn refusal(status: u16, retry_after: Option<Duration>, body: &str) -> Refusal {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = parsed.pointer("/errors/0").unwrap_or(&parsed);
    let code = error.get("code").and_then(|code| code.as_i64().or_else(|| code.as_str()?.trim().parse().ok()));
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let parameter = error.pointer("/source/parameter").and_then(Value::as_str).map(|name| format!(" ({name})")).unwrap_or_default();
    let words = field("detail").or_else(|| field("error_description")).or_else(|| field("title")).unwrap_or("no reason given");
    let cause = format!("Amadeus answered {status} {}: {words}{parameter}", code.unwrap_or(0));
    let trouble = |reason| Trouble::new(reason, cause.clone()).with_status(status);
    match (status, code) {
        (401, Some(38190 | 38192 | 38193)) => Refusal::NewToken(trouble(Reason::Credentials).worth_another(None)),
        (429, Some(38195)) => Refusal::Final(trouble(Reason::Quota)),
        (429, _) => Refusal::Pause(trouble(Reason::Quota).worth_another(retry_after)),
        (401 | 403, _) | (_, Some(38187)) => Refusal::Final(trouble(Reason::Credentials)),
        (200..=299, _) => Refusal::Final(trouble(Reason::BadResponse)),
        (400..=499, _) => Refusal::Final(trouble(Reason::Upstream).final_one()),
        _ => Refusal::Final(trouble(Reason::Upstream)),
    }
}
