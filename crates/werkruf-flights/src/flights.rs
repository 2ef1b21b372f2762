//! Searches all configured providers concurrently, under one deadline.
//!
//! Invariant: a provider that hangs, fails or sends invalid data affects neither the results of the others nor the time of the answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use werkruf_contract::{Clock, Deadline, Uuid, hex};
use werkruf_store::Seal;

use super::amadeus::{Amadeus, AmadeusConfig};
use super::duffel::{Duffel, DuffelConfig};
use super::offer::{Award, BookingLink};
use super::provider::{Details, FlightProvider, FlightResults, OfferKind, Report, Status};
use super::provider_error::{ProviderError, Reason};
use super::query::Query;
use super::sandbox::Sandbox;
use super::seatsaero::{Seatsaero, SeatsaeroConfig};
use super::store::FlightStore;

/// All supported providers, in the order of the reports.
const PROVIDERS: [&str; 3] = ["seatsaero", "amadeus", "duffel"];
/// A larger result is not cached.
const MAX_CACHED_BYTES: usize = 4 * 1024 * 1024;
/// The longest delay of an answer by the write to the cache.
const CACHE_WRITE_TIMEOUT: Duration = Duration::from_millis(20);

/// The longest wait for the details of an award. A flight is useful without them.
pub(super) const DETAILS_TIMEOUT: Duration = Duration::from_secs(5);

/// The flight settings, from the environment.
#[derive(Debug, Clone)]
pub struct FlightsConfig {
    pub seatsaero: Option<SeatsaeroConfig>,
    pub amadeus: Option<AmadeusConfig>,
    pub duffel: Option<DuffelConfig>,
    /// The deadline of a search, for all providers together.
    pub deadline: Duration,
    /// How long results are cached; zero disables the cache.
    pub cache: Duration,
}

impl Default for FlightsConfig {
    fn default() -> Self {
        let (deadline, cache) = (Duration::from_secs(12), Duration::from_secs(300));
        Self { seatsaero: None, amadeus: None, duffel: None, deadline, cache }
    }
}

/// The configured providers, or the sandbox if none is configured.
pub struct Flights {
    providers: Vec<Arc<dyn FlightProvider>>,
    accounts: Arc<dyn FlightStore>,
    clock: Clock,
    deadline: Duration,
    cache: Duration,
}

/// The flights of all providers, and a report per provider.
#[derive(Debug, Default)]
pub struct CombinedResults {
    pub results: Vec<(&'static str, FlightResults)>,
    pub reports: Vec<Report>,
    /// Whether the flights are made-up sample data.
    pub sandbox: bool,
}

impl Flights {
    pub fn new(config: FlightsConfig, client: &reqwest::Client, accounts: Arc<dyn FlightStore>, seal: Option<Seal>, clock: Clock) -> Self {
        let mut providers: Vec<Arc<dyn FlightProvider>> = Vec::new();
        if let Some(seatsaero) = config.seatsaero {
            providers.push(Arc::new(Seatsaero::new(seatsaero, client.clone(), Arc::clone(&accounts), clock.clone())));
        }
        if let Some(amadeus) = config.amadeus {
            providers.push(Arc::new(Amadeus::new(amadeus, client.clone(), Arc::<dyn FlightStore>::clone(&accounts), seal, clock.clone())));
        }
        if let Some(duffel) = config.duffel {
            providers.push(Arc::new(Duffel::new(duffel, client.clone())));
        }
        if providers.is_empty() {
            providers.push(Arc::new(Sandbox));
        }
        Self { providers, accounts, clock, deadline: config.deadline, cache: config.cache }
    }

    /// The longest duration of a search.
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether a provider of cash flights is configured; the sandbox counts.
    pub(super) fn has_cash(&self) -> bool {
        self.providers.iter().any(|provider| provider.offer_kind() != OfferKind::Awards)
    }

