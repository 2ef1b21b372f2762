//! The door: command line, configuration, HTTP API.
//!
//! `cli` parses what an operator types, `config` what they decided, `app` opens the house, `serve` keeps it open,
//! `listen` takes connections, `api` answers requests. Commands speak to the house through its HTTP API only, whether a
//! server runs or not.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
mod config_check_store;
pub mod identity;
mod knowledge;
pub mod listen;
pub mod lockfile;
mod openai;
pub mod planner;
pub mod provider;
pub mod retention;
pub mod sample;
mod secret_key;
pub mod serve;
mod setup;
mod telemetry;
