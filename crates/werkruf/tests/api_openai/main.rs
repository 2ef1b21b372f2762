//! The doors for OpenAI's clients, driven from outside: the whole app on a socket, a scripted model behind it.
//!
//! `cfg(test)` on the modules tells the lints that their helpers are tests too.

#[cfg(test)]
mod chat;
#[cfg(test)]
mod client_tools;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod speaking;
#[cfg(test)]
#[expect(dead_code, reason = "shared with the native door's tests, which read its streams and refusals")]
#[path = "../support/mod.rs"]
mod support;
