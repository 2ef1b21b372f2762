//! The flight provider trait and its results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{BoxFuture, Deadline};

use super::offer::{Award, BookingLink, Cash, Segment};
use super::provider_error::{ProviderError, Reason};
use super::query::Query;

/// The kind of offers that a provider has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferKind {
    Awards,
    Cash,
    /// Only the sandbox.
    Both,
}

/// A source of flights. It counts its own quota. It should not wait beyond the deadline; the caller enforces the deadline.
pub trait FlightProvider: Send + Sync {
    fn name(&self) -> &'static str;
    fn offer_kind(&self) -> OfferKind;
    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>>;

    /// The details of an award: booking links, and the segments of this trip. `None` if the provider has no details beyond a search.
    fn details<'a>(&'a self, _award: &'a str, _trip: Option<&'a str>) -> Option<BoxFuture<'a, Result<Details, ProviderError>>> {
        None
    }
}

/// The normalised results of one provider. Serialized for the cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlightResults {
    #[serde(default)]
    pub awards: Vec<Award>,
    #[serde(default)]
    pub awards_return: Vec<Award>,
    #[serde(default)]
    pub cash: Vec<Cash>,
    /// Offers and dictionaries as received; the legacy endpoint returns them unchanged.
    #[serde(default)]
    pub received: Option<Value>,
    /// Whether the provider has more pages.
    #[serde(default)]
    pub has_more: bool,
    /// The error of one direction if the other direction succeeded. Such a result is never cached.
    #[serde(skip)]
    pub partial_error: Option<ProviderError>,
}

impl FlightResults {
    /// The number of flights.
    pub fn count(&self) -> usize {
        self.awards.len() + self.awards_return.len() + self.cash.len()
    }
}

/// The details of an award.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub booking_links: Vec<BookingLink>,
    pub segments: Option<Vec<Segment>>,
}

/// The report on one provider in a search result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub name: String,
    pub status: Status,
    pub reason: Option<Reason>,
    pub count: usize,
    pub took_ms: u64,
    pub cached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Empty,
    Skipped,
    Failed,
}

impl Report {
    /// The report on a provider that was not searched.
    pub fn skipped(name: &str, reason: Reason) -> Self {
        Self { name: name.to_owned(), status: Status::Skipped, reason: Some(reason), count: 0, took_ms: 0, cached: false }
    }
}
