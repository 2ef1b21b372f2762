//! Asks Amadeus: a shared token, a measured pace, one renewal and few pauses.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Clock, Deadline};
use werkruf_store::{ProviderAccount, ProviderAccounts};

use super::pace::Pace;
use super::refusal::{Refusal, refusal};
use super::token::{Granted, Tokens};
use super::wire;
use crate::search_flights::exchange::{Heard, exchange};
use crate::search_flights::provider::{FlightProvider, Found, Side};
use crate::search_flights::query::Query;
use crate::search_flights::seal::Seal;
use crate::search_flights::trouble::{Reason, Trouble};

/// More than are shown: some are the same flight twice, some do not fit.
const MOST_OFFERS: &str = "50";
const PAUSES: u32 = 3;
/// Used where a server that is too busy does not say for how long.
const PAUSE: Duration = Duration::from_millis(150);

/// What stays as it is in a form.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How Amadeus is reached.
#[derive(Debug, Clone)]
pub struct AmadeusConfig {
    pub key: String,
    pub secret: SecretString,
    /// `test` or `prod`; names the stored token.
    pub environment: String,
    /// Without a slash at the end.
    pub base_url: String,
}

/// The account.
pub struct Amadeus {
    client: reqwest::Client,
    config: AmadeusConfig,
    tokens: Tokens,
    pace: Pace,
}

impl Amadeus {
    pub fn new(
        config: AmadeusConfig,
        client: reqwest::Client,
        ledger: Arc<dyn ProviderAccounts>,
        seal: Option<Seal>,
        clock: Clock,
    ) -> Self {
        let account = ProviderAccount { provider: "amadeus".to_owned(), account: config.environment.clone() };
        let pace = Pace::for_environment(&config.environment);
        Self { client, tokens: Tokens::new(account, ledger, seal, clock), pace, config }
    }

    async fn offers(&self, query: &Query, deadline: Deadline) -> Result<Value, Trouble> {
        let (mut renewed, mut pauses) = (false, 0);
        loop {
            self.pace.wait().await;
            // Taken when it is our turn: while we waited somebody may have renewed it.
            let token = self.tokens.token(None, || self.fetch_token()).await?;
            let heard = exchange(self.request(query, &token)).await?;
            if let Some(body) = answered(&heard) {
                return Ok(body);
            }
            match refusal(heard.status, heard.retry_after(), &heard.text()) {
                Refusal::NewToken(_) if !renewed => {
                    renewed = true;
                    self.tokens.token(Some(&token), || self.fetch_token()).await?;
                }
                Refusal::Pause(trouble) if pauses < PAUSES => {
                    pauses += 1;
                    let wait = trouble.retry_after.unwrap_or(PAUSE * pauses);
                    if wait >= deadline.left() {
                        return Err(trouble);
                    }
                    tokio::time::sleep(wait).await;
                }
                other => return Err(other.into_trouble()),
            }
        }
    }

    /// Not held up by searches that wait for their turn: they all wait for this.
    async fn fetch_token(&self) -> Result<Granted, Trouble> {
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
        let heard = exchange(request).await?;
        let body = if heard.is_success() { heard.json() } else { None };
        let granted = body.as_ref().and_then(|body| Some((body.get("access_token")?.as_str()?, body.get("expires_in")?.as_i64()?)));
        match granted {
            Some((token, seconds)) if !token.is_empty() => {
                Ok(Granted { token: SecretString::from(token), lifetime: SignedDuration::from_secs(seconds.clamp(0, 86_400)) })
            }
            // The body may hold a token: its words are not repeated.
            _ if heard.is_success() => Err(Trouble::new(Reason::BadResponse, "the token endpoint sent no token").with_status(heard.status)),
            _ => Err(refusal(heard.status, heard.retry_after(), &heard.text()).into_trouble()),
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
            ("max", MOST_OFFERS),
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

    fn side(&self) -> Side {
        Side::Cash
    }

    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<Found, Trouble>> {
        Box::pin(async move {
            let mut body = self.offers(query, deadline).await?;
            let cash = wire::offers(&body).map_err(|fault| Trouble::new(Reason::BadResponse, fault))?;
            let received = json!({"data": body["data"].take(), "dictionaries": body["dictionaries"].take()});
            Ok(Found { cash, received: Some(received), ..Found::default() })
        })
    }
}

fn answered(heard: &Heard) -> Option<Value> {
    let body = if heard.is_success() { heard.json()? } else { return None };
    body.get("data").is_some_and(Value::is_array).then_some(body)
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string()
}
