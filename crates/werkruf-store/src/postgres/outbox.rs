//! [`Outbox`], [`ChannelStore`] and [`ManageOutbox`] on PostgreSQL. Functions of the schema (`functions/outbox.sql`) decide under the lock of a lane.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::record;
use super::fault::Fault;
use super::flush::DbRole;
use super::param::{ms, ms_or_null, p};
use super::records::{List, ListColumns, Value};
use super::row::{CONTACT, OUTBOX, all, contact, first, only, outbox};
use super::text::{clean, clean_json};
use super::turn_documents::document;
use super::turn_open::Entry;
use crate::outbox::{released, retried};
use crate::{
    Account, Author, ChannelStore, Claim, Claimed, ContactRow, DeliveryReport, DueAccount, ManageOutbox, NewContact, NewOutboxRow, Outbox,
    OutboxFilter, OutboxRow, Page, RecordedInbound, ReportedStatus, SendEnd, Settlement, StoreFuture,
};

impl Outbox for PostgresStore {
    fn contacts_of(&self, tenant_id: Uuid, channel: String, user_ids: Vec<String>) -> StoreFuture<'_, Vec<ContactRow>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT {CONTACT} FROM contacts WHERE tenant_id = $1 AND user_id = ANY ($2) AND channel = $3
                 ORDER BY array_position($2, user_id), last_inbound_at DESC NULLS LAST"
            );
            let (users, channel): (Vec<_>, _) = (user_ids.iter().map(|id| clean(id)).collect(), clean(&channel));
            let values = [p(&tenant_id), (&users as _, Type::TEXT_ARRAY), p(&channel)];
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, contact)
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(self.claim_rows(claim))
    }

    fn due(&self) -> StoreFuture<'_, Vec<DueAccount>> {
        Box::pin(self.due_accounts())
    }

    fn adopt(&self, _owner: String, _now: Timestamp, _until: Timestamp) -> StoreFuture<'_, u64> {
        // Other processes may still be sending their rows.
        Box::pin(std::future::ready(Ok(0)))
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let doc = document(&SettleDocument { clock: self.system_time(), ..SettleDocument::from(&settlement) })?;
            let role = DbRole::Tenant(settlement.tenant_id);
            let rows = self.query_once(role, "SELECT settle_outbox($1::text::jsonb, $2)", &[(&doc, Type::TEXT)]).await?;
            only(&rows, |columns| columns.flag())
        })
    }

    fn outbox(&self, tenant_id: Uuid, filter: OutboxFilter, page: Page) -> StoreFuture<'_, Vec<OutboxRow>> {
        Box::pin(async move {
            let mut list = List::new(OUTBOX, "outbox", tenant_id);
            if let Some(id) = filter.id {
                list.only("id =", Value::Id(id));
            }
            if let Some(id) = filter.approval_id {
                list.only_few("approval_id =", Value::Id(id));
            }
            if let Some((Account { channel, account }, external_id)) = &filter.sent_as {
                list.only_few("external_id =", Value::text(external_id));
                list.only("channel =", Value::text(channel));
                list.only("account =", Value::text(account));
            }
            if let Some(user_id) = &filter.user_id {
                list.only("user_id =", Value::text(user_id));
            }
            if let Some(status) = filter.status {
                list.only("status =", Value::text(status.as_str()));
            }
            let bytes = "octet_length(body::text) + coalesce(octet_length(error), 0)";
            list.page(self, page, ListColumns { columns: OUTBOX, bytes }, outbox).await
        })
    }
}

impl ChannelStore for PostgresStore {
    fn record_inbound(&self, inbound: RecordedInbound) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let doc = document(&InboundDocument::from(&inbound))?;
            let role = DbRole::Tenant(inbound.tenant_id);
            let rows = self.query_once(role, "SELECT record_inbound($1::text::jsonb, $2)", &[(&doc, Type::TEXT)]).await?;
            only(&rows, |columns| columns.flag())
        })
    }

    fn contact(&self, contact: NewContact) -> StoreFuture<'_, Uuid> {
        Box::pin(async move {
            let doc = document(&ContactDocument::from(&contact))?;
            let role = DbRole::Tenant(contact.tenant_id);
            let rows = self.query(role, "SELECT put_contact($1::text::jsonb)", &[(&doc, Type::TEXT)]).await?;
            only(&rows, |columns| columns.id())
        })
    }

    fn report(&self, report: DeliveryReport) -> StoreFuture<'_, Option<OutboxRow>> {
        Box::pin(async move {
            let doc = document(&ReportDocument::from(&report))?;
            let sql = format!("SELECT {OUTBOX} FROM report_outbox($1::text::jsonb, $2)");
            first(&self.query_once(DbRole::Tenant(report.tenant_id), &sql, &[(&doc, Type::TEXT)]).await?, outbox)
        })
    }
}

