//! Delivery reports: what became of a message that this server sent.

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_runtime::{OutboxBody, Refusal};
use werkruf_store::{
    Account, DeliveryReport, Order, OutboxFilter, OutboxRow, Page, RecordedInbound, ReportedStatus, Resend, StoreError, crash,
};

use super::payload::StatusEvent;
use super::receive::Receiver;
use super::settings::Number;
use super::{CHANNEL, answer, outgoing};

impl Receiver {
    /// Moves the row forward. A message that failed for a reason that passes is sent again.
    pub(super) async fn status(&self, event: &StatusEvent) -> Result<(), Refusal> {
        let Some(number) = self.number(&event.phone_number_id) else { return Ok(()) };
        let (tenant_id, now) = (number.tenant_id, self.app.clock.now());
        let inbox = self.inbox(&number.phone_number_id, format!("{}:{}", event.id, event.status), now);
        let outbox_id: Option<Uuid> = event.callback_data.as_deref().and_then(|id| id.parse().ok());
        let mut announce = Vec::new();
        let status = match event.status.as_str() {
            "sent" => ReportedStatus::Sent,
            "delivered" => ReportedStatus::Delivered,
            "read" | "played" => ReportedStatus::Read,
            "failed" => {
                let code = event.errors.as_ref().and_then(|codes| codes.first()).copied().unwrap_or_default();
                let row = self.reported_row(number, outbox_id, &event.id).await?;
                let resend = row.as_ref().and_then(|row| resend(row, number, code, now));
                if let (Some(row), None) = (&row, &resend) {
                    announce = self.app.runtime.dead_letter_rows(row, &code.to_string()).await?;
                }
                ReportedStatus::Failed { code: code.to_string(), message: event.message.clone().unwrap_or_default(), resend }
            }
            _ => {
                let rows = Vec::new();
                self.app.channel_store.record_inbound(RecordedInbound { tenant_id, inbox, rows, notice: None, now }).await?;
                return Ok(());
            }
        };
        let (channel, account, external_id) = (CHANNEL.to_owned(), number.phone_number_id.clone(), event.id.clone());
        let report = DeliveryReport { tenant_id, channel, account, outbox_id, external_id, status, inbox, announce, now };
        let changed = self.app.channel_store.report(report).await?;
        crash::point("report_applied");
        // The row may have kept its lane waiting.
        if changed.is_some() {
            self.app.runtime.wake_outbox();
        }
        Ok(())
    }

    /// The row that a report is about: Meta returns its id, but not with every report.
    async fn reported_row(&self, number: &Number, outbox_id: Option<Uuid>, message_id: &str) -> Result<Option<OutboxRow>, StoreError> {
        let account = &number.phone_number_id;
        if let Some(id) = outbox_id {
            let row = self.outbox().outbox(number.tenant_id, OutboxFilter::of_id(id), Page::default()).await?.pop();
            if let Some(row) = row.filter(|row| row.recipient.channel == CHANNEL && row.recipient.account == *account) {
                return Ok(Some(row));
            }
        }
        let account = Account { channel: CHANNEL.to_owned(), account: account.clone() };
        let filter = OutboxFilter { sent_as: Some((account, message_id.to_owned())), ..OutboxFilter::default() };
        Ok(self.outbox().outbox(number.tenant_id, filter, Page::of(1, Order::OldestFirst)).await?.pop())
    }
}

/// What is sent instead of a failed message: a template if the person wrote nothing for 24 hours, the same again after a temporary failure.
fn resend(row: &OutboxRow, number: &Number, code: i64, now: Timestamp) -> Option<Resend> {
    if code == answer::WINDOW_CLOSED {
        let body: OutboxBody = serde_json::from_str(&row.body).ok()?;
        return Some(Resend { body: serde_json::to_string(&outgoing::as_template(&body, number)?).ok()?, at: now });
    }
    let at = now + answer::wait_after_report(code, row.attempts)?;
    row.may_be_tried_at(at).then(|| Resend { body: row.body.clone(), at })
}
