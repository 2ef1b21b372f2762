//! What every model request of a turn starts with: the assistant's prompt, and the tools it offers.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use werkruf_contract::Clock;

use crate::assistant::Assistant;
use crate::engine::Engine;
use crate::registry::Offer;
use crate::request::InboundMessage;
use crate::setup::Setup;

pub(super) struct Prompt {
    pub(super) assistant: Assistant,
    pub(super) offer: Offer,
    pub(super) system: String,
    pub(super) today: Date,
}

impl Prompt {
    /// The prompt for a message that is answered in this language.
    pub(super) fn of(engine: &Engine, setup: &Setup, message: &InboundMessage, assistant: &str, locale: &str) -> Self {
        let principal = &message.caller.principal;
        let assistant = engine
            .assistant_named(setup, assistant, &message.caller)
            .cloned()
            // The conversation's assistant may have been removed from the file; the default one continues.
            .unwrap_or_else(|_| setup.assistants.find("default", &[]).cloned().unwrap_or_else(Assistant::fallback));
        let offer = match &message.client {
            Some(client) => setup.registry.offer_with(&assistant, principal.tenant(), client),
            None => setup.registry.offer(&assistant, principal.tenant()),
        };
        let today = today(&engine.store.clock, &principal.time_zone);
        let mut system = assistant.system(principal, locale, today, &offer.functions);
        if let Some(instructions) = message.client.as_ref().and_then(|client| client.instructions.as_deref()) {
            system.push_str("\n\n");
            system.push_str(instructions);
        }
        Self { assistant, offer, system, today }
    }
}

/// The date in the user's time zone.
fn today(clock: &Clock, time_zone: &str) -> Date {
    let zone = TimeZone::get(time_zone).unwrap_or(TimeZone::UTC);
    clock.now().to_zoned(zone).date()
}
