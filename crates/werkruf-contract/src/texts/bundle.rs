//! The three files of texts, parsed once for the whole process.

use std::sync::OnceLock;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentResource, FluentValue};

use super::Language;
use super::number;

type Bundle = FluentBundle<FluentResource>;

/// The file of a language.
pub(super) const fn source(language: Language) -> &'static str {
    match language {
        Language::German => include_str!("../../words/de.ftl"),
        Language::English => include_str!("../../words/en.ftl"),
        Language::Spanish => include_str!("../../words/es.ftl"),
    }
}

/// A language's texts; `None` only for a file that is broken, which a test rules out.
pub(super) fn bundle(language: Language) -> Option<&'static Bundle> {
    static BUNDLES: [OnceLock<Option<Bundle>>; 3] = [const { OnceLock::new() }; 3];
    let at = match language {
        Language::German => 0,
        Language::English => 1,
        Language::Spanish => 2,
    };
    BUNDLES[at].get_or_init(|| parse(language)).as_ref()
}

fn parse(language: Language) -> Option<Bundle> {
    let mut bundle = Bundle::new_concurrent(vec![language.locale().parse().ok()?]);
    // Marks of direction would be bytes that readers of plain text do not expect.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(match language {
        Language::German => |value, _| written(Language::German, value),
        Language::English => |value, _| written(Language::English, value),
        Language::Spanish => |value, _| written(Language::Spanish, value),
    }));
    // What parsed stays usable even where an entry is broken.
    let resource = FluentResource::try_new(source(language).to_owned()).unwrap_or_else(|(resource, _)| resource);
    bundle.add_resource(resource).ok()?;
    Some(bundle)
}

/// Numbers inside texts are written as the language writes them.
#[expect(clippy::cast_possible_truncation, reason = "only whole numbers are given to texts")]
fn written(language: Language, value: &FluentValue<'_>) -> Option<String> {
    match value {
        FluentValue::Number(number) => Some(number::whole(language.locale(), number.value as i64)),
        FluentValue::String(_) | FluentValue::Custom(_) | FluentValue::None | FluentValue::Error => None,
    }
}
