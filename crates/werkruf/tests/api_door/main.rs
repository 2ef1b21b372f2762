//! The HTTP door, driven from outside: the whole app on a socket, a scripted model behind it.
//!
//! `cfg(test)` on the modules tells the lints that their helpers are tests too.

#[cfg(test)]
mod auth;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod deadlines;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod invoke;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod provided;
#[cfg(test)]
mod responses_model;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod streams;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tokens;
