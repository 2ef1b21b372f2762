//! [`Outbox`], [`ChannelStore`] and [`ManageOutbox`] on SQLite. One writer thread makes all changes, so a row that was read does not change before it is written.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit;
use super::hold::changed;
use super::outbox_claim;
use super::outbox_rows::{by_id, exactly_one, kill_later, put, put_lane, refresh_lane, release_one, revive};
use super::records::List;
use super::row::{CONTACT, Columns, OUTBOX, all, contact, first, outbox};
use super::text::{Id, Stamp};
use super::turn_open::{INSERT_CONVERSATION, put_entry};
use crate::outbox::{released, retried};
use crate::{
    Account, Author, ChannelStore, Claim, Claimed, ContactRow, DeliveryReport, DueAccount, ManageOutbox, NewContact, Notice, Outbox,
    OutboxFilter, OutboxRow, OutboxStatus, Page, RecordedInbound, ReportedStatus, Resend, SendEnd, Settlement, StoreError, StoreFuture,
    crash,
};

impl Outbox for SqliteStore {
    fn contacts_of(&self, tenant_id: Uuid, channel: String, user_ids: Vec<String>) -> StoreFuture<'_, Vec<ContactRow>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(&contacts_sql())?;
            let mut found = Vec::new();
            for user_id in user_ids {
                found.extend(all(&mut statement, params![Id::from(tenant_id), user_id, channel], contact)?);
            }
            Ok(found)
        }))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<Claimed>> {
        Box::pin(self.writer.submit(move |c| outbox_claim::claim(c, &claim)))
    }

    fn due(&self) -> StoreFuture<'_, Vec<DueAccount>> {
        Box::pin(self.readers.look_up(outbox_claim::due))
    }

    fn adopt(&self, owner: String, now: Timestamp, until: Timestamp) -> StoreFuture<'_, u64> {
        Box::pin(self.writer.submit(move |c| outbox_claim::adopt(c, &owner, now, until)))
    }

    fn settle(&self, settlement: Settlement) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| settle(c, &settlement)))
    }

    fn outbox(&self, tenant_id: Uuid, filter: OutboxFilter, page: Page) -> StoreFuture<'_, Vec<OutboxRow>> {
        let few = filter.id.is_some() || filter.approval_id.is_some() || filter.sent_as.is_some();
        let read = move |c: &Connection| filtered(tenant_id, filter).page(c, page, outbox);
        if few { Box::pin(self.readers.look_up(read)) } else { Box::pin(self.readers.list(read)) }
    }
}

impl ChannelStore for SqliteStore {
    fn record_inbound(&self, inbound: RecordedInbound) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| record(c, &inbound)))
    }

    fn contact(&self, contact: NewContact) -> StoreFuture<'_, Uuid> {
        Box::pin(self.writer.submit(move |c| put_contact(c, &contact)))
    }

    fn report(&self, report: DeliveryReport) -> StoreFuture<'_, Option<OutboxRow>> {
        Box::pin(self.writer.submit(move |c| apply_report(c, &report)))
    }
}

impl ManageOutbox for SqliteStore {
    fn retry_outbox(&self, tenant_id: Uuid, id: Uuid, by: Author, now: Timestamp) -> StoreFuture<'_, bool> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let changed = retry(c, tenant_id, id, now)?;
            if changed {
                audit::record(c, &recorder, tenant_id, &by, &[retried(id)], now)?;
            }
            Ok(changed)
        }))
    }

    fn release_outbox(&self, tenant_id: Uuid, id: Option<Uuid>, by: Author, now: Timestamp) -> StoreFuture<'_, u64> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let rows = release(c, tenant_id, id, now)?;
            if rows > 0 {
                audit::record(c, &recorder, tenant_id, &by, &[released(id, rows)], now)?;
            }
            Ok(rows)
        }))
    }
}

const BY_EXTERNAL_ID: &str = "SELECT id FROM outbox WHERE tenant_id = ?1 AND external_id = ?2 AND channel = ?3 AND account = ?4 LIMIT 1";

