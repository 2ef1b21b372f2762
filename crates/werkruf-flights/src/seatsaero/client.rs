//! The Seats.aero client. Every call is counted in the store before it is sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use jiff::tz::TimeZone;
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use werkruf_contract::{BoxFuture, Clock, Deadline};
use werkruf_store::{ProviderAccount, StoreError};

use super::refusal::refusal;
use super::wire::{Row, search_page, trips_page};
use crate::account;
use crate::cabin::Cabin;
use crate::exchange::{ProviderResponse, exchange};
use crate::offer::Award;
use crate::provider::{Details, FlightProvider, FlightResults, OfferKind};
use crate::provider_error::{ProviderError, Reason};
use crate::query::{Days, Query};
use crate::store::FlightStore;

/// A week of one route in all programs has fewer rows. A larger page with trips would take many seconds.
const PAGE_SIZE: &str = "200";
/// The time that must be left before the deadline after a pause that the server requested.
const MIN_TIME_AFTER_WAIT: Duration = Duration::from_millis(500);

/// Address, key and quota of Seats.aero.
#[derive(Debug, Clone)]
pub struct SeatsaeroConfig {
    pub key: SecretString,
    /// Without a slash at the end.
    pub base_url: String,
    pub daily_quota: u32,
}

/// The Seats.aero provider.
pub struct Seatsaero {
    client: reqwest::Client,
    config: SeatsaeroConfig,
    account: ProviderAccount,
    accounts: Arc<dyn FlightStore>,
    clock: Clock,
}

impl Seatsaero {
    pub fn new(config: SeatsaeroConfig, client: reqwest::Client, accounts: Arc<dyn FlightStore>, clock: Clock) -> Self {
        let account = account::by_key("seatsaero", &config.key);
        Self { client, config, account, accounts, clock }
    }

    /// Searches one direction.
    async fn leg(&self, query: &Query, from: &str, to: &str, days: Days, deadline: Deadline) -> Result<(Vec<Award>, bool), ProviderError> {
        let mut waited = false;
        loop {
            let response = self.send_counted(self.request(query, from, to, days)).await?;
            let body = if response.is_success() { response.json() } else { None };
            if let Some(page) = body.as_ref().and_then(|body| search_page(body).ok()) {
                let awards = page.rows.into_iter().flat_map(|row| awards(row, query.cabin, query.nonstop)).collect();
                return Ok((awards, page.has_more));
            }
            let error = refusal(response.status, response.retry_after(), &response.text());
            match error.retry_after.filter(|wait| !waited && *wait + MIN_TIME_AFTER_WAIT < deadline.left()) {
                Some(wait) => {
                    waited = true;
                    tokio::time::sleep(wait).await;
                }
                None => return Err(error),
            }
        }
    }

    /// Sends a call if the daily quota allows it, and stores the remaining quota that the response reports.
    async fn send_counted(&self, request: RequestBuilder) -> Result<ProviderResponse, ProviderError> {
        let day = self.clock.now().to_zoned(TimeZone::UTC).date();
        let spent =
            self.accounts.spend_call(self.account.clone(), day, self.config.daily_quota).await.map_err(|error| count_failed(&error))?;
        let Some(call) = spent else {
            return Err(ProviderError::new(Reason::Quota, "the daily quota is used up"));
        };
        let response = exchange(request).await?;
        let noted = if response.status == 429 && response.retry_after().is_none() {
            self.accounts.close_day(self.account.clone(), day).await
        } else if let Some(left) = response.number("x-ratelimit-remaining") {
            self.accounts.calls_left(self.account.clone(), day, call, left).await
        } else {
            Ok(())
        };
        if let Err(error) = noted {
            // The call itself was counted before it was sent, so the quota is still respected.
            tracing::warn!(%error, "the remaining quota that Seats.aero reported could not be stored");
        }
        Ok(response)
    }

