//! Several engines on one PostgreSQL, each with a model and a tool that the test controls. `cfg(test)` on the modules makes the lints
//! treat their functions as test code.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod cluster;
#[cfg(test)]
#[path = "../outbox/fake_channel.rs"]
mod fake_channel;
#[cfg(test)]
#[path = "../../../../tests/postgres/fresh.rs"]
mod fresh;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
