//! The language and the time zone of the caller.

use jiff::tz::TimeZone;
use werkruf_contract::{Invocation, Texts};

/// The texts in the language of the conversation, else in the caller's language.
pub(crate) fn texts(invocation: &Invocation) -> Texts {
    Texts::of(invocation.context.locale.as_deref().unwrap_or(&invocation.principal.locale))
}

/// The caller's time zone; UTC if the time zone database does not contain it.
pub(crate) fn time_zone(invocation: &Invocation) -> TimeZone {
    TimeZone::get(&invocation.principal.time_zone).unwrap_or(TimeZone::UTC)
}
