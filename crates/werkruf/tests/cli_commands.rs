//! The command line of the real binary. All tests are in one program, so that it is linked only once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, also outside its own function")]

#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/contract.rs"]
mod contract;
#[path = "cli/conversations.rs"]
mod conversations;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/function_log.rs"]
mod function_log;
#[path = "cli/ids.rs"]
mod ids;
#[path = "cli/import.rs"]
mod import;
#[path = "cli/knowledge.rs"]
mod knowledge;
#[path = "cli/maintenance.rs"]
mod maintenance;
#[path = "cli/mistakes.rs"]
mod mistakes;
#[path = "cli/model.rs"]
mod model;
#[path = "cli/office.rs"]
mod office;
#[path = "cli/outbox.rs"]
mod outbox;
#[path = "cli/people.rs"]
mod people;
#[path = "cli/provider_approvals.rs"]
mod provider_approvals;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/status.rs"]
mod status;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/telemetry.rs"]
mod telemetry;
#[path = "../../../tests/postgres/fresh.rs"]
mod testbed;
#[path = "cli/tls.rs"]
mod tls;
#[path = "cli/usage.rs"]
mod usage;
