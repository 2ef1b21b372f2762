//! `get_user_info`: who the caller is, or another person whom the caller may see.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Access, Failure, Invocation, Need, Reply, Scope, Texts, Tool, ToolSpec};
use werkruf_store::{PersonRow, Target};

use super::desk::{Desk, Whose, denied, failed, spec, words};
use super::phrase::Phrase;
use super::render;
use super::whole::Whole;

pub(super) struct GetPerson(pub(super) Desk);

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Id of another user; leave it out for the person who asks
    #[serde(rename = "userId", skip_serializing_if = "Option::is_none")]
    user_id: Option<Whole>,
}

#[derive(Debug, Serialize)]
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
        spec("get_user_info", "Looks up a user: name, email, branch and roles. Without userId the person who asks.", None)
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Person>, Failure> {
        let whose = Whose { user_id: args.user_id, branch_id: None };
        // Oneself needs no right; anybody else follows the scope of the users' table, and no right at all is like `own`.
        let need = Need { entity: "table_users".to_owned(), entity_type: "table".to_owned(), access: Access::Read };
        let grant = invocation.principal.grant(&need).unwrap_or(Scope::Own);
        let reach = self.0.reach(&invocation, grant, whose).await?;
        let target = reach.target;
        let found = self.0.workspace.person(invocation.principal.tenant_id, reach).await.map_err(|error| failed(&error))?;
        let words = words(&invocation);
        let Some(row) = found else {
            return Err(match target {
                Target::User(_) => Failure::validation("unknown_user", words.text("call-unknown_user", &[])),
                Target::Own | Target::Branch(_) => denied(&invocation),
            });
        };
        let message = message(&words, &row);
        let PersonRow { id, first_name, last_name, email, branch, roles, branch_id: _ } = row;
        let mut reply = Reply::new(Person { id, first_name, last_name, email, branch, roles, message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let person = Phrase::read(text, locale, today).user()?;
        Some(Args { user_id: person.map(Whole) })
    }
}

fn message(words: &Texts, row: &PersonRow) -> String {
    let id = row.id.to_string();
    let name = [("first", (&row.first_name).into()), ("last", (&row.last_name).into()), ("id", id.into())];
    let mut lines = Vec::new();
    lines.extend(row.email.as_ref().map(|email| words.text("person-email", &[("email", email.into())])));
    lines.extend(row.branch.as_ref().map(|branch| words.text("person-branch", &[("branch", branch.into())])));
    lines.push(if row.roles.is_empty() {
        words.text("person-no-roles", &[])
    } else {
        words.text("person-roles", &[("roles", row.roles.join(", ").into())])
    });
    render::list(words.text("person-name", &name), lines, None)
}
