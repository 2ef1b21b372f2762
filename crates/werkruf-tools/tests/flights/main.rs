//! `search_flights` against providers that behave, and misbehave, as the real ones do.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod behavior;
mod budget;
mod faults;
mod fixture;
mod payloads;
mod questions;
mod stubs;
