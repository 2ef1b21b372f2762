//! A place that knows flights, and what it found.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{BoxFuture, Deadline};

use super::offer::{Award, BookingLink, Cash, Segment};
use super::provider_error::{ProviderError, Reason};
use super::query::Query;

/// What a provider deals in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferKind {
    Awards,
    Cash,
    /// The sandbox has both.
    Both,
}

/// A place that knows flights. It counts its own quota and never waits beyond the deadline on purpose; whoever asks cuts it off.
pub trait FlightProvider: Send + Sync {
    fn name(&self) -> &'static str;
    fn offer_kind(&self) -> OfferKind;
    fn search<'a>(&'a self, query: &'a Query, deadline: Deadline) -> BoxFuture<'a, Result<FlightResults, ProviderError>>;

    /// More about an award it found: where it is booked, and every flight of this trip. `None` where a search says all there is.
    fn details<'a>(&'a self, _award: &'a str, _trip: Option<&'a str>) -> Option<BoxFuture<'a, Result<Details, ProviderError>>> {
        None
    }
}

/// What a provider found, normalised.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlightResults {
    #[serde(default)]
    pub awards: Vec<Award>,
    #[serde(default)]
    pub awards_return: Vec<Award>,
    #[serde(default)]
    pub cash: Vec<Cash>,
    /// Offers and dictionaries as they came, where the seed's door hands them on.
    #[serde(default)]
    pub received: Option<Value>,
    /// There was more than one page.
    #[serde(default)]
    pub has_more: bool,
    /// One direction failed while the other was found. Never kept.
    #[serde(skip)]
    pub partial_error: Option<ProviderError>,
}

impl FlightResults {
    /// How many flights these are.
    pub fn count(&self) -> usize {
        self.awards.len() + self.awards_return.len() + self.cash.len()
    }
}

/// What is behind an award.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub booking_links: Vec<BookingLink>,
    pub segments: Option<Vec<Segment>>,
}

/// How a provider's part of an answer went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub status: Status,
    pub reason: Option<Reason>,
    pub count: usize,
    pub took_ms: u64,
    pub cached: bool,
}

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Empty,
    Skipped,
    Failed,
}

impl Report {
    /// A provider that was not asked.
    pub fn skipped(name: &str, reason: Reason) -> Self {
        Self { name: name.to_owned(), status: Status::Skipped, reason: Some(reason), count: 0, took_ms: 0, cached: false }
    }
}
