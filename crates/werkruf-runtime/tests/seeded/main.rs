//! The turn engine under a seeded scheduler: time, ids, store, model, tools, clients and crashes all follow from one number.
//!
//! `WERKRUF_SEEDS` says how many seeds are run, `WERKRUF_FIRST_SEED` where they begin. A seed that fails prints itself;
//! `WERKRUF_SEED=n cargo test -p werkruf-runtime --test seeded` plays it again with its trace. `cfg(test)` on the modules tells
//! the lints that their helpers are tests too.

#[cfg(test)]
mod audit;
#[cfg(test)]
mod audit_effects;
#[cfg(test)]
mod audit_words;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod clerk;
#[cfg(test)]
mod client;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod dice;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod drift_rows;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod model;
#[cfg(test)]
mod mutant;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod play;
#[cfg(test)]
mod process;
#[cfg(test)]
mod regressions;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod store;
#[cfg(test)]
mod store_words;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod texts;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod weather;
#[cfg(test)]
mod wishes;
#[cfg(test)]
mod world;
