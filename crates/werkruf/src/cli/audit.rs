//! `werkruf audit …`: the log of administrative acts.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// The administrative acts of a tenant, oldest first
    #[command(
        after_help = "Examples:\n  werkruf audit list --tenant demo\n  werkruf audit list --tenant server --json   acts on the whole server"
    )]
    List,
    /// Check that no entry was changed, removed or cut off; exit code 1 at the first break
    #[command(after_help = "Examples:\n  werkruf audit verify\n  werkruf audit verify --tenant demo --json")]
    Verify,
}

/// Rows of one request.
const PAGE: &str = "1000";

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let verify = matches!(command, Command::Verify);
    // The tenant is part of the question here, because the log of the server belongs to none.
    let named = session.globals.tenant.clone();
    let backend = Backend::open(&session.without_tenant()).await?;
    let answer = if verify { check(&backend, named.as_deref()).await } else { list(&backend, named.as_deref()).await };
    backend.close().await;
    let (json, answer) = (session.globals.json, answer?);
    if json {
        print::json(&answer);
    } else if verify {
        show_chains(&answer);
    } else {
        show_entries(&answer);
    }
    Ok(if verify && answer["intact"] != true { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn check(backend: &Backend, named: Option<&str>) -> Result<Value, CliError> {
    let query = named.map_or_else(String::new, |named| format!("?tenant={}", encode(named)));
    backend.get(&format!("/api/audit/verify{query}")).await
}

/// All entries, a page after the other.
async fn list(backend: &Backend, named: Option<&str>) -> Result<Value, CliError> {
    let of_chain = named.map_or_else(String::new, |named| format!("&tenant={}", encode(named)));
    let (mut after, mut entries) = (0, Vec::new());
    loop {
        let mut answer = backend.get(&format!("/api/audit?limit={PAGE}&after={after}{of_chain}")).await?;
        if let Value::Array(page) = answer["audit"].take() {
            entries.extend(page);
        }
        match answer["next_after"].as_i64() {
            Some(next) if next > after => after = next,
            _ => return Ok(json!({"audit": entries, "next_after": null})),
        }
    }
}

fn show_entries(answer: &Value) {
    print::list(print::rows(answer, "audit"), "no administrative acts", &["SEQ", "AT", "WHO", "FROM", "ACTION", "SUBJECT"], |entry| {
        let mut cells = print::fields(entry, &["seq", "at"]);
        cells.push(who(&entry["actor"]));
        cells.extend(print::fields(entry, &["address", "action", "subject"]));
        cells
    });
}

fn who(actor: &Value) -> String {
    let mut parts = Vec::new();
    if actor["operator"] == true {
        parts.push("operator".to_owned());
    }
    if let Some(user) = actor["user_id"].as_str() {
        parts.push(format!("user {}", print::harmless(user)));
    }
    if let Some(key) = actor["key_id"].as_str() {
        parts.push(format!("key {}", print::short_id(key)));
    }
    if parts.is_empty() { "server".to_owned() } else { parts.join(", ") }
}

fn show_chains(answer: &Value) {
    print::list(print::rows(answer, "chains"), "no administrative acts", &["CHAIN", "ENTRIES", "SIGNED", "HASH", "RESULT"], |chain| {
        let name = chain["tenant_id"].as_str().unwrap_or("server").to_owned();
        let signed = if chain["signed"] == true { "yes" } else { "no" };
        let result = chain["break"]["message"].as_str().unwrap_or("intact");
        vec![name, print::field(chain, "entries"), signed.to_owned(), print::field(chain, "hash"), result.to_owned()]
    });
}
