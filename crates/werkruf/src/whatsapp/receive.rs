//! What a payload of the webhook starts: turns, decisions, texts without a turn, and changes of sent rows.
//!
//! Each event is one commit. An event that the inbox has already changes nothing, so a payload may come any number of times.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{Language, Principal, Texts, Uuid};
use werkruf_runtime::{Caller, ChannelMessage, DirectCall, Inbound, InboundMessage, OutboxBody, Pins, Refusal, ReplyTo};
use werkruf_store::{
    InboxEntry, NewContact, NewOutboxRow, Notice, Outbox, OutboxRow, OutboxStatus, Recipient, RecordedInbound, StoreError, crash,
};

use super::payload::{ErrorEvent, Event, MessageEvent};
use super::settings::{Number, WhatsAppSettings};
use super::{CHANNEL, outgoing};
use crate::app::App;

/// How long the inbox remembers an item. Meta delivers again for up to seven days.
const INBOX_WINDOW: SignedDuration = SignedDuration::from_hours(8 * 24);
/// An older message is not answered: free text could not be sent any more.
const STALE_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// A sender who is not known is told so once in this time.
const NOTICE_WINDOW: SignedDuration = SignedDuration::from_hours(24);
const STALE_INBOUND: &str = "stale_inbound";
const TITLE_CHARS: usize = 80;

/// Receives the events of one request.
pub(super) struct Receiver {
    pub(super) app: Arc<App>,
    pub(super) settings: Arc<WhatsAppSettings>,
    /// The numbers whose app has signed the request.
    pub(super) numbers: Vec<Number>,
    /// The SHA-256 of its body.
    pub(super) digest: String,
}

/// What a message is for.
#[derive(Debug, PartialEq, Eq)]
enum Purpose<'a> {
    /// Starts a turn with this text.
    Turn(&'a str),
    /// Decides an approval.
    Decision { approval_id: Uuid, approve: bool },
    /// Cannot be read here; the sender is told so.
    Unreadable,
    /// Is only recorded.
    Silent,
}

/// A message with everything that handling it needs.
pub(super) struct Delivery<'a> {
    pub(super) number: &'a Number,
    pub(super) event: &'a MessageEvent,
    /// Where answers go.
    pub(super) address: &'a str,
    pub(super) inbox: InboxEntry,
    pub(super) now: Timestamp,
}

impl Receiver {
    /// Stores all events. After an error Meta sends the whole payload again; what is stored already is recognised.
    pub(super) async fn receive(&self, events: Vec<Event>) -> Result<(), Refusal> {
        let mut first_error = Ok(());
        for (at, event) in events.into_iter().enumerate() {
            let stored = match event {
                Event::Message(message) => self.message(&message).await,
                Event::Status(status) => self.status(&status).await,
                Event::Error(error) => self.error(&error, at).await,
            };
            match stored {
                // Nothing else can be stored now either.
                Err(error @ (Refusal::Busy { .. } | Refusal::Store(StoreError::Unavailable(_)))) => return Err(error),
                // One event must not keep the others of its payload away.
                Err(error) => first_error = first_error.and(Err(error)),
                Ok(()) => {}
            }
        }
        first_error
    }

    pub(super) fn number(&self, phone_number_id: &str) -> Option<&Number> {
        let found = self.numbers.iter().find(|number| number.phone_number_id == phone_number_id);
        if found.is_none() {
            let count = self.app.whatsapp().count_unknown_number();
            tracing::warn!(phone_number_id, count, "a message came for a number that the configuration does not name for this app");
        }
        found
    }

    pub(super) fn outbox(&self) -> &dyn Outbox {
        self.app.store.as_ref()
    }

    /// Records an error of a number. It has no id, so the payload and its place there name it.
    async fn error(&self, error: &ErrorEvent, at: usize) -> Result<(), Refusal> {
        let ErrorEvent { phone_number_id, code, title } = error;
        let Some(number) = self.number(phone_number_id) else { return Ok(()) };
        let now = self.app.clock.now();
        let inbox = self.inbox(phone_number_id, format!("error:{}:{}:{at}", code.unwrap_or_default(), self.digest), now);
        let recorded = RecordedInbound { tenant_id: number.tenant_id, inbox, rows: Vec::new(), notice: None, now };
        if self.app.channel_store.record_inbound(recorded).await? {
            tracing::warn!(phone_number_id, code, title, "WhatsApp reports an error");
        }
        Ok(())
    }

