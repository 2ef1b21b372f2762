//! The command line, through the real binary. One test program, so that it is linked once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, also outside its own function")]

#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/contract.rs"]
mod contract;
#[path = "cli/conversations.rs"]
mod conversations;
#[path = "cli/import.rs"]
mod import;
#[path = "cli/keeping.rs"]
mod keeping;
#[path = "cli/model.rs"]
mod model;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/support.rs"]
mod support;
