//! The Duffel client: one offer request whose response contains the offers.

use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Deadline};

use super::wire;
use crate::exchange::{ProviderResponse, exchange};
use crate::provider::{FlightProvider, FlightResults, OfferKind};
use crate::provider_error::{ProviderError, Reason};
use crate::query::Query;

/// The range of Duffel's `supplier_timeout`, in milliseconds.
const SUPPLIER_MS: (u64, u64) = (2_000, 60_000);
/// Time that is reserved for the response itself.
const MARGIN_MS: u64 = 1_000;

/// Address and credentials of Duffel.
#[derive(Debug, Clone)]
pub struct DuffelConfig {
    pub key: SecretString,
    /// Without a slash at the end.
    pub base_url: String,
}

/// The Duffel provider.
pub struct Duffel {
    client: reqwest::Client,
    config: DuffelConfig,
}

impl Duffel {
    pub fn new(config: DuffelConfig, client: reqwest::Client) -> Self {
        Self { client, config }
    }

    fn request(&self, query: &Query, deadline: Deadline) -> RequestBuilder {
        let left = u64::try_from(deadline.left().as_millis()).unwrap_or(u64::MAX);
        let supplier = left.saturating_sub(MARGIN_MS).clamp(SUPPLIER_MS.0, SUPPLIER_MS.1).to_string();
        self.client
            .post(format!("{}/air/offer_requests", self.config.base_url))
            .query(&[("return_offers", "true"), ("supplier_timeout", &supplier)])
            .bearer_auth(self.config.key.expose_secret())
            .header("duffel-version", "v2")
            .header("accept", "application/json")
            .json(&body(query))
    }
}

fn body(query: &Query) -> Value {
    let slice = |from: &str, to: &str, day| json!({"origin": from, "destination": to, "departure_date": day});
    let mut slices = vec![slice(&query.origin, &query.destination, query.out.wanted)];
    slices.extend(query.back.map(|days| slice(&query.destination, &query.origin, days.wanted)));
    let people = [("adult", query.adults), ("child", query.children), ("infant_without_seat", query.infants)];
    let passengers: Vec<Value> = people.into_iter().flat_map(|(kind, count)| (0..count).map(move |_| json!({"type": kind}))).collect();
    let mut data = json!({"slices": slices, "passengers": passengers, "cabin_class": query.cabin.lower()});
    if query.nonstop {
        data["max_connections"] = json!(0);
    }
    json!({"data": data})
}

impl FlightProvider for Duffel {
    fn name(&self) -> &'static str {
        "duffel"
    }

    fn offer_kind(&self) -> OfferKind {
        OfferKind::Cash
    }

    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>> {
        Box::pin(async move {
            let response = exchange(self.request(query, deadline)).await?;
            let body = if response.is_success() { response.json() } else { None };
            match body.as_ref().and_then(|body| wire::offers(body).ok()) {
                Some(cash) => Ok(FlightResults { cash, ..FlightResults::default() }),
                None => Err(refusal(&response)),
            }
        })
    }
}

fn refusal(response: &ProviderResponse) -> ProviderError {
    let body = response.json().unwrap_or(Value::Null);
    let reason_text = body.pointer("/errors/0/message").or_else(|| body.pointer("/errors/0/title")).and_then(Value::as_str);
    let cause = format!("Duffel answered {}: {}", response.status, reason_text.unwrap_or("no reason given"));
    let error = match response.status {
        401 | 403 => ProviderError::new(Reason::Credentials, cause),
        429 => ProviderError::new(Reason::Quota, cause).retryable_after(response.retry_after()),
        200..=299 => ProviderError::new(Reason::BadResponse, cause),
        400..=499 => ProviderError::new(Reason::Upstream, cause).not_retryable(),
        _ => ProviderError::new(Reason::Upstream, cause),
    };
    error.with_status(response.status)
}
