//! Tests `search_flights` against provider stubs that behave and fail like the real providers.
#![expect(clippy::unwrap_used, reason = "test helpers are part of the tests")]

#[path = "../../../werkruf-tools/tests/support/mod.rs"]
mod support;

mod answers;
mod behavior;
mod budget;
mod faults;
mod fixture;
mod payloads;
mod questions;
mod stubs;
