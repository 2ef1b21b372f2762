//! Amadeus Flight Offers Search v2: cash flights.

mod client;
mod rate_limiter;
mod refusal;
mod token;
mod wire;

pub use client::{Amadeus, AmadeusConfig};
pub use refusal::refusal;
pub use wire::offers;
