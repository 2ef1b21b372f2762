//! The OpenAI-compatible endpoints over a socket: the whole server with a scripted model.
//!
//! `cfg(test)` on the modules makes the lints treat their helper functions as test code.

#[cfg(test)]
mod annotations;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod client;
#[cfg(test)]
mod client_conversations;
#[cfg(test)]
mod client_tools;
#[cfg(test)]
mod content;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod foreign_calls;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod memory_shares;
#[cfg(test)]
mod provider_refusals;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod resent;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod routes;
#[cfg(test)]
#[path = "../support/service.rs"]
mod service;
#[cfg(test)]
mod structured;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the tests of the native API, which use the rest")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tool_choice;
#[cfg(test)]
mod tool_pictures;
