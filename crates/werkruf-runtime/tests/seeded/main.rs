//! The turn engine under a seeded scheduler: time, ids, store, model, tools, clients and crashes all follow from one number.
//!
//! `WERKRUF_SEEDS` is the number of seeds, `WERKRUF_FIRST_SEED` the first one. A failing seed is printed;
//! `WERKRUF_SEED=n cargo test -p werkruf-runtime --test seeded` runs it again with its trace. `cfg(test)` on the modules makes
//! the lints treat their functions as test code.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod approver;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod audit_approvals;
#[cfg(test)]
mod audit_effects;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod channel;
#[cfg(test)]
mod client;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod fault_rates;
#[cfg(test)]
mod model;
#[cfg(test)]
mod mutant;
#[cfg(test)]
mod observations;
#[cfg(test)]
mod partial_texts;
#[cfg(test)]
mod process;
#[cfg(test)]
mod provider_requests;
#[cfg(test)]
mod regressions;
#[cfg(test)]
mod rng;
#[cfg(test)]
mod run;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod store;
#[cfg(test)]
mod store_approvals;
#[cfg(test)]
mod store_cluster;
#[cfg(test)]
mod store_comparison;
#[cfg(test)]
mod store_comparison_rows;
#[cfg(test)]
mod store_outbox;
#[cfg(test)]
mod subscriber;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod world;
