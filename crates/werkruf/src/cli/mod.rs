//! The command line. Each command is one file; commands use the HTTP API through `backend`.
//!
//! Exit codes: 0 done, 1 refused or not found, 2 usage. `--json` prints data as the API gives it.

mod alerts;
mod approvals;
mod audit;
mod backend;
mod backup;
mod budgets;
mod calls;
mod chat;
mod config;
mod connect;
mod contract;
mod conversations;
mod database;
mod doctor;
mod error;
mod explain;
#[cfg(feature = "flights")]
mod flights;
mod ids;
mod import;
mod init;
mod input;
mod keys;
mod knowledge;
mod migrate;
mod moving;
mod outbox;
mod people;
mod prices;
pub(crate) mod print;
mod retention;
mod secrets;
mod session;
mod status;
mod tools;
mod transport;
mod usage;
mod version;
mod whatsapp;
mod wire;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

pub use error::CliError;

use crate::config::Environment;
use crate::serve;
use input::{address, encode, not_utf8, read_input};
use session::Session;

/// The result of a command.
type Outcome = Result<ExitCode, CliError>;

/// How long background tasks may take to end before they are cut off.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

const ABOUT: &str = "A self-hosted tool-call server for LLM assistants";

const EXAMPLES: &str = "Examples:
  werkruf serve                                   start on 127.0.0.1:8080
  werkruf chat 'Which requests are open?'         ask an assistant
  werkruf tools list                              what can be called
  werkruf calls list --status failed              what went wrong
  werkruf explain 0197f2c4                        why it went wrong

Commands find the running server by the lock file next to the database. Without a server they open the database.
Exit codes: 0 done, 1 refused or not found, 2 usage.";

#[derive(Debug, Parser)]
#[command(name = "werkruf", about = ABOUT, after_help = EXAMPLES, disable_version_flag = true, arg_required_else_help = true)]
struct Cli {
    /// Print the version and the commit
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    globals: Globals,
}

