//! `werkruf people …`: the users, roles and branches of a tenant.

mod groups;
mod lists;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, print};
use groups::{BranchCommand, RoleCommand};
use lists::List;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// The users of a tenant, or its roles or branches
    #[command(after_help = "Examples:\n  werkruf people list\n  werkruf people list roles --tenant demo --json")]
    List {
        #[arg(default_value = "users")]
        what: List,
    },
    /// One user
    #[command(after_help = "Examples:\n  werkruf people show 3\n  werkruf people show ext:auth0-31 --json")]
    Show {
        /// The user's number, or ext: and their external id
        user: String,
    },
    /// Add a user
    #[command(after_help = "Examples:\n  werkruf people add --first-name Ana --last-name Ruiz --locale es-ES --role employee\n  \
                            werkruf people add --id 20 --first-name Bo --last-name Lee --locale en-US --phone '+34 600 111 222' --branch 1 --role lead --role guest")]
    Add {
        /// The user's number; the next free one without it
        #[arg(long, value_name = "NUMBER")]
        id: Option<i64>,
        #[command(flatten)]
        fields: Box<UserFields>,
        /// Number or name of a role; may be given several times
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
    },
    /// Change fields of a user; the others stay
    #[command(after_help = "Examples:\n  werkruf people set 3 --phone '+34 600 111 222'\n  werkruf people set 3 --email ''\n\n\
                            An empty value removes what was there.")]
    Set {
        /// The user's number, or ext: and their external id
        user: String,
        #[command(flatten)]
        fields: Box<UserFields>,
    },
    /// Deactivate a user: their keys and tokens stop working, and everything stored stays
    #[command(after_help = "Examples:\n  werkruf people deactivate 3\n\n\
                            `people activate` takes it back. To delete what is stored about a person, use `people erase`.")]
    Deactivate {
        /// The user's number, or ext: and their external id
        user: String,
    },
    /// Activate a deactivated user
    #[command(after_help = "Examples:\n  werkruf people activate 3")]
    Activate {
        /// The user's number, or ext: and their external id
        user: String,
    },
    /// Set all roles of a user; without roles the user has none
    #[command(after_help = "Examples:\n  werkruf people roles 3 employee lead\n  werkruf people roles 3 2")]
    Roles {
        /// The user's number, or ext: and their external id
        user: String,
        /// Numbers or names of roles
        #[arg(value_name = "ROLE")]
        roles: Vec<String>,
    },
    /// Whether a user may use a tool, and which role decides
    #[command(after_help = "Examples:\n  werkruf people may 3 get_requests\n  werkruf people may 3 get_requests --of 4\n\n\
                            The exit code is 0 whether the user may or not.")]
    May {
        /// The user's number, or ext: and their external id
        user: String,
        /// Name of the tool
        tool: String,
        /// Another user: may the first one read their rows?
        #[arg(long, value_name = "USER")]
        of: Option<String>,
    },
    /// Show, add, change and delete roles
    #[command(subcommand)]
    Role(RoleCommand),
    /// Show, add, change and delete branches
    #[command(subcommand)]
    Branch(BranchCommand),
    /// Erase a user's messages and personal data; ids, times and usage rows stay
    #[command(after_help = "Examples:\n  werkruf people erase 7 --tenant demo\n  werkruf people erase ext:auth0-31 --cancel --json\n\n\
                            This cannot be undone. Backups made before still hold the data; a restore erases the user again.")]
    Erase {
        /// The user's number, or ext: and their external id
        #[arg(value_name = "USER")]
        user_id: String,
        /// Cancel the user's running turns first
        #[arg(long)]
        cancel: bool,
    },
}

/// The fields of a user, as in an import file.
#[derive(Debug, Args)]
pub(super) struct UserFields {
    #[arg(long, value_name = "NAME")]
    first_name: Option<String>,
    #[arg(long, value_name = "NAME")]
    last_name: Option<String>,
    /// Language tag such as de-DE
    #[arg(long, value_name = "TAG")]
    locale: Option<String>,
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Phone with its country code, such as +34600111222
    #[arg(long, value_name = "NUMBER")]
    phone: Option<String>,
    /// Id of the user on WhatsApp, where the phone is not known
    #[arg(long, value_name = "ID")]
    whatsapp_user_id: Option<String>,
    /// The sub of the user's tokens
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Time zone such as Europe/Madrid; that of the branch without it
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Number of the branch
    #[arg(long, value_name = "NUMBER")]
    branch: Option<String>,
}

