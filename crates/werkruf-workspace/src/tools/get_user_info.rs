//! `get_user_info`: the caller's own profile, or that of a user within the caller's permission scope.

use crate::store::{PersonRow, Target};
use crate::texts::TEXTS;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Access, ErrorCode, Failure, Invocation, Need, NeedForOthers, Reply, Scope, Texts, Tool, ToolSpec};

use super::access::{OwnerFilter, WorkspaceAccess, denied, failed, spec};
use super::phrase::Phrase;
use super::render;
use super::whole_number::WholeNumber;

pub(super) struct GetPerson(pub(super) WorkspaceAccess);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Id of another user; leave it out for the person who asks
    #[serde(rename = "userId", skip_serializing_if = "Option::is_none")]
    user_id: Option<WholeNumber>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Person {
    id: i64,
    first_name: String,
    last_name: String,
    email: Option<String>,
    branch: Option<String>,
    roles: Vec<String>,
    message: String,
}

impl Tool for GetPerson {
    type Args = Args;
    type Output = Person;

    fn spec(&self) -> ToolSpec {
        let mut spec = spec("get_user_info", "Looks up a user: name, email, branch and roles. Without userId the person who asks.", None);
        // The caller's own profile needs no permission.
        spec.permission_for_others = Some(NeedForOthers { need: other_profiles(), argument: "userId" });
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Person>, Failure> {
        let owner = OwnerFilter { user_id: args.user_id, branch_id: None };
        // No permission counts as `own`.
        let grant = invocation.principal.grant(&other_profiles()).unwrap_or(Scope::Own);
        let row_scope = self.0.row_scope(&invocation, grant, owner).await?;
        let target = row_scope.target;
        let found = self.0.workspace.person(invocation.principal.tenant_id, row_scope).await.map_err(|error| failed(&error))?;
        let texts = invocation.texts().with(&TEXTS);
        let Some(row) = found else {
            return Err(match target {
                Target::User(_) => Failure::validation(ErrorCode::UnknownUser, texts.text("call-unknown_user", &[])),
                Target::Own | Target::Branch(_) => denied(&invocation),
            });
        };
        let message = message(&texts, &row);
        let PersonRow { id, first_name, last_name, email, branch, roles, branch_id: _ } = row;
        let mut reply = Reply::new(Person { id, first_name, last_name, email, branch, roles, message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let person = Phrase::read(text, locale, today).user()?;
        Some(Args { user_id: person.map(WholeNumber) })
    }
}

/// Other profiles need the scope of `table_users`.
fn other_profiles() -> Need {
    Need { entity: "table_users".to_owned(), entity_type: "table".to_owned(), access: Access::Read }
}

fn message(texts: &Texts, row: &PersonRow) -> String {
    let id = row.id.to_string();
    let name = [("first", (&row.first_name).into()), ("last", (&row.last_name).into()), ("id", id.into())];
    let mut lines = Vec::new();
    lines.extend(row.email.as_ref().map(|email| texts.text("person-email", &[("email", email.into())])));
    lines.extend(row.branch.as_ref().map(|branch| texts.text("person-branch", &[("branch", branch.into())])));
    lines.push(if row.roles.is_empty() {
        texts.text("person-no-roles", &[])
    } else {
        texts.text("person-roles", &[("roles", row.roles.join(", ").into())])
    });
    render::list(texts.text("person-name", &name), lines, None)
}
