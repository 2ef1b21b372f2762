//! `werkruf people role …` and `werkruf people branch …`.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::super::backend::Backend;
use super::super::error::CliError;
use super::super::print;
use super::lists::{self, List};
use super::print_row;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum RoleCommand {
    /// One role with its permissions
    #[command(after_help = "Examples:\n  werkruf people role show lead")]
    Show {
        /// Number or name of the role
        role: String,
    },
    /// Add a role
    #[command(
        after_help = "Examples:\n  werkruf people role add auditor table_requests:table:read:all\n  werkruf people role add guest --id 9"
    )]
    Add {
        name: String,
        /// Permissions as entity:entity_type:access:scope
        #[arg(value_name = "PERMISSION")]
        permissions: Vec<String>,
        /// Number of the role; the next free one without it
        #[arg(long, value_name = "NUMBER")]
        id: Option<i64>,
    },
    /// Rename a role
    #[command(after_help = "Examples:\n  werkruf people role set 2 --name team_lead")]
    Set {
        /// Number or name of the role
        role: String,
        #[arg(long)]
        name: String,
    },
    /// Set all permissions of a role; without permissions the role has none
    #[command(
        after_help = "Examples:\n  werkruf people role permissions lead table_requests:table:both:branch table_users:table:read:branch\n\n\
                            A permission is entity:entity_type:access:scope. Access is read, write or both; scope is own, branch or all."
    )]
    Permissions {
        /// Number or name of the role
        role: String,
        #[arg(value_name = "PERMISSION")]
        permissions: Vec<String>,
    },
    /// Delete a role that no user has
    #[command(after_help = "Examples:\n  werkruf people role delete auditor")]
    Delete {
        /// Number or name of the role
        role: String,
    },
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BranchCommand {
    /// One branch
    #[command(after_help = "Examples:\n  werkruf people branch show 1")]
    Show {
        /// Number or name of the branch
        branch: String,
    },
    /// Add a branch
    #[command(after_help = "Examples:\n  werkruf people branch add Madrid --time-zone Europe/Madrid")]
    Add {
        name: String,
        #[arg(long, value_name = "ZONE")]
        time_zone: String,
        /// Number of the branch; the next free one without it
        #[arg(long, value_name = "NUMBER")]
        id: Option<i64>,
    },
    /// Change a branch
    #[command(after_help = "Examples:\n  werkruf people branch set 1 --name 'Madrid Centro'")]
    Set {
        /// Number or name of the branch
        branch: String,
        #[arg(long, required_unless_present = "time_zone")]
        name: Option<String>,
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
    },
    /// Delete a branch that no user has
    #[command(after_help = "Examples:\n  werkruf people branch delete 3")]
    Delete {
        /// Number or name of the branch
        branch: String,
    },
}

pub(super) async fn role(backend: &Backend, command: RoleCommand, json: bool) -> Result<(), CliError> {
    let path = async |role: &str| Ok::<_, CliError>(format!("/api/people/roles/{}", lists::id(backend, List::Roles, role).await?));
    let row = match command {
        RoleCommand::Show { role } => backend.get(&path(&role).await?).await?,
        RoleCommand::Add { name, permissions, id } => {
            let body = json!({"id": id, "name": name, "permissions": parsed(&permissions)?});
            backend.post("/api/people/roles", &body).await?
        }
        RoleCommand::Set { role, name } => backend.patch(&path(&role).await?, &json!({"name": name})).await?,
        RoleCommand::Permissions { role, permissions } => {
            let permissions = parsed(&permissions)?;
            backend.put(&format!("{}/permissions", path(&role).await?), &permissions).await?
        }
        RoleCommand::Delete { role } => return delete(backend, &path(&role).await?, json).await,
    };
    print_row(&row, json)
}

pub(super) async fn branch(backend: &Backend, command: BranchCommand, json: bool) -> Result<(), CliError> {
    let path =
        async |branch: &str| Ok::<_, CliError>(format!("/api/people/branches/{}", lists::id(backend, List::Branches, branch).await?));
    let row = match command {
        BranchCommand::Show { branch } => backend.get(&path(&branch).await?).await?,
        BranchCommand::Add { name, time_zone, id } => {
            backend.post("/api/people/branches", &json!({"id": id, "name": name, "time_zone": time_zone})).await?
        }
        BranchCommand::Set { branch, name, time_zone } => {
            let fields = [("name", name), ("time_zone", time_zone)];
            let body: Map<String, Value> = fields.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text?.into()))).collect();
            backend.patch(&path(&branch).await?, &Value::Object(body)).await?
        }
        BranchCommand::Delete { branch } => return delete(backend, &path(&branch).await?, json).await,
    };
    print_row(&row, json)
}

async fn delete(backend: &Backend, path: &str, json: bool) -> Result<(), CliError> {
    backend.delete(path).await?;
    let id = path.rsplit('/').next().unwrap_or_default();
    if json {
        print::json(&json!({"deleted": id}))
    } else {
        print::line(&format!("deleted {id}"))
    }
    Ok(())
}

/// Permissions from `entity:entity_type:access:scope`.
fn parsed(permissions: &[String]) -> Result<Value, CliError> {
    let parse = |text: &String| match text.split(':').collect::<Vec<_>>()[..] {
        [entity, entity_type, access, scope] => Ok(json!({"entity": entity, "entity_type": entity_type, "access": access, "scope": scope})),
        _ => Err(CliError::Usage(format!("`{text}` is no permission; write one such as table_requests:table:read:own"))),
    };
    permissions.iter().map(parse).collect()
}
