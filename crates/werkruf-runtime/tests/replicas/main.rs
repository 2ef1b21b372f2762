//! Several processes on one PostgreSQL: the engine of each, with a model and a tool the test holds the strings of. `cfg(test)` on the
//! modules tells the lints that their helpers are tests too.

#[cfg(test)]
#[path = "../../../../tests/postgres/fresh.rs"]
mod fresh;
#[cfg(test)]
mod house;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod stories;
