//! Approvals over channels: who is asked for a decision and where, and who is told what was decided.

use std::collections::HashMap;

use serde_json::Value;
use werkruf_contract::{ApprovalStatus, Clock, Principal, Texts};
use werkruf_store::{ApprovalRow, ContactRow, NewApproval, NewOutboxRow, OutboxRow, PersonAddress, StoreError};

use super::scope::TurnScope;
use crate::channel::OutboxBody;
use crate::journal::{new_row, plain_name, to_person};

/// The longest list of arguments in a request for a decision, in characters: a message with buttons is short on every channel.
const ARGUMENT_CHARS: usize = 600;

/// The rows that ask for a decision: one for every person with an approver role who has an address on a channel, but not for whoever asked.
pub(crate) async fn approver_rows(scope: &TurnScope, approval: &NewApproval) -> Result<Vec<NewOutboxRow>, StoreError> {
    let channels = &scope.setup.channels;
    if channels.of_people().next().is_none() {
        return Ok(Vec::new());
    }
    let people = scope.people.users_with_roles(scope.tenant_id(), approval.approver_roles.clone()).await?;
    let others = people.into_iter().filter(|person| {
        let id = person.user_id.to_string();
        approval.asked_by != id && approval.retried_by.as_ref() != Some(&id)
    });
    let mut left: Vec<PersonAddress> = others.collect();
    let mut rows = Vec::new();
    for channel in channels.of_people() {
        let ids = left.iter().map(|person| person.user_id.to_string()).collect();
        let contacts = scope.outbox.contacts_of(scope.tenant_id(), channel.name().to_owned(), ids).await?;
        let mut known: HashMap<String, ContactRow> = HashMap::new();
        for contact in contacts {
            // The one that the person used last comes first.
            known.entry(contact.user_id.clone()).or_insert(contact);
        }
        left.retain(|person| {
            let id = person.user_id.to_string();
            let written = known.get(&id).map(|contact| (contact.account.clone(), contact.address.clone()));
            let Some((account, address)) = written.or_else(|| channel.address_of(scope.tenant_id(), person)) else { return true };
            let body = request(&scope.caller.principal, approval, &Texts::of(&person.locale));
            let recipient = to_person(channel.name(), &account, &address, &id);
            rows.push(scope.journal.audience().row(recipient, Some(approval.id), &body));
            false
        });
    }
    Ok(rows)
}

/// What is decided, for a person.
fn request(asker: &Principal, approval: &NewApproval, texts: &Texts) -> OutboxBody {
    let name = if asker.name.is_empty() { asker.user_id.as_str() } else { asker.name.as_str() };
    let mut text = texts.text("channel-approval", &[("name", name.into()), ("tool", plain_name(&approval.tool_name).into())]);
    let arguments = arguments(&approval.arguments);
    if !arguments.is_empty() {
        text.push('\n');
        text.push_str(&arguments);
    }
    let (approve, deny) = (texts.text("channel-approve", &[]), texts.text("channel-deny", &[]));
    OutboxBody::Approval { text, approval_id: approval.id, approve, deny }
}

/// The arguments, one per line and cut.
fn arguments(stored: &str) -> String {
    let given: Value = serde_json::from_str(stored).unwrap_or_default();
    let lines = given.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}: {value}", plain_name(name))
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    match lines.char_indices().nth(ARGUMENT_CHARS) {
        Some((end, _)) => format!("{}…", &lines[..end]),
        None => lines,
    }
}

/// The rows that tell the others what was decided: everybody who got buttons, but not whoever decided.
pub(crate) fn decision_rows(
    approval: &ApprovalRow,
    decided_by: &str,
    asked: &[OutboxRow],
    locale_of: impl Fn(&str) -> String,
    clock: &Clock,
) -> Vec<NewOutboxRow> {
    let key = if approval.status == ApprovalStatus::Approved { "channel-approved" } else { "channel-denied" };
    let tool = plain_name(&approval.tool_name);
    let others = asked.iter().filter(|row| row.recipient.user_id.is_some() && row.recipient.user_id != approval.decided_by);
    let told = others.map(|row| {
        let texts = Texts::of(&locale_of(row.recipient.user_id.as_deref().unwrap_or_default()));
        let text = texts.text(key, &[("name", decided_by.into()), ("tool", (&tool).into())]);
        NewOutboxRow { conversation_id: row.conversation_id, ..new_row(clock, row.recipient.clone(), &OutboxBody::Text { text }) }
    });
    told.collect()
}