    pub(super) fn inbox(&self, account: &str, external_id: String, now: Timestamp) -> InboxEntry {
        let (channel, account) = (CHANNEL.to_owned(), account.to_owned());
        InboxEntry { channel, account, external_id, fingerprint: String::new(), expires_at: now + INBOX_WINDOW }
    }

    async fn message(&self, event: &MessageEvent) -> Result<(), Refusal> {
        let Some(number) = self.number(&event.phone_number_id) else { return Ok(()) };
        let now = self.app.clock.now();
        let inbox = self.inbox(&number.phone_number_id, event.id.clone(), now);
        let address = event.from_phone.as_deref().or(event.from_user_id.as_deref()).unwrap_or_default();
        let delivery = Delivery { number, event, address, inbox, now };
        let purpose = purpose(event);
        if purpose == Purpose::Silent || address.is_empty() {
            return self.record(&delivery, Vec::new(), None).await;
        }
        let written_at = event.timestamp.and_then(|second| Timestamp::from_second(second).ok()).unwrap_or(now).min(now);
        let is_stale = now.duration_since(written_at) > STALE_AFTER;
        let person = match (self.sender(number, event).await?, is_stale) {
            (Some(person), false) => person,
            (Some(person), true) => return self.stale(&delivery, &person).await,
            (None, false) => return self.unknown_sender(&delivery).await,
            // Nobody waits for a text about it any more, and none could be sent.
            (None, true) => return self.record(&delivery, Vec::new(), None).await,
        };
        match purpose {
            Purpose::Turn(text) => self.turn(&delivery, &person, text, written_at).await,
            Purpose::Decision { approval_id, approve } => self.decision(&delivery, &person, approval_id, approve).await,
            Purpose::Unreadable | Purpose::Silent => {
                let text = Texts::of(person.language_tag()).text("whatsapp-unreadable", &[]);
                self.record(&delivery, vec![self.text_row(&delivery, Some(&person), text)], None).await
            }
        }
    }

    /// The user who wrote. Where several have the address, the branch of the number decides; if it does not, nobody is meant.
    async fn sender(&self, number: &Number, event: &MessageEvent) -> Result<Option<Arc<Principal>>, StoreError> {
        let (scoped, phone) = (event.from_user_id.clone(), event.from_phone.clone());
        let found = self.app.people().users_by_address(number.tenant_id, scoped, phone).await?;
        let user_id = match found.as_slice() {
            [] => return Ok(None),
            [only] => only.user_id,
            several => {
                let of_branch: Vec<i64> = several
                    .iter()
                    .filter(|one| one.branch_id.is_some() && one.branch_id == number.branch_id)
                    .map(|one| one.user_id)
                    .collect();
                let [only] = of_branch.as_slice() else {
                    let users = several.len();
                    tracing::warn!(
                        users,
                        phone_number_id = number.phone_number_id,
                        "several users have the address of a sender; nobody is meant"
                    );
                    return Ok(None);
                };
                *only
            }
        };
        self.app.people().principal(number.tenant_id, user_id.to_string()).await
    }

    /// Records a message without a turn, with what is sent about it.
    pub(super) async fn record(&self, delivery: &Delivery<'_>, rows: Vec<NewOutboxRow>, notice: Option<Notice>) -> Result<(), Refusal> {
        let has_rows = !rows.is_empty();
        let (tenant_id, inbox, now) = (delivery.number.tenant_id, delivery.inbox.clone(), delivery.now);
        let is_new = self.app.channel_store.record_inbound(RecordedInbound { tenant_id, inbox, rows, notice, now }).await?;
        if is_new && has_rows {
            self.app.runtime.wake_outbox();
        }
        Ok(())
    }

    pub(super) fn text_row(&self, delivery: &Delivery<'_>, person: Option<&Principal>, text: String) -> NewOutboxRow {
        self.row(delivery, person, &OutboxBody::Text { text })
    }

