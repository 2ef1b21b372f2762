//! Duffel: the second provider of cash flights.

mod client;
mod wire;

pub use client::{Duffel, DuffelConfig};
pub use wire::offers;
