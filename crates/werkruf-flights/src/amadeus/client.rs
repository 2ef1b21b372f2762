//! The Amadeus client: a shared token, a rate limiter, one token renewal and few pauses per search.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Clock, Deadline};
use werkruf_store::{ProviderAccount, ProviderTokens, Seal};

use super::rate_limiter::RateLimiter;
use super::refusal::{Refusal, refusal};
use super::token::{IssuedToken, TokenSource};
use super::wire;
use crate::exchange::{ProviderResponse, exchange};
use crate::provider::{FlightProvider, FlightResults, OfferKind};
use crate::provider_error::{ProviderError, Reason};
use crate::query::Query;

/// More offers than are shown, because some are codeshares and some do not meet the constraints.
const MAX_OFFERS: &str = "50";
const MAX_PAUSES: u32 = 3;
/// The pause after a 429 without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_millis(150);

/// The characters to percent-encode in a form body: all but unreserved ones.
const FORM_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Address and credentials of Amadeus.
#[derive(Debug, Clone)]
pub struct AmadeusConfig {
    pub key: String,
    pub secret: SecretString,
    /// `test` or `prod`; part of the stored token's name.
    pub environment: String,
    /// Without a slash at the end.
    pub base_url: String,
}

/// The Amadeus provider.
pub struct Amadeus {
    client: reqwest::Client,
    config: AmadeusConfig,
    tokens: TokenSource,
    rate_limiter: RateLimiter,
}

impl Amadeus {
    pub fn new(
        config: AmadeusConfig,
        client: reqwest::Client,
        accounts: Arc<dyn ProviderTokens>,
        seal: Option<Seal>,
        clock: Clock,
    ) -> Self {
        let account = ProviderAccount { provider: "amadeus".to_owned(), account: config.environment.clone() };
        let rate_limiter = RateLimiter::for_environment(&config.environment);
        Self { client, tokens: TokenSource::new(account, accounts, seal, clock), rate_limiter, config }
    }

    async fn offers(&self, query: &Query, deadline: Deadline) -> Result<Value, ProviderError> {
        let (mut renewed, mut pauses) = (false, 0);
        loop {
            self.rate_limiter.wait().await;
            // Read the token after the wait: another search may have renewed the token in the meantime.
            let token = self.tokens.token(None, || self.fetch_token()).await?;
            let response = exchange(self.request(query, &token)).await?;
            if let Some(body) = offers_body(&response) {
                return Ok(body);
            }
            match refusal(response.status, response.retry_after(), &response.text()) {
                Refusal::NewToken(_) if !renewed => {
                    renewed = true;
                    self.tokens.token(Some(&token), || self.fetch_token()).await?;
                }
                Refusal::Pause(error) if pauses < MAX_PAUSES => {
                    pauses += 1;
                    let wait = error.retry_after.unwrap_or(DEFAULT_PAUSE * pauses);
                    if wait >= deadline.left() {
                        return Err(error);
                    }
                    tokio::time::sleep(wait).await;
                }
                other => return Err(other.into_error()),
            }
        }
    }

    /// Does not wait for the rate limiter, because all searches wait for the token.
    async fn fetch_token(&self) -> Result<IssuedToken, ProviderError> {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", self.config.key.as_str()),
            ("client_secret", self.config.secret.expose_secret()),
        ];
        let body = form.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect::<Vec<_>>().join("&");
        let request = self
            .client
            .post(format!("{}/v1/security/oauth2/token", self.config.base_url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let response = exchange(request).await?;
        let body = if response.is_success() { response.json() } else { None };
        let issued = body.as_ref().and_then(|body| Some((body.get("access_token")?.as_str()?, body.get("expires_in")?.as_i64()?)));
        match issued {
            Some((token, seconds)) if !token.is_empty() => {
                Ok(IssuedToken { token: SecretString::from(token), lifetime: SignedDuration::from_secs(seconds.clamp(0, 86_400)) })
            }
            // The body may contain a token, so the error does not quote it.
            _ if response.is_success() => {
                Err(ProviderError::new(Reason::BadResponse, "the token endpoint sent no token").with_status(response.status))
            }
            _ => Err(refusal(response.status, response.retry_after(), &response.text()).into_error()),
        }
    }

    fn request(&self, query: &Query, token: &SecretString) -> RequestBuilder {
        let day = query.out.wanted.to_string();
        let back = query.back.map(|days| days.wanted.to_string());
        let (adults, children, infants) = (query.adults.to_string(), query.children.to_string(), query.infants.to_string());
        let mut parameters: Vec<(&str, &str)> = vec![
            ("originLocationCode", &query.origin),
            ("destinationLocationCode", &query.destination),
            ("departureDate", &day),
            ("adults", &adults),
            ("travelClass", query.cabin.upper()),
            ("currencyCode", &query.currency),
            ("max", MAX_OFFERS),
        ];
        parameters.extend(back.as_deref().map(|day| ("returnDate", day)));
        parameters.extend((query.children > 0).then_some(("children", children.as_str())));
        parameters.extend((query.infants > 0).then_some(("infants", infants.as_str())));
        parameters.extend(query.nonstop.then_some(("nonStop", "true")));
        self.client
            .get(format!("{}/v2/shopping/flight-offers", self.config.base_url))
            .query(&parameters)
            .bearer_auth(token.expose_secret())
            .header("accept", "application/vnd.amadeus+json")
    }
}

impl FlightProvider for Amadeus {
    fn name(&self) -> &'static str {
        "amadeus"
    }

    fn offer_kind(&self) -> OfferKind {
        OfferKind::Cash
    }

    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>> {
        Box::pin(async move {
            let mut body = self.offers(query, deadline).await?;
            let cash = wire::offers(&body).map_err(|fault| ProviderError::new(Reason::BadResponse, fault))?;
            let received = json!({"data": body["data"].take(), "dictionaries": body["dictionaries"].take()});
            Ok(FlightResults { cash, received: Some(received), ..FlightResults::default() })
        })
    }
}

fn offers_body(response: &ProviderResponse) -> Option<Value> {
    let body = if response.is_success() { response.json()? } else { return None };
    body.get("data").is_some_and(Value::is_array).then_some(body)
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, FORM_ENCODE_SET).to_string()
}
