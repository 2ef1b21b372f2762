//! The text files of the three languages, parsed once per process.

use std::sync::OnceLock;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentResource, FluentValue};

use super::Language;
use super::number;

type Bundle = FluentBundle<FluentResource>;

/// The content of a language's text file.
pub(super) const fn source(language: Language) -> &'static str {
    match language {
        Language::German => include_str!("../../texts/de.ftl"),
        Language::English => include_str!("../../texts/en.ftl"),
        Language::Spanish => include_str!("../../texts/es.ftl"),
    }
}

/// A language's texts; `None` only if the file is invalid, which a test rules out.
pub(super) fn bundle(language: Language) -> Option<&'static Bundle> {
    static BUNDLES: [OnceLock<Option<Bundle>>; 3] = [const { OnceLock::new() }; 3];
    let index = match language {
        Language::German => 0,
        Language::English => 1,
        Language::Spanish => 2,
    };
    BUNDLES[index].get_or_init(|| parse(language)).as_ref()
}

fn parse(language: Language) -> Option<Bundle> {
    let mut bundle = Bundle::new_concurrent(vec![language.locale().parse().ok()?]);
    // Without this, Fluent inserts Unicode direction marks around variables, which clients that show plain text do not expect.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(match language {
        Language::German => |value, _| format_number(Language::German, value),
        Language::English => |value, _| format_number(Language::English, value),
        Language::Spanish => |value, _| format_number(Language::Spanish, value),
    }));
    // Entries that parse stay usable even if another entry is invalid.
    let resource = FluentResource::try_new(source(language).to_owned()).unwrap_or_else(|(resource, _)| resource);
    bundle.add_resource(resource).ok()?;
    Some(bundle)
}

/// Formats a number inside a text for the language.
#[expect(clippy::cast_possible_truncation, reason = "only whole numbers are passed to texts")]
fn format_number(language: Language, value: &FluentValue<'_>) -> Option<String> {
    match value {
        FluentValue::Number(number) => Some(number::whole(language.locale(), number.value as i64)),
        FluentValue::String(_) | FluentValue::Custom(_) | FluentValue::None | FluentValue::Error => None,
    }
}
