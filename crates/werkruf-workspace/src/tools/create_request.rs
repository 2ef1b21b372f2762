//! `create_request`: writes a request into the workspace after a lead or an admin approved the call.

use std::borrow::Cow;

use crate::store::RequestDraft;
use crate::texts::TEXTS;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Effect, ErrorCode, Failure, Invocation, Reply, Tool, ToolErrorType, ToolSpec};
use werkruf_store::StoreError;

use super::access::{WorkspaceAccess, denied, spec};
use super::days::Day;
use super::phrase::Phrase;
use super::render;
use super::whole_number::WholeNumber;
use super::work_list::WorkItem;

/// Limits in characters.
const MAX_TITLE_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 10_000;

pub(super) struct CreateRequest(pub(super) WorkspaceAccess);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// What is asked for, in one line
    title: String,
    /// More details
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Due date as YYYY-MM-DD, or 'today', 'tomorrow', 'next_week'
    #[serde(rename = "dueDate", skip_serializing_if = "Option::is_none")]
    due_date: Option<String>,
    /// Id of the user who is to do it; leave it out if no user was named
    #[serde(rename = "responsibleId", skip_serializing_if = "Option::is_none")]
    responsible_id: Option<WholeNumber>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Created {
    #[serde(flatten)]
    item: WorkItem,
    message: String,
}

impl Tool for CreateRequest {
    type Args = Args;
    type Output = Created;

    fn spec(&self) -> ToolSpec {
        let description = "Creates a request (Anfrage, Solicitud) in the caller's name. A lead or an admin must approve it first. Use it only when the person asks for a new request.";
        let mut spec = spec("create_request", description, Some("table_requests:table:write"));
        spec.effect = Effect::Once;
        spec.approval = vec![Cow::Borrowed("lead"), Cow::Borrowed("admin")];
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Created>, Failure> {
        let principal = &invocation.principal;
        let Ok(requester_id) = principal.user_id.parse::<i64>() else { return Err(denied(&invocation)) };
        let title = render::line(&args.title);
        check_length("title", &title, 1, MAX_TITLE_CHARS)?;
        check_length("description", args.description.as_deref().unwrap_or_default(), 0, MAX_DESCRIPTION_CHARS)?;
        let due = args.due_date.as_deref().map(|text| Day::read("dueDate", text)).transpose()?;
        let draft = RequestDraft {
            title,
            description: args.description.filter(|text| !text.trim().is_empty()),
            due_date: due.map(|day| day.days(self.0.today(&invocation)).to),
            requester_id,
            responsible_id: args.responsible_id.map(|WholeNumber(id)| id),
            branch_id: principal.branch_id,
        };
        let written = self.0.workspace.create_request(principal.tenant_id, draft, self.0.clock.now()).await;
        let Some(row) = written.map_err(|error| write_failed(&error))? else {
            let message = "responsibleId is not the id of a user. Leave it out, or ask who is to do it.";
            return Err(Failure::validation(ErrorCode::InvalidArguments, message));
        };
        let texts = invocation.texts().with(&TEXTS);
        let message = texts.text("request-created", &[("id", row.id.to_string().into()), ("title", row.title.clone().into())]);
        let mut reply = Reply::new(Created { item: row.into(), message: message.clone() });
        reply.message = Some(message);
        Ok(reply)
    }

    fn propose(&self, text: &str, locale: &str, today: Date) -> Option<Args> {
        let title = Phrase::read(text, locale, today).new_request()?;
        Some(Args { title, description: None, due_date: None, responsible_id: None })
    }
}

fn check_length(field: &str, text: &str, least: usize, most: usize) -> Result<(), Failure> {
    let count = text.chars().count();
    if (least..=most).contains(&count) {
        return Ok(());
    }
    Err(Failure::validation(ErrorCode::InvalidArguments, format!("{field} must have {least} to {most} characters; it has {count}.")))
}

/// If the store did not answer, the row may have been written.
fn write_failed(error: &StoreError) -> Failure {
    let message = "The request could not be written.";
    let failure = match error {
        StoreError::Unavailable(_) => Failure::new(ToolErrorType::Retryable, "database_unavailable", message).may_have_happened(),
        _ => Failure::fatal("internal", message).nothing_happened(),
    };
    failure.because(error.to_string())
}
