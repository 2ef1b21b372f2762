//! Rules of this project that no lint checks.
//!
//! `cfg(test)` on the modules makes the lints treat their helper functions as test code.

#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod error_pages;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod function_sets;
#[cfg(test)]
mod module_cycles;
#[cfg(test)]
mod module_graph;
#[cfg(test)]
mod module_pages;
#[cfg(test)]
mod names;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod store_traits;
#[cfg(test)]
mod texts;
#[cfg(test)]
mod two_databases;
#[cfg(test)]
mod vocabulary;
