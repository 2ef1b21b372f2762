//! The lists of users, roles and branches, whole: commands print them and find rows by name in them.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::super::backend::Backend;
use super::super::error::CliError;
use super::super::print;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum List {
    Users,
    Roles,
    Branches,
}

impl List {
    const fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Roles => "roles",
            Self::Branches => "branches",
        }
    }
}

/// All rows of a list.
async fn rows(backend: &Backend, list: List) -> Result<Vec<Value>, CliError> {
    let (name, mut rows, mut after) = (list.name(), Vec::new(), Value::Null);
    loop {
        let query = if after.is_null() { String::new() } else { format!("&after={after}") };
        let mut page = backend.get(&format!("/api/people/{name}?limit=1000{query}")).await?;
        after = page["next_after"].take();
        if let Value::Array(found) = page[name].take() {
            rows.extend(found);
        }
        if after.is_null() {
            return Ok(rows);
        }
    }
}

/// Prints a list.
pub(super) async fn show(backend: &Backend, list: List, json: bool) -> Result<(), CliError> {
    let found = rows(backend, list).await?;
    if json {
        print::json(&json!({list.name(): found, "next_after": null}));
        return Ok(());
    }
    match list {
        List::Users => {
            let roles = rows(backend, List::Roles).await?;
            let heading = ["USER", "NAME", "EMAIL", "PHONE", "BRANCH", "ROLES", "LOCALE", "STATE"];
            print::list(&found, "No users.", &heading, |user| {
                let name = format!("{} {}", print::cell(user, "first_name"), print::cell(user, "last_name"));
                let state = if user["active"] == true { "active" } else { "deactivated" };
                let [id, email, phone, branch, locale] =
                    ["id", "email", "phone", "branch_id", "locale"].map(|field| print::cell(user, field));
                vec![id, name.trim().to_owned(), email, phone, branch, names(user, &roles), locale, state.to_owned()]
            });
        }
        List::Roles => print::list(&found, "No roles.", &["ROLE", "NAME", "PERMISSIONS"], |role| {
            let lines: Vec<String> = print::rows(role, "permissions").iter().map(permission).collect();
            vec![print::cell(role, "id"), print::cell(role, "name"), if lines.is_empty() { "-".to_owned() } else { lines.join("\n") }]
        }),
        List::Branches => print::list(&found, "No branches.", &["BRANCH", "NAME", "TIME ZONE"], |branch| {
            print::fields(branch, &["id", "name", "time_zone"])
        }),
    }
    Ok(())
}

/// The names of a user's roles.
fn names(user: &Value, roles: &[Value]) -> String {
    let name = |id: &Value| roles.iter().find(|role| role["id"] == *id).map_or_else(|| id.to_string(), |role| print::cell(role, "name"));
    let names: Vec<String> = print::rows(user, "role_ids").iter().map(name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// A row with its permissions as commands take them, one per line.
pub(super) fn readable(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(list) = row.get("permissions").and_then(Value::as_array) {
        let lines: Vec<String> = list.iter().map(permission).collect();
        row["permissions"] = lines.join("\n").into();
    }
    row
}

/// A permission as commands take it.
fn permission(line: &Value) -> String {
    ["entity", "entity_type", "access", "scope"].map(|field| print::cell(line, field)).join(":")
}

/// The ids of roles, by number or name.
pub(super) async fn role_ids(backend: &Backend, named: &[String]) -> Result<Value, CliError> {
    let all_numbers: Result<Vec<i64>, _> = named.iter().map(|text| text.parse()).collect();
    if let Ok(ids) = all_numbers {
        return Ok(json!(ids));
    }
    let roles = rows(backend, List::Roles).await?;
    named.iter().map(|text| id_of(&roles, "role", text)).collect::<Result<Vec<i64>, _>>().map(|ids| json!(ids))
}

/// The id of a role or branch, by number or name.
pub(super) async fn id(backend: &Backend, list: List, text: &str) -> Result<i64, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let kind = if list == List::Roles { "role" } else { "branch" };
    id_of(&rows(backend, list).await?, kind, text)
}

fn id_of(rows: &[Value], kind: &str, text: &str) -> Result<i64, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut found = rows.iter().filter(|row| row["name"] == text).filter_map(|row| row["id"].as_i64());
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (Some(_), Some(_)) => Err(CliError::Usage(format!("several have the name {text}; give the number of the {kind}"))),
        (None, _) => Err(CliError::refused("not_found", format!("there is no {kind} {text}"))),
    }
}
