//! `werkruf secrets rotate`: a new key for stored secrets.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::backend::Backend;
use super::{Outcome, Session, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Encrypt stored secrets and sign the audit log with the newest key of WERKRUF_SECRET_KEY; beside a SQLite file a new key is made
    #[command(
        after_help = "Examples:\n  werkruf secrets rotate\n  WERKRUF_SECRET_KEY=\"$NEW,$OLD\" werkruf secrets rotate --database postgres://werkruf@db/werkruf\n  werkruf secrets rotate --sign-unsigned    # the first key of a database that had none"
    )]
    Rotate {
        /// Also sign chains of the audit log that have no signature: right for the first key, wrong if somebody removed signatures
        #[arg(long)]
        sign_unsigned: bool,
    },
}

pub(super) async fn run(session: &Session, Command::Rotate { sign_unsigned }: Command) -> Outcome {
    // The keys belong to no tenant and no user.
    let backend = Backend::open(&session.without_tenant()).await?;
    let response = backend.post("/api/admin/secrets/rotate", &json!({"sign_unsigned": sign_unsigned})).await;
    backend.close().await;
    let response = response?;
    if session.globals.json {
        print::json(&response);
        return Ok(ExitCode::SUCCESS);
    }
    let (key, sealed, chains) = (print::field(&response, "key"), &response["sealed"], &response["chains"]);
    print::line(&format!("Key {key} is in use: {sealed} secret(s) encrypted, {chains} chain(s) of the audit log signed"));
    if response["unreadable"].as_u64().is_some_and(|count| count > 0) {
        print::line(&format!(
            "{} secret(s) could not be decrypted with any key; they are fetched again when needed",
            response["unreadable"]
        ));
    }
    if response["made"] != true {
        print::line("The older keys in WERKRUF_SECRET_KEY can go once every server has been restarted with the new one first");
    }
    Ok(ExitCode::SUCCESS)
}
