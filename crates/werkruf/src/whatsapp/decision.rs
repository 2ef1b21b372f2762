//! Buttons of approvals: who pressed one decides, if it was sent to them.

use werkruf_contract::{ApprovalStatus, Principal, Texts, Uuid};
use werkruf_runtime::Refusal;
use werkruf_store::{Order, OutboxFilter, OutboxRow, Page, StoreError, crash};

use super::receive::{Delivery, Receiver, credential};

impl Receiver {
    /// Decides, and tells the person what came of it. A button that comes twice decides once and is answered once.
    pub(super) async fn decision(&self, delivery: &Delivery<'_>, person: &Principal, id: Uuid, approve: bool) -> Result<(), Refusal> {
        let tenant_id = delivery.number.tenant_id;
        let buttons = OutboxFilter { user_id: Some(person.user_id.clone()), ..OutboxFilter::of_approval(id) };
        let sent = self.outbox().outbox(tenant_id, buttons, Page::of(1, Order::NewestFirst)).await?.pop();
        let texts = Texts::of(person.language_tag());
        let text = match sent.filter(|row| belongs(row, delivery)) {
            None => texts.text("whatsapp-approval-unknown", &[]),
            Some(_) => match self.app.runtime.decide_as(person, &credential(person), id, approve).await {
                Ok(row) => decided(&texts, row.status, &row.tool_name),
                Err(Refusal::FourEyes) => texts.text("whatsapp-approval-four-eyes", &[]),
                Err(Refusal::UnknownApproval | Refusal::NotTheApprover { .. }) => texts.text("whatsapp-approval-unknown", &[]),
                Err(Refusal::Conflict { .. }) => self.already_decided(person, &texts, id, approve).await?,
                Err(other) => return Err(other),
            },
        };
        crash::point("button_decided");
        self.record(delivery, vec![self.text_row(delivery, Some(person), text)], None).await
    }

    /// What is said about an approval that was decided before. The same button of the same person may come twice at once.
    async fn already_decided(&self, person: &Principal, texts: &Texts, id: Uuid, approve: bool) -> Result<String, StoreError> {
        let Some(row) = self.app.approvals().approval(person.tenant_id, id).await? else {
            return Ok(texts.text("whatsapp-approval-unknown", &[]));
        };
        let wanted = if approve { ApprovalStatus::Approved } else { ApprovalStatus::Denied };
        if row.status == wanted && row.decided_by.as_deref() == Some(person.user_id.as_str()) {
            return Ok(decided(texts, row.status, &row.tool_name));
        }
        Ok(texts.text("whatsapp-approval-late", &[]))
    }
}

fn decided(texts: &Texts, status: ApprovalStatus, tool: &str) -> String {
    let key = if status == ApprovalStatus::Approved { "whatsapp-approval-approved" } else { "whatsapp-approval-denied" };
    texts.text(key, &[("tool", tool.replace('_', " ").into())])
}

/// Whether the button is one of the message that this row sent. A row that may have been sent twice has only one of its ids.
fn belongs(row: &OutboxRow, delivery: &Delivery<'_>) -> bool {
    match (&row.external_id, &delivery.event.in_reply_to) {
        (Some(sent), Some(pressed)) => sent == pressed || row.ambiguous,
        (Some(_), None) => row.ambiguous,
        (None, _) => true,
    }
}