    /// Searches all relevant providers. Never fails and never takes longer than the deadline.
    pub(super) async fn search(&self, tenant_id: Uuid, query: &Query, award_only: bool, deadline: Deadline) -> CombinedResults {
        let wanted = |provider: &Arc<dyn FlightProvider>| !(award_only && provider.offer_kind() == OfferKind::Cash);
        let searches = self
            .providers
            .iter()
            .filter(|provider| wanted(provider))
            .map(|provider| self.query_provider(provider.as_ref(), tenant_id, query, deadline));
        let mut combined = CombinedResults { sandbox: self.is_sandbox(), ..CombinedResults::default() };
        let mut reports = Vec::new();
        for (name, found, mut report) in join_all(searches).await {
            if let Some(mut found) = found {
                if award_only {
                    found.cash.clear();
                    report.count = found.count();
                }
                combined.results.push((name, found));
            }
            reports.push(report);
        }
        for name in PROVIDERS {
            if let Some(at) = reports.iter().position(|report| report.name == name) {
                combined.reports.push(reports.remove(at));
            } else {
                let configured = self.providers.iter().any(|provider| provider.name() == name);
                combined.reports.push(Report::skipped(name, if configured { Reason::AwardOnly } else { Reason::NotConfigured }));
            }
        }
        combined.reports.extend(reports);
        combined
    }

    /// Searches one provider by name. Without any configured key the sandbox is searched instead.
    pub(super) async fn search_one(
        &self,
        name: &str,
        tenant_id: Uuid,
        query: &Query,
        deadline: Deadline,
    ) -> Result<(FlightResults, bool), ProviderError> {
        let provider = self.providers.iter().find(|provider| provider.name() == name || provider.offer_kind() == OfferKind::Both);
        let Some(provider) = provider else {
            return Err(ProviderError::new(Reason::NotConfigured, format!("no key for {name} is set")));
        };
        let mut found = self.cached_search(provider.as_ref(), tenant_id, query, deadline).await.map(|(found, _)| found)?;
        match found.partial_error.take() {
            Some(error) if found.count() == 0 => Err(error),
            _ => Ok((found, self.is_sandbox())),
        }
    }

    /// Adds the booking links of these awards, as far as the provider gives them before the deadline. Each award is one more request to the
    /// provider, so the answers are cached.
    pub(super) async fn add_booking_links<'a>(&self, tenant_id: Uuid, awards: impl Iterator<Item = &'a mut Award>, deadline: Deadline) {
        if self.is_sandbox() {
            return;
        }
        let lookups = awards.map(async |award| award.booking_links = self.booking_links(tenant_id, &award.availability_id, deadline).await);
        join_all(lookups).await;
    }

    async fn booking_links(&self, tenant_id: Uuid, award: &str, deadline: Deadline) -> Vec<BookingLink> {
        let key = (!self.cache.is_zero()).then(|| hex(&Sha256::new_with_prefix(b"booking links\n1\n").chain_update(award).finalize()));
        if let Some(key) = &key
            && let Some(links) = self.read_cache(tenant_id, key).await
        {
            return links;
        }
        let deadline = Deadline::after(DETAILS_TIMEOUT).earlier(deadline);
        let Some(details) = self.details(award, None, deadline).await else { return Vec::new() };
        if let Some(key) = key {
            let _ = tokio::time::timeout(CACHE_WRITE_TIMEOUT, self.write_cache(tenant_id, key, &details.booking_links)).await;
        }
        details.booking_links
    }

    /// The details of a selected award; `None` if the provider fails or takes too long.
    pub(crate) async fn details(&self, award: &str, trip: Option<&str>, deadline: Deadline) -> Option<Details> {
        let lookup = self.providers.iter().find_map(|provider| provider.details(award, trip))?;
        match tokio::time::timeout_at(deadline.instant().into(), lookup).await {
            Ok(Ok(details)) => Some(details),
            Ok(Err(error)) => {
                tracing::warn!(reason = ?error.reason, cause = %error.cause, "the details of an award could not be read");
                None
            }
            Err(_) => None,
        }
    }