    fn row(&self, delivery: &Delivery<'_>, person: Option<&Principal>, body: &OutboxBody) -> NewOutboxRow {
        let Delivery { number, address, now, .. } = delivery;
        let account = number.phone_number_id.clone();
        let recipient = Recipient {
            channel: CHANNEL.to_owned(),
            lane: format!("{CHANNEL}:{account}:{address}"),
            account,
            address: (*address).to_owned(),
            user_id: person.map(|person| person.user_id.clone()),
        };
        NewOutboxRow {
            id: self.app.clock.new_id(),
            recipient,
            conversation_id: None,
            turn_id: None,
            approval_id: None,
            body: serde_json::to_string(body).unwrap_or_default(),
            repeatable: false,
            dead: None,
            next_at: *now,
        }
    }

    /// Tells a sender who is no user, once a day, in the language of the message.
    async fn unknown_sender(&self, delivery: &Delivery<'_>) -> Result<(), Refusal> {
        let Delivery { number, event, address, now, .. } = delivery;
        let text = event.text.as_deref().unwrap_or_default();
        let of_number = Language::of(&number.template_language);
        let of_keyword = || self.settings.keywords.find(text, of_number).and_then(|found| found.language);
        let language = Language::guess(text).or_else(of_keyword).unwrap_or(of_number);
        let notice = Notice {
            channel: CHANNEL.to_owned(),
            account: number.phone_number_id.clone(),
            person: (*address).to_owned(),
            address: (*address).to_owned(),
            since: *now - NOTICE_WINDOW,
        };
        let row = self.text_row(delivery, None, Texts::of(language.locale()).text("whatsapp-unknown-sender", &[]));
        self.record(delivery, vec![row], Some(notice)).await
    }

    /// Stores a message that came too late as a dead letter.
    async fn stale(&self, delivery: &Delivery<'_>, person: &Principal) -> Result<(), Refusal> {
        let text = delivery.event.text.clone().unwrap_or_default();
        let row =
            NewOutboxRow { dead: Some(STALE_INBOUND.to_owned()), ..self.row(delivery, Some(person), &OutboxBody::StaleInbound { text }) };
        let announced = self.app.runtime.dead_letter_rows(&as_stored(&row, delivery), STALE_INBOUND).await?;
        self.record(delivery, std::iter::once(row).chain(announced).collect(), None).await
    }

    async fn turn(&self, delivery: &Delivery<'_>, person: &Arc<Principal>, text: &str, written_at: Timestamp) -> Result<(), Refusal> {
        let Delivery { number, event, address, now, .. } = delivery;
        let account = number.phone_number_id.clone();
        let contact = NewContact {
            tenant_id: number.tenant_id,
            channel: CHANNEL.to_owned(),
            account: account.clone(),
            user_id: person.user_id.clone(),
            address: (*address).to_owned(),
            inbound_at: written_at,
            conversation_id: self.app.clock.new_id(),
            title: text.chars().take(TITLE_CHARS).collect(),
            assistant: number.assistant.clone(),
            now: *now,
        };
        let conversation_id = self.app.channel_store.contact(contact).await?;
        crash::point("contact_stored");
        let (direct, locale) = self.keyword(number, person, event, text);
        let reply_to = ReplyTo { channel: CHANNEL.to_owned(), account: account.clone(), address: (*address).to_owned() };
        let message = InboundMessage {
            caller: caller(person),
            conversation_id: Some(conversation_id),
            message: text.to_owned(),
            assistant: Some(number.assistant.clone()),
            channel: CHANNEL.to_owned(),
            locale,
            debug: false,
            idempotency: None,
            inbound: Some(Box::new(ChannelMessage {
                inbound: Inbound { reply_to, direct, over_limit: None },
                inbox: delivery.inbox.clone(),
            })),
            context: Default::default(),
            parts: Vec::new(),
            client: None,
            results: Vec::new(),
            after: None,
            held: None,
        };
        match self.app.runtime.chat(message).await {
            Ok(_) => {
                let (whatsapp, id) = (Arc::clone(self.app.whatsapp()), event.id.clone());
                self.app.tasks.spawn(async move { whatsapp.mark_read(&account, &id).await });
                Ok(())
            }
            // Delivered before.
            Err(Refusal::Duplicate { .. } | Refusal::Recorded) => Ok(()),
            Err(refusal @ (Refusal::Invalid { .. } | Refusal::Conflict { .. })) => self.refused(delivery, person, &refusal).await,
            Err(other) => Err(other),
        }
    }