fn filtered(tenant_id: Uuid, filter: OutboxFilter) -> List {
    let mut list = List::new(OUTBOX, "outbox", tenant_id);
    if let Some(id) = filter.id {
        list.only("id = ?", Id::from(id));
    }
    if let Some(id) = filter.approval_id {
        list.only_few("approval_id = ?", Id::from(id));
    }
    if let Some((Account { channel, account }, external_id)) = filter.sent_as {
        list.only_few("external_id = ?", external_id);
        list.only("channel = ?", channel);
        list.only("account = ?", account);
    }
    if let Some(user_id) = filter.user_id {
        list.only("user_id = ?", user_id);
    }
    if let Some(status) = filter.status {
        list.only("status = ?", status.as_str());
    }
    list
}

fn contacts_sql() -> String {
    format!("SELECT {CONTACT} FROM contacts WHERE tenant_id = ?1 AND user_id = ?2 AND channel = ?3 ORDER BY last_inbound_at DESC")
}

fn record(c: &Connection, inbound: &RecordedInbound) -> Result<bool, StoreError> {
    let (tenant, now) = (Id::from(inbound.tenant_id), Stamp::from(inbound.now));
    if !put_entry(c, &tenant, None, &inbound.inbox, &now)? {
        return Ok(false);
    }
    crash::point("inside_inbound");
    if inbound.notice.as_ref().map_or(Ok(true), |notice| may_notice(c, &tenant, notice, &now))? {
        put(c, &tenant, &inbound.rows, &now)?;
    }
    Ok(true)
}

/// Whether the person gets the notice; then its time is stored.
fn may_notice(c: &Connection, tenant: &Id, notice: &Notice, now: &Stamp) -> Result<bool, StoreError> {
    let sql = "INSERT INTO contacts (tenant_id, channel, account, person, address, noticed_at, created_at, updated_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?6)
               ON CONFLICT (tenant_id, channel, account, person) DO UPDATE SET noticed_at = excluded.noticed_at, updated_at = excluded.updated_at
               WHERE noticed_at IS NULL OR noticed_at <= ?7";
    let values = params![tenant, notice.channel, notice.account, notice.person, notice.address, now, Stamp::from(notice.since)];
    Ok(c.prepare_cached(sql)?.execute(values)? == 1)
}

fn put_contact(c: &Connection, new: &NewContact) -> Result<Uuid, StoreError> {
    let (tenant, now, conversation) = (Id::from(new.tenant_id), Stamp::from(new.now), Id::from(new.conversation_id));
    let sql = "INSERT INTO contacts (tenant_id, channel, account, person, user_id, address, last_inbound_at, created_at, updated_at)
               VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?7)
               ON CONFLICT (tenant_id, channel, account, person) DO UPDATE SET user_id = excluded.user_id, address = excluded.address,
                 last_inbound_at = max(coalesce(last_inbound_at, ''), excluded.last_inbound_at), updated_at = excluded.updated_at";
    let values = params![tenant, new.channel, new.account, new.user_id, new.address, Stamp::from(new.inbound_at), now];
    c.prepare_cached(sql)?.execute(values)?;
    let key = params![tenant, new.channel, new.account, new.user_id];
    let known = "SELECT conversation_id FROM contacts WHERE tenant_id = ?1 AND channel = ?2 AND account = ?3 AND person = ?4";
    if let Some(known) = first(&mut *c.prepare_cached(known)?, key, |columns| columns.id_or_null())?.flatten() {
        return Ok(known);
    }
    c.prepare_cached(INSERT_CONVERSATION)?.execute(params![
        conversation,
        tenant,
        new.user_id,
        new.channel,
        new.assistant,
        new.title,
        now
    ])?;
    let written = c
        .prepare_cached("UPDATE contacts SET conversation_id = ?5 WHERE tenant_id = ?1 AND channel = ?2 AND account = ?3 AND person = ?4")?
        .execute(params![tenant, new.channel, new.account, new.user_id, conversation])?;
    if written == 1 { Ok(new.conversation_id) } else { Err(StoreError::Broken("a contact vanished".to_owned())) }
}

