//! `werkruf move`: copies a SQLite file into a PostgreSQL that many servers can share. No server may use either database
//! meanwhile.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use werkruf_contract::Clock;
use werkruf_store::{Act, Audit, Author, PostgresStore, SERVER_CHAIN};

use super::backup::refused;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::app::postgres_options;
use crate::config::Database;
use crate::modules::MODULES;
use crate::secret_key;
use crate::start_error::StartError;

#[derive(Debug, Args)]
pub(super) struct Command {
    /// The SQLite file, as sqlite:FILE; it is locked meanwhile and stays unchanged
    #[arg(long, value_name = "DATABASE")]
    from: String,
    /// An empty PostgreSQL, as postgres://…
    #[arg(long, value_name = "DATABASE")]
    to: String,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let config = session.config()?;
    let clock = Clock::system(config.clock_offset_s);
    let parse = |text: &str| Database::parse(text).map_err(|message| CliError::Usage(format!("`{text}` {message}")));
    let (Database::Sqlite(file), Database::Postgres(url)) = (parse(&command.from)?, parse(&command.to)?) else {
        return Err(CliError::Usage("a move goes from sqlite:FILE to postgres://…".to_owned()));
    };
    let store = PostgresStore::open(postgres_options(&config, &url), &clock, MODULES).await.map_err(StartError::from)?;
    let (source, now) = (file.display().to_string(), clock.now());
    store.secret_keys().replace(secret_key::keys_of_copy(&config, &file)?);
    let moved = store.import_sqlite(file, clock).await.map_err(|error| refused(&error))?;
    let act = Act::new("database.move", source).after(json!({"tables": moved.tables.len()}));
    store.record(SERVER_CHAIN, Author::operator(), act, now).await.map_err(StartError::from)?;
    if session.globals.json {
        print::json(&json!(moved));
        return Ok(ExitCode::SUCCESS);
    }
    let rows = moved.tables.iter().map(|(table, sum)| vec![table.clone(), sum.rows.to_string(), sum.digest[..16].to_owned()]);
    print::table(&["TABLE", "ROWS", "DIGEST ON BOTH SIDES"], rows.collect());
    print::line(
        "All rows were copied and compared. The file is unchanged; start the servers on the new database and keep the file as a backup.",
    );
    Ok(ExitCode::SUCCESS)
}
