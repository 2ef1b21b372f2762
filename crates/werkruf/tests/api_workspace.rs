//! Import of business data: the route of a running server, and the command of the real binary.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, also outside its own function")]

#[expect(dead_code, reason = "shared with the tests of the command line, which use all of it")]
#[path = "cli/support.rs"]
mod binary;
#[path = "workspace/command.rs"]
mod command;
#[path = "workspace/import.rs"]
mod import;
#[expect(dead_code, reason = "shared with the tests of the API, which use all of it")]
mod support;