impl UserFields {
    /// The fields that were given; an empty value is null.
    fn body(self) -> Result<Map<String, Value>, CliError> {
        let texts = [
            ("first_name", self.first_name),
            ("last_name", self.last_name),
            ("locale", self.locale),
            ("email", self.email),
            ("phone", self.phone),
            ("whatsapp_user_id", self.whatsapp_user_id),
            ("external_id", self.external_id),
            ("time_zone", self.time_zone),
        ];
        let null_if_empty = |name: &str, text: String| if text.is_empty() && name != "last_name" { Value::Null } else { text.into() };
        let mut body = Map::new();
        body.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), null_if_empty(name, text?)))));
        if let Some(branch) = self.branch {
            let number = || branch.parse::<i64>().map_err(|_| CliError::Usage(format!("`{branch}` is no number of a branch")));
            body.insert("branch_id".to_owned(), if branch.is_empty() { Value::Null } else { number()?.into() });
        }
        Ok(body)
    }
}

fn user_path(user: &str) -> String {
    format!("/api/people/users/{}", encode(user))
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    Backend::run(&session.without_user(), async |backend| execute(backend, command, json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    match command {
        Command::List { what } => lists::show(backend, what, json).await,
        Command::Show { user } => print_row(&backend.get(&user_path(&user)).await?, json),
        Command::Add { id, fields, roles } => {
            let mut body = fields.body()?;
            body.insert("role_ids".to_owned(), lists::role_ids(backend, &roles).await?);
            body.extend(id.map(|id| ("id".to_owned(), id.into())));
            print_row(&backend.post("/api/people/users", &Value::Object(body)).await?, json)
        }
        Command::Set { user, fields } => {
            let body = fields.body()?;
            if body.is_empty() {
                return Err(CliError::Usage("say what to change, such as --phone '+34 600 111 222'".to_owned()));
            }
            print_row(&backend.patch(&user_path(&user), &Value::Object(body)).await?, json)
        }
        Command::Deactivate { user } => {
            backend.delete(&user_path(&user)).await?;
            print_row(&backend.get(&user_path(&user)).await?, json)
        }
        Command::Activate { user } => print_row(&backend.patch(&user_path(&user), &json!({"active": true})).await?, json),
        Command::Roles { user, roles } => {
            let body = json!({"role_ids": lists::role_ids(backend, &roles).await?});
            print_row(&backend.put(&format!("{}/roles", user_path(&user)), &body).await?, json)
        }
        Command::May { user, tool, of } => {
            let query = of.map(|of| format!("?user_id={}", encode(&of))).unwrap_or_default();
            may(&backend.get(&format!("{}/may/{}{query}", user_path(&user), encode(&tool))).await?, json)
        }
        Command::Role(command) => groups::role(backend, command, json).await,
        Command::Branch(command) => groups::branch(backend, command, json).await,
        Command::Erase { user_id, cancel } => {
            let response = backend.post(&format!("{}/erase", user_path(&user_id)), &json!({"cancel": cancel})).await?;
            if json {
                print::json(&response)
            } else {
                print_report(&response)
            }
            Ok(())
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the last step of every command")]
fn print_row(row: &Value, json: bool) -> Result<(), CliError> {
    if json {
        print::json(row)
    } else {
        print::object(&lists::readable(row))
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the last step of the command")]
fn may(response: &Value, json: bool) -> Result<(), CliError> {
    if json {
        print::json(response);
    } else {
        let answer = if response["allowed"] == true { "yes" } else { "no" };
        print::line(&format!("{answer}: {}", print::harmless(&print::field(response, "reason"))));
    }
    Ok(())
}

fn print_report(response: &Value) {
    let field = |name| print::field(response, name);
    print::line(&format!(
        "Erased user {}: {} conversation(s), {} message(s), {} call(s), {} key(s)",
        field("user_id"),
        field("conversations"),
        field("messages"),
        field("calls"),
        field("keys")
    ));
    if response["compacted"] != true {
        print::line("Another program was reading the database, so deleted data may remain in its files; erase again to finish");
    }
    for copy in response["copies"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(&format!("An older copy may still hold the user's data: {copy}"));
    }
}