impl ManageOutbox for PostgresStore {
    fn retry_outbox(&self, tenant_id: Uuid, id: Uuid, by: Author, now: Timestamp) -> StoreFuture<'_, bool> {
        let entry = Arc::new((self.recorder.clone(), by));
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                let (time, is_retry) = (ms(now), transaction.is_retry());
                let sql = "SELECT retry_outbox($1, $2, $3, $4)";
                let flag = async |repeated: bool| {
                    let rows = transaction.query(sql, &[p(&tenant_id), p(&id), p(&time), p(&repeated)]).await?;
                    Ok::<bool, Fault>(only(&rows, |columns| columns.flag())?)
                };
                if flag(false).await? {
                    record(transaction, &entry.0, tenant_id, &entry.1, &[retried(id)], now).await?;
                    return Ok(true);
                }
                // An earlier attempt may have been committed, with its entry.
                Ok(is_retry && flag(true).await?)
            })
        }))
    }

    fn release_outbox(&self, tenant_id: Uuid, id: Option<Uuid>, by: Author, now: Timestamp) -> StoreFuture<'_, u64> {
        let entry = Arc::new((self.recorder.clone(), by));
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let entry = Arc::clone(&entry);
            Box::pin(async move {
                let (time, is_retry) = (ms(now), transaction.is_retry());
                let sql = "SELECT released, known FROM release_outbox($1, $2, $3, $4)";
                let rows = transaction.query(sql, &[p(&tenant_id), p(&id), p(&time), p(&is_retry)]).await?;
                let (rows, known) = only(&rows, |columns| Ok((columns.int()?, columns.flag()?)))?;
                let rows = u64::try_from(rows).unwrap_or(0);
                // An earlier attempt that was committed has its entry.
                if rows > 0 && !known {
                    record(transaction, &entry.0, tenant_id, &entry.1, &[released(id, rows)], now).await?;
                }
                Ok(rows)
            })
        }))
    }
}

/// A row to write.
#[derive(Serialize)]
pub(super) struct OutboxItem<'a> {
    id: Uuid,
    channel: &'a str,
    account: &'a str,
    recipient: &'a str,
    lane: &'a str,
    user_id: Option<&'a str>,
    conversation_id: Option<Uuid>,
    turn_id: Option<Uuid>,
    approval_id: Option<Uuid>,
    body: Cow<'a, str>,
    repeatable: bool,
    dead: Option<&'a str>,
    next_at: Timestamp,
}

impl<'a> From<&'a NewOutboxRow> for OutboxItem<'a> {
    fn from(row: &'a NewOutboxRow) -> Self {
        Self {
            id: row.id,
            channel: &row.recipient.channel,
            account: &row.recipient.account,
            recipient: &row.recipient.address,
            lane: &row.recipient.lane,
            user_id: row.recipient.user_id.as_deref(),
            conversation_id: row.conversation_id,
            turn_id: row.turn_id,
            approval_id: row.approval_id,
            body: clean_json(&row.body),
            repeatable: row.repeatable,
            dead: row.dead.as_deref(),
            next_at: ms(row.next_at),
        }
    }
}

#[derive(Serialize)]
struct InboundDocument<'a> {
    tenant_id: Uuid,
    inbox: Entry<'a>,
    now: Timestamp,
    // `record_inbound` tests whether these keys exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<OutboxItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<NoticeDocument<'a>>,
}

#[derive(Serialize)]
struct NoticeDocument<'a> {
    channel: &'a str,
    account: &'a str,
    person: &'a str,
    address: &'a str,
    since: Timestamp,
}