    /// A message that no other delivery could start a turn with either. It is recorded, and the person is told.
    async fn refused(&self, delivery: &Delivery<'_>, person: &Principal, refusal: &Refusal) -> Result<(), Refusal> {
        let code = match refusal {
            Refusal::Invalid { code, .. } | Refusal::Conflict { code, .. } => *code,
            _ => "internal",
        };
        tracing::error!(code, why = %refusal, phone_number_id = delivery.number.phone_number_id, "a message started no turn");
        let text = Texts::of(person.language_tag()).text("call-other", &[("code", code.into())]);
        self.record(delivery, vec![self.text_row(delivery, Some(person), text)], None).await
    }

    /// The call that a keyword stands for, and the locale of its answer. A keyword whose tool the assistant does not have is an ordinary message.
    fn keyword(&self, number: &Number, person: &Principal, event: &MessageEvent, text: &str) -> (Option<DirectCall>, Option<String>) {
        let own = person.language_tag();
        let setup = self.app.runtime.setup();
        let found = (event.kind == "text").then(|| self.settings.keywords.find(text, Language::of(own))).flatten().filter(|found| {
            let tenant = person.tenant();
            let assistant = setup.assistants.find(&number.assistant, &[tenant.slug, &tenant.id.to_string()]);
            setup.registry.find_for(tenant, &found.tool).is_some() && assistant.is_some_and(|assistant| assistant.may_use(&found.tool))
        });
        let Some(found) = found else { return (None, None) };
        let locale = match found.language {
            Some(language) if language != Language::of(own) => language.locale(),
            _ => own,
        };
        let locale = locale.to_owned();
        (Some(DirectCall { tool: found.tool, arguments: found.arguments }), Some(locale))
    }
}

/// The user as the sender of messages. Whoever asks on WhatsApp cannot approve there.
fn caller(person: &Arc<Principal>) -> Caller {
    Caller {
        principal: Arc::clone(person),
        key_id: None,
        credential: credential(person),
        retried_by: None,
        pins: Pins::default(),
        admin: false,
    }
}

/// Names the person's access by WhatsApp.
pub(super) fn credential(person: &Principal) -> String {
    format!("{CHANNEL}:{}", person.user_id)
}

fn purpose(event: &MessageEvent) -> Purpose<'_> {
    let text = event.text.as_deref();
    if event.group_id.is_some() {
        return Purpose::Silent;
    }
    match (event.kind.as_str(), text) {
        ("reaction" | "edit" | "revoke" | "system" | "ephemeral" | "request_welcome", _) => Purpose::Silent,
        ("button" | "interactive/button_reply", _) if let Some((approval_id, approve)) = decided(event) => {
            Purpose::Decision { approval_id, approve }
        }
        ("text", None) => Purpose::Silent,
        ("text" | "button" | "interactive/button_reply" | "interactive/list_reply", Some(text)) => Purpose::Turn(text),
        ("image" | "video" | "audio" | "document", Some(caption)) => Purpose::Turn(caption),
        _ => Purpose::Unreadable,
    }
}

fn decided(event: &MessageEvent) -> Option<(Uuid, bool)> {
    outgoing::decision(event.reply_id.as_deref()?)
}

/// A row as it is stored, for what is told about it.
fn as_stored(row: &NewOutboxRow, delivery: &Delivery<'_>) -> OutboxRow {
    OutboxRow {
        id: row.id,
        tenant_id: delivery.number.tenant_id,
        recipient: row.recipient.clone(),
        conversation_id: row.conversation_id,
        turn_id: row.turn_id,
        approval_id: row.approval_id,
        part: 1,
        body: row.body.clone(),
        status: OutboxStatus::Dead,
        repeatable: row.repeatable,
        ambiguous: false,
        attempts: 0,
        error_code: row.dead.clone(),
        error: None,
        external_id: None,
        next_at: delivery.now,
        first_at: None,
        created_at: delivery.now,
        updated_at: delivery.now,
    }
}
