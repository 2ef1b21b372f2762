//! What is sent about a commit of a turn: the answer or the error to the person on a channel, and notifications to programs. The rows are
//! written in the commit that they announce.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use werkruf_contract::{Clock, ErrorCode, Tenant, Texts, TurnStatus, Uuid};
use werkruf_store::{CallEnd, NewApproval, NewOutboxRow, OutboxRow, Recipient, TurnChange, TurnWrite};

use crate::channel::{Inbound, OutboxBody, ReplyTo};
use crate::channels::{Channels, Notification, WEBHOOK};
use crate::setup::Setup;
use crate::stored::{json as to_json, object};

/// Whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct TurnOwner {
    pub(crate) tenant_id: Uuid,
    /// Empty where it is not known; then only webhooks of all tenants are told.
    pub(crate) tenant_slug: String,
    pub(crate) conversation_id: Option<Uuid>,
    pub(crate) turn_id: Uuid,
    pub(crate) user_id: String,
}

/// Who is told about a turn.
#[derive(Clone)]
pub(crate) struct Audience {
    pub(crate) owner: TurnOwner,
    pub(crate) setup: Arc<Setup>,
    pub(crate) clock: Clock,
    reply_to: Option<ReplyTo>,
    /// The sender was told already that they write too much.
    silent: bool,
}

impl Audience {
    pub(crate) fn new(owner: TurnOwner, setup: Arc<Setup>, clock: Clock, inbound: Option<&Inbound>) -> Self {
        let silent = inbound.and_then(|inbound| inbound.over_limit).is_some_and(|over| over.silent);
        Self { owner, setup, clock, reply_to: inbound.map(|inbound| inbound.reply_to.clone()), silent }
    }

    /// What is sent about a write.
    pub(super) fn rows_of(&self, write: &TurnWrite) -> Vec<NewOutboxRow> {
        let unknown = |end: &&CallEnd| end.error_code.as_deref() == Some(ErrorCode::OutcomeUnknown.as_str());
        let mut rows: Vec<NewOutboxRow> = Vec::new();
        for end in write.ends.iter().filter(unknown) {
            rows.extend(self.notify(Notification::OutcomeUnknown, &json!({"call_id": end.id, "status": end.status})));
        }
        rows.extend(self.approvals(&write.approvals));
        if let Some(change) = write.turn.as_ref().filter(|change| change.status.is_terminal()) {
            rows.extend(self.end(change));
        }
        rows
    }

    /// What programs are told about new approvals.
    pub(crate) fn approvals(&self, approvals: &[NewApproval]) -> Vec<NewOutboxRow> {
        let told = approvals.iter().flat_map(|approval| {
            let mut details = json!({
                "approval_id": approval.id, "call_id": approval.call_id, "tool": approval.tool_name,
                "approver_roles": approval.approver_roles, "expires_at": format!("{:.3}", approval.expires_at),
            });
            if let Some(server) = &approval.server_label {
                details["server_label"] = json!(server);
            }
            self.notify(Notification::ApprovalRequired, &details)
        });
        told.collect()
    }

    /// What is sent about the end of the turn. A canceled turn is answered like a failed one: whoever waits on a channel cannot see who
    /// canceled it, and would wait for good.
    pub(crate) fn end(&self, change: &TurnChange) -> Vec<NewOutboxRow> {
        let error = change.error.as_ref();
        let mut rows = match error {
            None => self.text(change.message.as_deref().unwrap_or_default()),
            Some(_) if self.silent => Vec::new(),
            Some((stored, _)) => {
                let error = serde_json::from_str::<Value>(stored).unwrap_or_default();
                self.text(error["message"].as_str().unwrap_or_default())
            }
        };
        let notification = if change.status == TurnStatus::Completed { Notification::TurnFinished } else { Notification::TurnFailed };
        let mut details = json!({"status": change.status});
        if let Some((_, code)) = error {
            details["error_code"] = json!(code);
        }
        rows.extend(self.notify(notification, &details));
        rows
    }

    /// The person waits until somebody decides: which calls, and whose approval they need.
    pub(crate) fn waits(&self, calls: &[(&str, &[String])], texts: &Texts) -> Vec<NewOutboxRow> {
        let lines = calls
            .iter()
            .map(|(tool, roles)| texts.text("channel-waits", &[("tool", plain_name(tool).into()), ("roles", roles.join(", ").into())]));
        self.text(&lines.collect::<Vec<_>>().join("\n"))
    }

    /// A text for the person who wrote, in as many parts as the channel needs.
    fn text(&self, text: &str) -> Vec<NewOutboxRow> {
        let Some(ReplyTo { channel, account, address }) = &self.reply_to else { return Vec::new() };
        let parts = self.setup.channels.find(channel).map_or_else(|| vec![text.to_owned()], |channel| channel.parts(text));
        let to = to_person(channel, account, address, &self.owner.user_id);
        parts.into_iter().map(|text| self.row(to.clone(), None, &OutboxBody::Text { text })).collect()
    }

    /// A row about this turn, for a person.
    pub(crate) fn row(&self, recipient: Recipient, approval_id: Option<Uuid>, body: &OutboxBody) -> NewOutboxRow {
        NewOutboxRow {
            conversation_id: self.owner.conversation_id,
            turn_id: Some(self.owner.turn_id),
            approval_id,
            ..new_row(&self.clock, recipient, body)
        }
    }

