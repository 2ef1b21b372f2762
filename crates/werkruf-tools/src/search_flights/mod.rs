//! `search_flights`: searches award flights (paid with miles) and cash flights (paid with money) together.
//!
//! The response of every provider is normalised into the types of `offer`. A provider that fails is reported with a reason and
//! does not affect the others. No request is sent to a provider before the search request is validated.

mod account;
mod airports;
mod amadeus;
mod args;
mod cabin;
mod choose;
mod duffel;
mod exchange;
mod flights;
mod functions;
mod inspect;
mod json;
mod last_results;
mod legacy;
mod money;
mod offer;
mod phrase_days;
mod price;
mod programs;
mod propose;
mod provider;
mod provider_error;
mod query;
mod request;
mod sandbox;
mod seal;
mod seatsaero;
mod summary;
mod tool;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};

pub use amadeus::AmadeusConfig;
pub use cabin::Cabin;
pub use duffel::DuffelConfig;
pub use flights::{Flights, FlightsConfig};
pub use functions::Caller;
pub use inspect::{ProviderName, inspect};
pub(crate) use last_results::LAST_RESULTS;
pub use seal::Seal;
pub use seatsaero::SeatsaeroConfig;

use crate::select_itinerary::SelectItinerary;

/// `search_flights` and `select_itinerary`, ready for the registry.
pub fn flight_tools(flights: Arc<Flights>) -> Vec<Arc<dyn ToolObject>> {
    vec![Arc::new(Typed::new(tool::SearchFlights(Arc::clone(&flights)))), Arc::new(Typed::new(SelectItinerary(flights)))]
}
