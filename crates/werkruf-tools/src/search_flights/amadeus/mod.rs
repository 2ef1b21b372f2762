//! Amadeus Flight Offers Search v2: flights for money.

mod client;
mod rate_limiter;
mod refusal;
mod token;
mod wire;

pub use client::{Amadeus, AmadeusConfig};
pub use refusal::refusal;
pub use wire::offers;
