//! The listener on real sockets, with misbehaving clients.
//!
//! `cfg(test)` on the modules makes the lints treat their helper functions as test code.

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod stalled;
#[cfg(test)]
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "shared with the tests of the API, which use the rest")]
mod support;
#[cfg(test)]
mod tls;
