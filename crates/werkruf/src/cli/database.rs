//! Commands that only read do not make a database: in the wrong folder they would report an empty one.

use werkruf_store::PostgresStore;

use super::error::CliError;
use crate::app::postgres_options;
use crate::config::{Config, Database};
use crate::modules::MODULES;
use crate::start_error::StartError;

/// An error if the configured database does not exist yet.
pub(super) async fn must_exist(config: &Config) -> Result<(), CliError> {
    let exists = match &config.database {
        // A file that cannot be looked at is reported when it is opened.
        Database::Sqlite(file) => file.try_exists().unwrap_or(true),
        Database::Postgres(url) => {
            let report = PostgresStore::schema_report(&postgres_options(config, url), MODULES).await;
            report.map_err(|error| StartError::of_postgres(config, error))?.found > 0
        }
    };
    if exists { Ok(()) } else { Err(missing(config)) }
}

fn missing(config: &Config) -> CliError {
    let message =
        format!("there is no database {}; `werkruf serve` makes it, or name another with --database (WERKRUF_DATABASE)", config.database);
    CliError::refused("database_missing", message)
}
