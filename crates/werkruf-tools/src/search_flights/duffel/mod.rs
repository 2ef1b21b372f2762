//! Duffel: flights for money, the second source.

mod client;
mod wire;

pub use client::{Duffel, DuffelConfig};
pub use wire::offers;