    fn notify(&self, notification: Notification, details: &Value) -> Vec<NewOutboxRow> {
        let TurnOwner { tenant_id, tenant_slug, conversation_id, turn_id, user_id } = &self.owner;
        let tenant = Tenant { id: *tenant_id, slug: tenant_slug };
        let subject = Subject { conversation_id: *conversation_id, turn_id: Some(*turn_id), user_id: Some(user_id) };
        notifications(&self.setup.channels, tenant, notification, subject, details, &self.clock)
    }
}

/// What a notification is about.
#[derive(Clone, Copy)]
struct Subject<'a> {
    conversation_id: Option<Uuid>,
    turn_id: Option<Uuid>,
    user_id: Option<&'a str>,
}

/// What programs are told about a row that is dead. A dead notification is told to the other webhooks only, and a notification about a dead row
/// to none, so that nothing announces itself.
pub(crate) fn dead_letter(channels: &Channels, tenant: Tenant<'_>, row: &OutboxRow, code: &str, clock: &Clock) -> Vec<NewOutboxRow> {
    let to = &row.recipient;
    let body = serde_json::from_str::<Value>(&row.body).unwrap_or_default();
    if body["event"]["type"] == Notification::DeadLetter.as_str() {
        return Vec::new();
    }
    let subject = Subject { conversation_id: row.conversation_id, turn_id: row.turn_id, user_id: to.user_id.as_deref() };
    let details = json!({"outbox_id": row.id, "channel": to.channel, "account": to.account, "error_code": code, "attempts": row.attempts});
    let rows = notifications(channels, tenant, Notification::DeadLetter, subject, &details, clock);
    rows.into_iter().filter(|told| to.channel != WEBHOOK || told.recipient.account != to.account).collect()
}

/// What programs are told about an alert of a tenant, or of the server under the nil id. A person whom it names is given, so that their erasure finds
/// the rows.
pub(crate) fn alert_rows(
    channels: &Channels,
    tenant: Tenant<'_>,
    notification: Notification,
    user_id: Option<&str>,
    details: &Value,
    clock: &Clock,
) -> Vec<NewOutboxRow> {
    let nobody = Subject { conversation_id: None, turn_id: None, user_id: None };
    let mut rows = notifications(channels, tenant, notification, nobody, details, clock);
    rows.iter_mut().for_each(|row| row.recipient.user_id = user_id.map(str::to_owned));
    rows
}

fn notifications(
    channels: &Channels,
    tenant: Tenant<'_>,
    notification: Notification,
    subject: Subject<'_>,
    details: &Value,
    clock: &Clock,
) -> Vec<NewOutboxRow> {
    let told = channels.webhooks_for(tenant, notification).map(|webhook| {
        let recipient = Recipient {
            channel: WEBHOOK.to_owned(),
            account: webhook.name.clone(),
            address: webhook.name.clone(),
            // The body names the person, so their erasure must find the row.
            user_id: subject.user_id.map(str::to_owned),
            lane: format!("{WEBHOOK}:{}:{}", webhook.name, subject.conversation_id.or(subject.turn_id).unwrap_or(tenant.id)),
        };
        let row = new_row(clock, recipient, &OutboxBody::Notification { event: Value::Null });
        // What is about the server has no tenant.
        let tenant_id = Some(tenant.id).filter(|id| !id.is_nil());
        let head = json!({"id": row.id, "type": notification.as_str(), "at": format!("{:.3}", row.next_at), "tenant_id": tenant_id});
        let names = json!({"conversation_id": subject.conversation_id, "turn_id": subject.turn_id, "user_id": subject.user_id});
        let known = |(_, value): &(String, Value)| !value.is_null();
        let head = [head, names].into_iter().flat_map(object).filter(known);
        let event: Map<String, Value> = head.chain(object(details.clone())).collect();
        NewOutboxRow {
            conversation_id: subject.conversation_id,
            turn_id: subject.turn_id,
            body: to_json(&OutboxBody::Notification { event: Value::Object(event) }),
            repeatable: true,
            ..row
        }
    });
    told.collect()
}

/// A row about nothing in particular, due now. A person's channel cannot tell a repeated sending from a new one.
pub(crate) fn new_row(clock: &Clock, recipient: Recipient, body: &OutboxBody) -> NewOutboxRow {
    let next_at: Timestamp = clock.now();
    NewOutboxRow {
        id: clock.new_id(),
        recipient,
        conversation_id: None,
        turn_id: None,
        approval_id: None,
        body: to_json(body),
        repeatable: false,
        dead: None,
        next_at,
    }
}

/// A person at an address of a channel. All that goes there leaves in order.
pub(crate) fn to_person(channel: &str, account: &str, address: &str, user_id: &str) -> Recipient {
    Recipient {
        channel: channel.to_owned(),
        account: account.to_owned(),
        address: address.to_owned(),
        user_id: Some(user_id.to_owned()),
        lane: format!("{channel}:{account}:{address}"),
    }
}

/// The name of a tool in plain words.
pub(crate) fn plain_name(tool: &str) -> String {
    tool.replace(['_', '-'], " ")
}

#[cfg(test)]
#[path = "announce_tests.rs"]
mod tests;