    /// The trips and booking links of one availability. This is a separate call and counts against the quota.
    async fn trip_details(&self, award: &str, trip: Option<&str>) -> Result<Details, ProviderError> {
        let response = self.send_counted(self.get(&format!("trips/{award}"))).await?;
        let body = if response.is_success() { response.json() } else { None };
        let Some(page) = body.as_ref().and_then(|body| trips_page(body).ok()) else {
            return Err(refusal(response.status, response.retry_after(), &response.text()));
        };
        let segments = page.trips.into_iter().find(|one| Some(one.trip_id.as_str()) == trip).and_then(|trip| trip.segments);
        Ok(Details { booking_links: page.booking_links, segments })
    }

    fn get(&self, path: &str) -> RequestBuilder {
        let key = self.config.key.expose_secret();
        let credential = if key.starts_with("seats:") { format!("Bearer {key}") } else { key.to_owned() };
        let request = self.client.get(format!("{}/{path}", self.config.base_url));
        request.header("partner-authorization", credential).header("accept", "application/json")
    }

    fn request(&self, query: &Query, from: &str, to: &str, days: Days) -> RequestBuilder {
        let (first, last, sources) = (days.first.to_string(), days.last.to_string(), query.sources.join(","));
        let mut parameters = vec![
            ("origin_airport", from),
            ("destination_airport", to),
            ("start_date", &first),
            ("end_date", &last),
            ("cabins", query.cabin.award()),
            ("order_by", "lowest_mileage"),
            ("include_trips", "true"),
            ("take", PAGE_SIZE),
        ];
        if query.nonstop {
            parameters.push(("only_direct_flights", "true"));
        }
        if !sources.is_empty() {
            parameters.push(("sources", &sources));
        }
        self.get("search").query(&parameters)
    }
}

impl FlightProvider for Seatsaero {
    fn name(&self) -> &'static str {
        "seatsaero"
    }

    fn offer_kind(&self) -> OfferKind {
        OfferKind::Awards
    }

    fn details<'a>(&'a self, award: &'a str, trip: Option<&'a str>) -> Option<BoxFuture<'a, Result<Details, ProviderError>>> {
        // The id comes from the session state, which clients can write.
        let is_plain_id = !award.is_empty() && award.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        is_plain_id.then(|| Box::pin(self.trip_details(award, trip)) as BoxFuture<'a, _>)
    }

    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>> {
        Box::pin(async move {
            let out = self.leg(query, &query.origin, &query.destination, query.out, deadline);
            let back = async {
                match query.back {
                    Some(days) => Some(self.leg(query, &query.destination, &query.origin, days, deadline).await),
                    None => None,
                }
            };
            let (out, back) = join(out, back).await;
            match (out, back) {
                (Ok((awards, has_more)), None) => Ok(FlightResults { awards, has_more, ..FlightResults::default() }),
                (Ok((awards, more)), Some(Ok((awards_return, even_more)))) => {
                    Ok(FlightResults { awards, awards_return, has_more: more || even_more, ..FlightResults::default() })
                }
                (Ok((awards, has_more)), Some(Err(error))) => {
                    Ok(FlightResults { awards, has_more, partial_error: Some(error), ..FlightResults::default() })
                }
                (Err(error), Some(Ok((awards_return, has_more)))) => {
                    Ok(FlightResults { awards_return, has_more, partial_error: Some(error), ..FlightResults::default() })
                }
                (Err(error), _) => Err(error),
            }
        })
    }
}

/// The award of the requested cabin, with the shortest trip at the quoted price.
fn awards(row: Row, cabin: Cabin, nonstop: bool) -> Option<Award> {
    let priced = row.awards.into_iter().find(|priced| priced.cabin == cabin)?;
    let mut award = if nonstop { priced.nonstop? } else { priced.award };
    let fits = |stops: i64| !nonstop || stops == 0;
    let trips = row.trips.into_iter().filter(|trip| trip.cabin == award.cabin && trip.miles == award.miles && fits(trip.stops));
    award.trip = trips.min_by_key(|trip| trip.duration_minutes.unwrap_or(i64::MAX));
    Some(award)
}

fn count_failed(error: &StoreError) -> ProviderError {
    ProviderError::new(Reason::Upstream, format!("the call could not be counted, so it was not made: {error}"))
}