fn settle(c: &Connection, settlement: &Settlement) -> Result<bool, StoreError> {
    let (tenant, now) = (Id::from(settlement.tenant_id), Stamp::from(settlement.now));
    let sending = "SELECT 1 FROM outbox WHERE tenant_id = ?1 AND id = ?2 AND status = 'sending' AND attempts = ?3 AND owner = ?4";
    let sending = c.prepare_cached(sending)?.exists(params![tenant, Id::from(settlement.id), settlement.attempt, settlement.owner])?;
    let Some(row) = by_id(c, &tenant, settlement.id)?.filter(|_| sending) else { return Ok(false) };
    let written = match &settlement.end {
        SendEnd::Sent { external_id } => c
            .prepare_cached(
                "UPDATE outbox SET status = 'sent', external_id = ?3, error_code = NULL, error = NULL, owner = NULL, updated_at = ?4
                 WHERE tenant_id = ?1 AND id = ?2",
            )?
            .execute(params![tenant, Id::from(row.id), external_id, now])?,
        SendEnd::Retry { at, code, message } => fail(c, &row, "pending", Some(*at), (code, message), &now)?,
        SendEnd::Unknown { until, code, message } => fail(c, &row, "sending", Some(*until), (code, message), &now)?,
        SendEnd::Dead { code, message } => fail(c, &row, "dead", None, (code, message), &now)?,
    };
    exactly_one(written, row.id)?;
    crash::point("inside_settle");
    if matches!(settlement.end, SendEnd::Dead { .. }) {
        kill_later(c, &tenant, &row, &now)?;
        put(c, &tenant, &settlement.announce, &now)?;
    }
    refresh_lane(c, &tenant, &row.recipient.lane)?;
    Ok(true)
}

/// Writes an error and the status that follows from it.
fn fail(
    c: &Connection,
    row: &OutboxRow,
    status: &str,
    next_at: Option<Timestamp>,
    (code, message): (&str, &str),
    now: &Stamp,
) -> Result<usize, StoreError> {
    let sql = "UPDATE outbox SET status = ?3, next_at = ?4, error_code = ?5, error = ?6, updated_at = ?7,
                 owner = CASE WHEN ?3 = 'sending' THEN owner END WHERE tenant_id = ?1 AND id = ?2";
    let next_at = Stamp::from(next_at.unwrap_or(row.next_at));
    Ok(c.prepare_cached(sql)?.execute(params![Id::from(row.tenant_id), Id::from(row.id), status, next_at, code, message, now])?)
}

fn apply_report(c: &Connection, report: &DeliveryReport) -> Result<Option<OutboxRow>, StoreError> {
    let (tenant, now) = (Id::from(report.tenant_id), Stamp::from(report.now));
    if !put_entry(c, &tenant, None, &report.inbox, &now)? {
        return Ok(None);
    }
    crash::point("inside_report");
    let Some(row) = reported_row(c, &tenant, report)? else { return Ok(None) };
    let id = Id::from(row.id);
    match &report.status {
        ReportedStatus::Failed { code, message, resend } if row.may_fail(&report.external_id) => {
            let status = if resend.is_some() { "pending" } else { "dead" };
            let next_at = resend.as_ref().map_or(report.now, |resend| resend.at);
            exactly_one(fail(c, &row, status, Some(next_at), (code, message), &now)?, row.id)?;
            let body = resend.as_ref().map(|Resend { body, .. }| body);
            // A dead row keeps the id of the sending that failed: another one may have arrived.
            let written = c
                .prepare_cached(
                    "UPDATE outbox SET body = coalesce(?3, body), external_id = CASE WHEN ?3 IS NULL THEN ?4 END WHERE tenant_id = ?1 AND id = ?2",
                )?
                .execute(params![tenant, id, body, report.external_id])?;
            exactly_one(written, row.id)?;
            if resend.is_none() {
                kill_later(c, &tenant, &row, &now)?;
                put(c, &tenant, &report.announce, &now)?;
            }
        }
        ReportedStatus::Failed { .. } => return Ok(Some(row)),
        status => {
            let Some(status) = status.moves(&row, &report.external_id) else { return Ok(Some(row)) };
            let written = c
                .prepare_cached(
                    "UPDATE outbox SET status = ?3, external_id = CASE WHEN status = 'dead' THEN ?4 ELSE coalesce(external_id, ?4) END,
                       error_code = NULL, error = NULL, owner = NULL, updated_at = ?5 WHERE tenant_id = ?1 AND id = ?2",
                )?
                .execute(params![tenant, id, status.as_str(), report.external_id, now])?;
            exactly_one(written, row.id)?;
            if row.status == OutboxStatus::Dead {
                revive(c, &tenant, &row, false, &now)?;
            }
        }
    }
    refresh_lane(c, &tenant, &row.recipient.lane)?;
    by_id(c, &tenant, row.id)
}

