//! `search_flights`: seats for miles and flights for money, side by side.
//!
//! Every provider's answer is normalised into the types of `offer`; a provider that fails is named with its reason and
//! costs the others nothing. Nothing leaves before the request is known to make sense.

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

use werkruf_contract::{Clock, ToolObject, Typed};

pub use amadeus::AmadeusConfig;
pub use cabin::Cabin;
pub use duffel::DuffelConfig;
pub use flights::{Flights, FlightsConfig};
pub use functions::Caller;
pub use inspect::{ProviderName, inspect};
pub(crate) use last_results::LAST_RESULTS;
pub use seal::Seal;
pub use seatsaero::SeatsaeroConfig;

use crate::remember::Remember;
use crate::select_itinerary::SelectItinerary;

/// The search and the two tools that go with it, ready for the registry.
pub fn flight_tools(flights: Arc<Flights>, clock: Clock) -> Vec<Arc<dyn ToolObject>> {
    vec![
        Arc::new(Typed::new(tool::SearchFlights(Arc::clone(&flights)))),
        Arc::new(Typed::new(SelectItinerary(flights))),
        Arc::new(Typed::new(Remember(clock))),
    ]
}
