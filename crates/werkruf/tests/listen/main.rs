//! The listener on real sockets, with clients that behave as badly as they can.
//!
//! `cfg(test)` on the modules tells the lints that their helpers are tests too.

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod house;
#[cfg(test)]
mod places;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod stalled;
#[cfg(test)]
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with the tests of the API, which use the rest")]
mod support;