fn reported_row(c: &Connection, tenant: &Id, report: &DeliveryReport) -> Result<Option<OutboxRow>, StoreError> {
    let named = match report.outbox_id {
        Some(id) => by_id(c, tenant, id)?,
        None => None,
    };
    let is_own = |row: &OutboxRow| row.recipient.channel == report.channel && row.recipient.account == report.account;
    if let Some(row) = named.filter(is_own) {
        return Ok(Some(row));
    }
    sent_as(c, tenant, &report.channel, &report.account, &report.external_id)
}

fn sent_as(c: &Connection, tenant: &Id, channel: &str, account: &str, external_id: &str) -> Result<Option<OutboxRow>, StoreError> {
    let values = params![tenant, external_id, channel, account];
    match first(&mut *c.prepare_cached(BY_EXTERNAL_ID)?, values, |columns| columns.id())? {
        Some(id) => by_id(c, tenant, id),
        None => Ok(None),
    }
}

fn retry(c: &Connection, tenant_id: Uuid, id: Uuid, now: Timestamp) -> Result<bool, StoreError> {
    let (tenant, now) = (Id::from(tenant_id), Stamp::from(now));
    let Some(row) = by_id(c, &tenant, id)?.filter(|row| row.status == OutboxStatus::Dead) else { return Ok(false) };
    let written = c
        .prepare_cached(
            "UPDATE outbox SET status = 'pending', attempts = 0, error_code = NULL, error = NULL, external_id = NULL, first_at = NULL,
               next_at = ?3, updated_at = ?3 WHERE tenant_id = ?1 AND id = ?2",
        )?
        .execute(params![tenant, Id::from(id), now])?;
    exactly_one(written, id)?;
    revive(c, &tenant, &row, true, &now)?;
    refresh_lane(c, &tenant, &row.recipient.lane)?;
    Ok(true)
}

fn release(c: &Connection, tenant_id: Uuid, id: Option<Uuid>, now: Timestamp) -> Result<u64, StoreError> {
    let (tenant, now) = (Id::from(tenant_id), Stamp::from(now));
    let Some(id) = id else {
        let lanes = "SELECT DISTINCT lane, channel, account FROM outbox WHERE tenant_id = ?1 AND status = 'held'";
        let lane = |columns: &mut Columns<'_>| Ok((columns.text()?, columns.text()?, columns.text()?));
        for (lane, channel, account) in all(&mut c.prepare(lanes)?, params![tenant], lane)? {
            put_lane(c, &tenant, (&lane, &channel, &account), &now)?;
        }
        let all = "UPDATE outbox SET status = 'pending', attempts = 0, first_at = NULL, next_at = ?2, updated_at = ?2
                   WHERE tenant_id = ?1 AND status = 'held'";
        return Ok(changed(c.execute(all, params![tenant, now])?));
    };
    let Some(row) = by_id(c, &tenant, id)?.filter(|row| row.status == OutboxStatus::Held) else { return Ok(0) };
    let released = release_one(c, &tenant, &row, &now)?;
    refresh_lane(c, &tenant, &row.recipient.lane)?;
    Ok(released)
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let sent_as = (Account { channel: String::new(), account: String::new() }, String::new());
    let filters = [OutboxFilter::of_approval(Uuid::nil()), OutboxFilter { sent_as: Some(sent_as), ..OutboxFilter::default() }];
    let lists = filters.into_iter().map(|filter| filtered(Uuid::nil(), filter).page_sql());
    lists.chain([BY_EXTERNAL_ID.to_owned(), contacts_sql()]).collect()
}
