//! Approvals over channels: who is asked for a decision and where, and who is told what was decided.

use std::collections::HashMap;

use serde_json::Value;
use werkruf_contract::{ApprovalStatus, Clock, Principal, Texts};
use werkruf_store::{ApprovalRow, ContactRow, NewApproval, NewOutboxRow, OutboxRow, PersonAddress, StoreError};

use super::scope::TurnScope;
use crate::channel::OutboxBody;
use crate::journal::{new_row, plain_name, to_person};

/// The longest list of arguments in a request for a decision, in UTF-16 units: a message with buttons is short on every channel.
const ARGUMENT_UNITS: usize = 600;

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
            if !known.contains_key(&contact.user_id)
                && channel.sends_for(scope.tenant_id(), &contact.account)
                && is_still_theirs(scope, &contact).await?
            {
                known.insert(contact.user_id.clone(), contact);
            }
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

/// Whether the address that a person once wrote from is one of theirs now: a number may belong to somebody else by then.
async fn is_still_theirs(scope: &TurnScope, contact: &ContactRow) -> Result<bool, StoreError> {
    let address = Some(contact.address.clone());
    let owners = scope.people.users_by_address(scope.tenant_id(), address.clone(), address).await?;
    Ok(owners.iter().any(|person| person.user_id.to_string() == contact.user_id))
}

/// What is decided, for a person.
fn request(asker: &Principal, approval: &NewApproval, texts: &Texts) -> OutboxBody {
    let name = if asker.name.is_empty() { asker.user_id.as_str() } else { asker.name.as_str() };
    let tool = match &approval.server_label {
        Some(server) => format!("{} ({})", plain_name(&approval.tool_name), one_line(server)),
        None => plain_name(&approval.tool_name),
    };
    let mut text = texts.text("channel-approval", &[("name", name.into()), ("tool", tool.into())]);
    let (arguments, missing) = arguments(&approval.arguments);
    if !arguments.is_empty() {
        text.push('\n');
        text.push_str(&arguments);
    }
    if missing > 0 {
        text.push('\n');
        text.push_str(&texts.text("channel-approval-cut", &[("missing", missing.into()), ("id", approval.id.to_string().into())]));
    }
    let (approve, deny) = (texts.text("channel-approve", &[]), texts.text("channel-deny", &[]));
    OutboxBody::Approval { text, approval_id: approval.id, approve, deny }
}

/// The arguments, one per line and cut, and how many characters are missing. Texts are in quotes and on one line, so that none can look
/// like a further argument.
fn arguments(stored: &str) -> (String, usize) {
    let given: Value = serde_json::from_str(stored).unwrap_or_default();
    let lines = given
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| one_line(&format!("{}: {value}", plain_name(name))));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let mut units = 0;
    let end = lines.char_indices().find(|(_, sign)| {
        units += sign.len_utf16();
        units > ARGUMENT_UNITS
    });
    match end {
        Some((end, _)) => (format!("{}…", &lines[..end]), lines[end..].chars().count()),
        None => (lines, 0),
    }
}

/// A text that stays on its line.
fn one_line(text: &str) -> String {
    text.chars().fold(String::new(), |mut shown, sign| {
        if breaks_or_turns(sign) {
            shown.extend(sign.escape_unicode())
        } else {
            shown.push(sign)
        }
        shown
    })
}

/// Whether a character begins a new line or turns the direction of what follows. JSON escapes only some of them.
fn breaks_or_turns(sign: char) -> bool {
    sign.is_control()
        || matches!(sign, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_stays_on_its_line_and_what_is_cut_is_counted() {
        let given = json!({"amount": 5, "none": null, "to_account": "a\nb: \"2\"\u{2028}c\u{202e}d", "items": ["x\ny"]});
        let shown = "amount: 5\nitems: [\"x\\ny\"]\nto account: \"a\\nb: \\\"2\\\"\\u{2028}c\\u{202e}d\"";
        let (lines, missing) = arguments(&given.to_string());
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!((sorted(&lines), missing), (sorted(shown), 0));
        assert_eq!(arguments(&json!({"forged\nname": 1}).to_string()).0, "forged\\u{a}name: 1");
        let (lines, missing) = arguments(&json!({"t": "😀".repeat(400)}).to_string());
        assert!(lines.ends_with('…') && lines.encode_utf16().count() <= ARGUMENT_UNITS + 1, "{lines}");
        assert_eq!(missing + lines.chars().count() - 1, "t: \"\"".len() + 400);
        assert_eq!(arguments("{}"), (String::new(), 0));
    }
}
