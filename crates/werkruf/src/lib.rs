//! Command line, configuration and HTTP API.
//!
//! `cli` parses and runs commands, `config` reads the configuration, `app` opens store and runtime, `serve` runs the server,
//! `listen` accepts connections, `api` answers requests. Commands use only the HTTP API: over a socket if a server runs,
//! otherwise in their own process.

#![cfg_attr(not(feature = "openapi"), expect(unused_imports, reason = "some types only describe bodies, for the OpenAPI document"))]

mod announcement;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
mod config_check_store;
mod configured_secrets;
mod database_file;
mod doctor;
mod hint_feed;
pub mod identity;
mod installation;
mod knowledge;
pub mod listen;
pub mod lockfile;
mod log_writer;
mod loops;
mod mcp;
pub mod mcp_tools;
mod metrics;
pub mod modules;
mod openai;
mod openai_path;
pub mod planner;
pub mod properties;
pub mod provider;
mod reader;
mod request_id;
pub mod retention;
mod routing;
pub mod sample;
mod secret_key;
pub mod serve;
mod setup;
pub mod start_error;
mod subscriber;
mod telemetry;
mod version;
mod webhooks;
pub mod whatsapp;