/// Flags every command takes. Help shows them after the command's own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
struct Globals {
    /// Config file; ./werkruf.toml if it exists
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Database, as sqlite:FILE or postgres://…
    #[arg(long, global = true, value_name = "DATABASE")]
    database: Option<String>,
    /// Use this server instead of the local one (or WERKRUF_SERVER)
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// API key for --server; WERKRUF_KEY keeps it out of the process list
    #[arg(long, global = true, value_name = "KEY")]
    key: Option<String>,
    /// Tenant, by slug or id
    #[arg(long, global = true, value_name = "TENANT")]
    tenant: Option<String>,
    /// Act for this user
    #[arg(long, global = true, value_name = "USER")]
    user: Option<String>,
    /// Print data as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server
    #[command(
        after_help = "Examples:\n  werkruf serve\n  werkruf serve --listen 127.0.0.1:0 --database sqlite:/var/lib/werkruf/werkruf.db\n  \
                            WERKRUF_ADMIN_KEY=… werkruf serve --listen 0.0.0.0:8080"
    )]
    Serve {
        /// Address and port; port 0 takes a free one and prints it
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<String>,
    },
    /// Show what runs where: server, version, model, database, modules, open work; exit 1 if no server answers
    #[command(
        after_help = "Examples:\n  werkruf status\n  werkruf status --json\n  WERKRUF_KEY=$ADMIN_KEY werkruf status --server https://chat.example.org"
    )]
    Status,
    /// Say what is wrong with the installation and what to do; exit 1 if something is
    #[command(
        after_help = "Examples:\n  werkruf doctor\n  werkruf doctor --json | jq '.findings[] | select(.severity == \"error\")'\n  werkruf doctor --live      also asks the models\n  WERKRUF_KEY=$ADMIN_KEY werkruf doctor --server https://chat.example.org"
    )]
    Doctor(doctor::Command),
    /// Talk to an assistant: one message, or line by line
    #[command(
        after_help = "Examples:\n  werkruf chat 'Which requests are open?'\n  werkruf chat                                    line by line; Ctrl-D ends\n  \
                            werkruf chat 'And for Bernd?' --conversation last --user 1\n  \
                            werkruf chat 'Wer bin ich?' --user 3 --json | jq -r 'select(.event == \"final\").data.message.content'"
    )]
    Chat(chat::Command),
    /// List, read, export and delete conversations
    #[command(subcommand)]
    Conversations(conversations::Command),
    /// List, describe and call tools
    #[command(subcommand)]
    Tools(tools::Command),
    /// Connect an account at a server that wants a login of each person, and wait until it is connected
    Connect(connect::Command),
    /// List, show, retry and cancel tool calls
    #[command(subcommand)]
    Calls(calls::Command),
    /// List and decide approvals
    #[command(subcommand)]
    Approvals(approvals::Command),
    /// List, show, retry and release what is sent to people and programs
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// List what the operator was told
    #[command(subcommand)]
    Alerts(alerts::Command),
    /// Show everything recorded about one tool call
    #[command(after_help = "Examples:\n  werkruf explain 0197f2c4-77aa\n  werkruf explain 0197f2c4-77aa --json | jq .repairs")]
    Explain {
        /// Id of the call, or a unique beginning or end of it
        call: String,
    },
    /// Make, list and delete API keys
    #[command(subcommand)]
    Keys(keys::Command),
    /// List, make and delete budgets of model requests
    #[command(subcommand)]
    Budgets(budgets::Command),
    /// Read and check the log of administrative acts
    #[command(subcommand)]
    Audit(audit::Command),
    /// Replace the key of stored secrets
    #[command(subcommand)]
    Secrets(secrets::Command),
    /// Add, search and measure the company's own documents
    #[command(subcommand)]
    Knowledge(knowledge::Command),
    /// Import the office: people, requests, tasks, working times, articles
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Import the conversations and tool calls of an older program
    #[command(
        after_help = "Examples:\n  werkruf import --from sqlite:old.db --dry-run\n  werkruf import --from sqlite:old.db --tenant demo --user 3 --json"
    )]
    Import(import::Command),
    /// Users, roles and branches: list, add, change, deactivate, erase; who may use which tool
    #[command(subcommand)]
    People(people::Command),
    /// Write a verified copy of the database, with or without a running server
    #[command(after_help = "Examples:\n  werkruf backup /var/backups/werkruf.db\n  werkruf backup werkruf-today.db --force --json")]
    Backup(backup::File),
    /// Replace the database with a backup; pending work is held and not sent again
    #[command(
        after_help = "Examples:\n  werkruf restore /var/backups/werkruf.db\n  werkruf restore werkruf-today.db --force --database sqlite:/var/lib/werkruf/werkruf.db"
    )]
    Restore(backup::File),
    /// Bring the database schema up to date, or report what is missing
    #[command(
        after_help = "Examples:\n  werkruf migrate --check\n  werkruf migrate --database postgres://werkruf@db/werkruf --compat-views\n  \
                            werkruf migrate --hold     after pg_restore, before a server starts"
    )]
    Migrate(migrate::Command),
    /// Move everything from a SQLite file into an empty PostgreSQL
    #[command(after_help = "Examples:\n  werkruf move --from sqlite:data/werkruf.db --to postgres://werkruf@db/werkruf")]
    Move(moving::Command),
    /// Delete old data
    #[command(subcommand)]
    Retention(retention::Command),
    /// Show what the requests to model providers used and cost, and compare it with a provider's export
    Usage(usage::Command),
    /// Show the prices of models
    Prices(prices::Command),
    /// Print and check the envelopes of tool calls
    #[command(subcommand)]
    Contract(contract::Command),
    /// Inspect recorded responses of flight providers
    #[command(subcommand)]
    #[cfg(feature = "flights")]
    Flights(flights::Command),
    /// Check the connection to WhatsApp, and inspect recorded payloads
    #[command(subcommand)]
    Whatsapp(whatsapp::Command),
    /// Inspect recorded model streams
    #[command(subcommand)]
    Wire(wire::Command),
    /// Check the configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Write a commented werkruf.toml, or a complete small example
    #[command(
        after_help = "Examples:\n  werkruf init\n  werkruf init --office                           people, rows and a tool of its own\n  \
                            werkruf init --config /etc/werkruf.toml --force"
    )]
    Init(init::Command),
    /// Print shell completions
    #[command(
        after_help = "Examples:\n  werkruf completions bash > /etc/bash_completion.d/werkruf\n  werkruf completions zsh > ~/.zfunc/_werkruf"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder
    #[command(after_help = "Examples:\n  werkruf man /usr/local/share/man/man1\n  werkruf man . && man ./werkruf-chat.1")]
    Man {
        /// The folder; it must exist
        folder: PathBuf,
    },
}

impl Command {
    /// Whether the command writes something that needs no older data.
    const fn makes_database(&self) -> bool {
        match self {
            Self::Knowledge(knowledge::Command::Rights(rights)) => rights.changes(),
            Self::Import(_)
            | Self::Workspace(_)
            | Self::Keys(keys::Command::Create { .. })
            | Self::Budgets(budgets::Command::Add { .. })
            | Self::Conversations(conversations::Command::Import { .. })
            | Self::Knowledge(knowledge::Command::Add { .. } | knowledge::Command::Eval(_)) => true,
            _ => false,
        }
    }
}

