//! Seats.aero: seats for miles, from its cached search. One search is one call of a small daily quota.

mod client;
mod refusal;
mod wire;

pub use client::{Seatsaero, SeatsaeroConfig};
pub use refusal::refusal;
pub use wire::{search_page, trips_page};
