//! Delivery reports: what became of a message that this server sent.

use werkruf_contract::Uuid;
use werkruf_runtime::{OutboxBody, Refusal};
use werkruf_store::{DeliveryReport, OutboxRow, RecordedInbound, ReportedStatus};

use super::payload::StatusEvent;
use super::receive::Receiver;
use super::settings::Number;
use super::{CHANNEL, answer, outgoing};

impl Receiver {
    /// Moves the row forward. A message that failed because the person wrote nothing for 24 hours is sent again as a template.
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
                let row = match outbox_id {
                    Some(id) => self.outbox().outbox_row(tenant_id, id).await?,
                    None => None,
                };
                let resend = row.as_ref().filter(|_| code == answer::WINDOW_CLOSED).and_then(|row| resend(row, number));
                if let (Some(row), None) = (&row, &resend) {
                    announce = self.app.runtime.dead_letter_rows(row, &code.to_string()).await?;
                }
                ReportedStatus::Failed { code: code.to_string(), message: event.message.clone().unwrap_or_default(), resend }
            }
            _ => {
                let rows = Vec::new();
                self.outbox().record_inbound(RecordedInbound { tenant_id, inbox, rows, notice: None, now }).await?;
                return Ok(());
            }
        };
        let (channel, account, external_id) = (CHANNEL.to_owned(), number.phone_number_id.clone(), event.id.clone());
        let report = DeliveryReport { tenant_id, channel, account, outbox_id, external_id, status, inbox, announce, now };
        // The row may have kept its lane waiting.
        if self.outbox().report(report).await?.is_some() {
            self.app.runtime.wake_outbox();
        }
        Ok(())
    }
}

/// The body of a row that is sent again as a template.
fn resend(row: &OutboxRow, number: &Number) -> Option<String> {
    let body: OutboxBody = serde_json::from_str(&row.body).ok()?;
    serde_json::to_string(&outgoing::as_template(&body, number)?).ok()
}