/// Runs the program with the process's own arguments and environment.
pub fn main() -> ExitCode {
    run(std::env::args_os(), Environment::of_process())
}

/// Runs one command.
pub fn run(arguments: impl IntoIterator<Item = OsString>, environment: Environment) -> ExitCode {
    print::set_style(&environment);
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help to stdout with exit code 0, and usage errors to stderr with 2.
            if json && error.use_stderr() {
                return CliError::Usage(usage_message(&error)).report(json);
            }
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CliError::refused("io", format!("cannot start threads: {error}")).report(json),
    };
    let outcome = runtime.block_on(dispatch(cli, environment));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    outcome.unwrap_or_else(|error| error.report(json))
}

/// What is wrong with the command line, without the usage lines.
fn usage_message(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a subcommand is missing; --help lists them".to_owned();
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let message = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

async fn dispatch(cli: Cli, environment: Environment) -> Outcome {
    let Cli { globals, version, command } = cli;
    let json = globals.json;
    if version {
        return Ok(version::print(json));
    }
    let makes_database = command.as_ref().is_some_and(Command::makes_database);
    let mut session = Session::new(globals, environment, makes_database);
    match command {
        None => Err(CliError::Usage("no command given; `werkruf --help` lists the commands".to_owned())),
        Some(Command::Serve { listen }) => {
            session.listen = listen;
            Ok(Box::pin(serve::serve(session.config_for_server()?, json)).await?)
        }
        Some(Command::Status) => status::run(&session).await,
        Some(Command::Doctor(command)) => doctor::run(&session, &command).await,
        Some(Command::Chat(command)) => chat::run(&session, command).await,
        Some(Command::Conversations(command)) => conversations::run(&session, command).await,
        Some(Command::Tools(command)) => tools::run(&session, command).await,
        Some(Command::Connect(command)) => connect::run(&session, &command).await,
        Some(Command::Calls(command)) => calls::run(&session, command).await,
        Some(Command::Approvals(command)) => approvals::run(&session, command).await,
        Some(Command::Outbox(command)) => outbox::run(&session, command).await,
        Some(Command::Alerts(command)) => alerts::run(&session, command).await,
        Some(Command::Explain { call }) => explain::run(&session, &call).await,
        Some(Command::Keys(command)) => keys::run(&session, command).await,
        Some(Command::Budgets(command)) => budgets::run(&session, command).await,
        Some(Command::Audit(command)) => audit::run(&session, command).await,
        Some(Command::Secrets(command)) => secrets::run(&session, command).await,
        Some(Command::Knowledge(command)) => knowledge::run(&session, command).await,
        Some(Command::Workspace(command)) => workspace::run(&session, command).await,
        Some(Command::Import(command)) => import::run(&session, &command).await,
        Some(Command::People(command)) => people::run(&session, command).await,
        Some(Command::Backup(file)) => backup::back_up(&session, file).await,
        Some(Command::Restore(file)) => backup::restore(&session, file).await,
        Some(Command::Migrate(command)) => migrate::run(&session, &command).await,
        Some(Command::Move(command)) => moving::run(&session, &command).await,
        Some(Command::Retention(command)) => retention::run(&session, command).await,
        Some(Command::Usage(command)) => usage::run(&session, command).await,
        Some(Command::Prices(command)) => prices::run(&session, &command),
        Some(Command::Contract(command)) => contract::run(&command, json),
        #[cfg(feature = "flights")]
        Some(Command::Flights(command)) => flights::run(&command),
        Some(Command::Whatsapp(command)) => whatsapp::run(&session, &command).await,
        Some(Command::Wire(command)) => wire::run(&command, json),
        Some(Command::Config(command)) => config::run(&session, &command).await,
        Some(Command::Init(command)) => init::run(&session, &command),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "werkruf", &mut script);
            print::line(String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Man { folder }) => {
            let unusable = |error| CliError::refused("io", format!("cannot write the pages into {}: {error}", folder.display()));
            clap_mangen::generate_to(Cli::command(), &folder).map_err(unusable)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            if command.has_subcommands() {
                command.get_subcommands().filter(|inner| inner.get_name() != "help").for_each(check);
            } else {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("werkruf "), "{} has no example", command.get_name());
            }
        }
        check(&Cli::command());
    }
}
