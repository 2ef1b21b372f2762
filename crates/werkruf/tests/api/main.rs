//! The HTTP API over a socket: the whole server with a scripted model.
//!
//! `cfg(test)` on the modules makes the lints treat their helper functions as test code.

#[cfg(test)]
#[path = "../support/account_server.rs"]
mod account_server;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod chat;
#[cfg(test)]
#[path = "../support/collector.rs"]
mod collector;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod connection_safety;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod console;
#[cfg(test)]
mod context;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod data_not_instruction;
#[cfg(test)]
mod deadlines;
#[cfg(test)]
mod fast_model;
#[cfg(all(test, feature = "flights"))]
mod flight_functions;
#[cfg(test)]
mod formats;
#[cfg(test)]
#[path = "../support/graph.rs"]
mod graph;
#[cfg(test)]
mod held_turn;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod invoke;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod keywords;
#[cfg(test)]
mod knowledge_files;
#[cfg(test)]
mod knowledge_rights;
#[cfg(test)]
mod large_results;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod people;
#[cfg(test)]
mod polling;
#[cfg(test)]
mod provider_approvals;
#[cfg(test)]
mod provider_items;
#[cfg(test)]
#[path = "../support/receiver.rs"]
mod receiver;
#[cfg(test)]
mod responses_model;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod secrets;
#[cfg(test)]
#[path = "../support/service.rs"]
mod service;
#[cfg(test)]
mod state;
#[cfg(test)]
mod streams;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod taint;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod tool_tenants;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod usage_costs;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod whatsapp;
#[cfg(test)]
mod wire;
