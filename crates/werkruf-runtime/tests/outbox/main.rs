//! The outbox with a channel that the test controls, on SQLite. `cfg(test)` on the modules makes the lints treat their functions as test code.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod fake_channel;
#[cfg(test)]
mod office;
#[cfg(test)]
#[path = "../replicas/scripted.rs"]
mod scripted;
#[cfg(test)]
mod sending;
