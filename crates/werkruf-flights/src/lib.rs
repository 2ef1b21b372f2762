//! The module `flights`: its tools, rows and SQL. `search_flights` searches award flights (paid with miles) and cash flights (paid with money) together.
//!
//! The response of every provider is normalised into the types of `offer`. A provider that fails is reported with a reason and
//! does not affect the others. No request is sent to a provider before the search request is validated.

mod account;
mod airports;
mod amadeus;
mod args;
mod cabin;
mod choose;
mod currencies;
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
mod postgres;
mod price;
mod programs;
mod propose;
mod provider;
mod provider_error;
mod query;
mod request;
mod sandbox;
mod seatsaero;
mod select_itinerary;
mod sqlite;
mod store;
mod summary;
mod texts;
mod tool;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};
use werkruf_store::{Module, ModuleSchema};

pub use amadeus::AmadeusConfig;
pub use cabin::Cabin;
pub use duffel::DuffelConfig;
pub use flights::{Flights, FlightsConfig};
pub use functions::{AMADEUS_FUNCTION, SEATSAERO_FUNCTION};
pub use inspect::{ProviderName, inspect};
pub use seatsaero::SeatsaeroConfig;
pub use store::{FlightStore, SCHEMA};

impl Module for Flights {
    fn schema(&self) -> &'static ModuleSchema {
        SCHEMA
    }

    fn tools(self: Arc<Self>) -> Vec<Arc<dyn ToolObject>> {
        vec![
            Arc::new(functions::FlightFunction::seatsaero(&self)),
            Arc::new(functions::FlightFunction::amadeus(&self)),
            Arc::new(Typed::new(tool::SearchFlights(Arc::clone(&self)))),
            Arc::new(Typed::new(select_itinerary::SelectItinerary(self))),
        ]
    }
}

#[cfg(test)]
mod story_tests;
#[cfg(test)]
#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;