    fn is_sandbox(&self) -> bool {
        self.providers.iter().any(|provider| provider.offer_kind() == OfferKind::Both)
    }

    async fn query_provider(
        &self,
        provider: &dyn FlightProvider,
        tenant_id: Uuid,
        query: &Query,
        deadline: Deadline,
    ) -> (&'static str, Option<FlightResults>, Report) {
        let name = provider.name();
        let left = deadline.left();
        let answer = self.cached_search(provider, tenant_id, query, deadline).await;
        let took_ms = u64::try_from(left.saturating_sub(deadline.left()).as_millis()).unwrap_or(u64::MAX);
        let report = |status, reason, count, cached| Report { name: name.to_owned(), status, reason, count, took_ms, cached };
        match answer {
            Ok((found, cached)) => {
                let partial_error = found.partial_error.as_ref().map(|error| error.reason);
                let status = if found.count() > 0 { Status::Ok } else { Status::Empty };
                let status = if status == Status::Empty && partial_error.is_some() { Status::Failed } else { status };
                if let Some(error) = &found.partial_error {
                    tracing::warn!(provider = name, reason = ?error.reason, cause = %error.cause, "one direction of a flight search failed");
                }
                let report = report(status, partial_error, found.count(), cached);
                (name, Some(found), report)
            }
            Err(error) => {
                tracing::warn!(provider = name, reason = ?error.reason, cause = %error.cause, "a flight search failed");
                (name, None, report(Status::Failed, Some(error.reason), 0, false))
            }
        }
    }

    /// Reads the result from the cache, or searches the provider and caches the result. Partial results are not cached.
    async fn cached_search(
        &self,
        provider: &dyn FlightProvider,
        tenant_id: Uuid,
        query: &Query,
        deadline: Deadline,
    ) -> Result<(FlightResults, bool), ProviderError> {
        let key = self.cache_key(provider, query);
        let work = async {
            if let Some(key) = &key
                && let Some(found) = self.read_cache(tenant_id, key).await
            {
                return Ok((found, true));
            }
            provider.search(query, deadline).await.map(|found| (found, false))
        };
        let late = || Err(ProviderError::new(Reason::Timeout, "no answer before the deadline"));
        let (found, cached) = tokio::time::timeout_at(deadline.instant().into(), work).await.unwrap_or_else(|_| late())?;
        if let Some(key) = key
            && !cached
            && found.partial_error.is_none()
        {
            // The answer does not wait long for the write. The store completes the write in any case.
            let _ = tokio::time::timeout(CACHE_WRITE_TIMEOUT, self.write_cache(tenant_id, key, &found)).await;
        }
        Ok((found, cached))
    }

    /// The cache key of a search; `None` if its result is not cached.
    fn cache_key(&self, provider: &dyn FlightProvider, query: &Query) -> Option<String> {
        if self.cache.is_zero() || provider.offer_kind() == OfferKind::Both {
            return None;
        }
        let request = serde_json::to_vec(query).ok()?;
        Some(hex(&Sha256::new_with_prefix(provider.name()).chain_update(b"\n1\n").chain_update(request).finalize()))
    }

    async fn read_cache<T: DeserializeOwned>(&self, tenant_id: Uuid, key: &str) -> Option<T> {
        let answer = self.accounts.cached_answer(tenant_id, key.to_owned(), self.clock.now()).await.ok()??;
        serde_json::from_str(&answer).ok()
    }

    async fn write_cache(&self, tenant_id: Uuid, key: String, found: &impl Serialize) {
        let now = self.clock.now();
        let until = jiff::SignedDuration::try_from(self.cache).ok().and_then(|span| now.checked_add(span).ok());
        let (Some(until), Ok(answer)) = (until, serde_json::to_string(found)) else { return };
        if answer.len() > MAX_CACHED_BYTES {
            return;
        }
        if let Err(error) = self.accounts.cache_answer(tenant_id, key, answer, until, now).await {
            tracing::warn!(%error, "the result of a flight provider could not be cached");
        }
    }
}