impl<'a> From<&'a RecordedInbound> for InboundDocument<'a> {
    fn from(inbound: &'a RecordedInbound) -> Self {
        let notice = inbound.notice.as_ref().map(|notice| NoticeDocument {
            channel: &notice.channel,
            account: &notice.account,
            person: &notice.person,
            address: &notice.address,
            since: ms(notice.since),
        });
        let rows = inbound.rows.iter().map(OutboxItem::from).collect();
        Self { tenant_id: inbound.tenant_id, inbox: Entry::from(&inbound.inbox), now: ms(inbound.now), rows, notice }
    }
}

#[derive(Serialize)]
struct ContactDocument<'a> {
    tenant_id: Uuid,
    channel: &'a str,
    account: &'a str,
    user_id: &'a str,
    address: &'a str,
    inbound_at: Timestamp,
    conversation_id: Uuid,
    title: &'a str,
    assistant: &'a str,
    now: Timestamp,
}

impl<'a> From<&'a NewContact> for ContactDocument<'a> {
    fn from(contact: &'a NewContact) -> Self {
        Self {
            tenant_id: contact.tenant_id,
            channel: &contact.channel,
            account: &contact.account,
            user_id: &contact.user_id,
            address: &contact.address,
            inbound_at: ms(contact.inbound_at),
            conversation_id: contact.conversation_id,
            title: &contact.title,
            assistant: &contact.assistant,
            now: ms(contact.now),
        }
    }
}

#[derive(Serialize)]
struct SettleDocument<'a> {
    tenant_id: Uuid,
    id: Uuid,
    owner: &'a str,
    attempt: u32,
    status: &'static str,
    next_at: Option<Timestamp>,
    code: Option<&'a str>,
    message: Option<&'a str>,
    external_id: Option<&'a str>,
    now: Timestamp,
    /// What this process takes for the time.
    clock: Timestamp,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    announce: Vec<OutboxItem<'a>>,
}

impl<'a> From<&'a Settlement> for SettleDocument<'a> {
    fn from(settlement: &'a Settlement) -> Self {
        let (status, next_at, error, external_id) = match &settlement.end {
            SendEnd::Sent { external_id } => ("sent", None, None, external_id.as_deref()),
            SendEnd::Retry { at, code, message } => ("pending", Some(*at), Some((code, message)), None),
            SendEnd::Unknown { until, code, message } => ("sending", Some(*until), Some((code, message)), None),
            SendEnd::Dead { code, message } => ("dead", None, Some((code, message)), None),
        };
        Self {
            tenant_id: settlement.tenant_id,
            id: settlement.id,
            owner: &settlement.owner,
            attempt: settlement.attempt,
            status,
            next_at: ms_or_null(next_at),
            code: error.map(|(code, _)| code.as_str()),
            message: error.map(|(_, message)| message.as_str()),
            external_id,
            now: ms(settlement.now),
            clock: ms(settlement.now),
            announce: settlement.announce.iter().map(OutboxItem::from).collect(),
        }
    }
}

#[derive(Serialize)]
struct ReportDocument<'a> {
    tenant_id: Uuid,
    channel: &'a str,
    account: &'a str,
    outbox_id: Option<Uuid>,
    external_id: &'a str,
    status: &'static str,
    code: Option<&'a str>,
    message: Option<&'a str>,
    inbox: Entry<'a>,
    now: Timestamp,
    // `report_outbox` tests whether these keys exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    resend: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resend_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    announce: Vec<OutboxItem<'a>>,
}

impl<'a> From<&'a DeliveryReport> for ReportDocument<'a> {
    fn from(report: &'a DeliveryReport) -> Self {
        let (status, error, resend) = match &report.status {
            ReportedStatus::Sent => ("sent", None, None),
            ReportedStatus::Delivered => ("delivered", None, None),
            ReportedStatus::Read => ("read", None, None),
            ReportedStatus::Failed { code, message, resend } => ("failed", Some((code, message)), resend.as_ref()),
        };
        Self {
            tenant_id: report.tenant_id,
            channel: &report.channel,
            account: &report.account,
            outbox_id: report.outbox_id,
            external_id: &report.external_id,
            status,
            code: error.map(|(code, _)| code.as_str()),
            message: error.map(|(_, message)| message.as_str()),
            inbox: Entry::from(&report.inbox),
            now: ms(report.now),
            resend: resend.map(|resend| clean_json(&resend.body)),
            resend_at: resend.map(|resend| ms(resend.at)),
            announce: report.announce.iter().map(OutboxItem::from).collect(),
        }
    }
}
