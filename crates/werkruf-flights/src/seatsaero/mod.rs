//! Seats.aero: award flights from its cached search. Each search counts against a small daily quota.

mod client;
mod refusal;
mod wire;

pub use client::{Seatsaero, SeatsaeroConfig};
pub use refusal::refusal;
pub use wire::{search_page, trips_page};
