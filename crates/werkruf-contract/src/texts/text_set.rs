//! The text files of the kernel and of modules, parsed once per process.

use std::sync::OnceLock;

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};

use super::Language;
use super::number;

type Bundle = FluentBundle<FluentResource>;

/// The texts of the kernel.
pub(super) static KERNEL: TextSet =
    TextSet::new(include_str!("../../texts/de.ftl"), include_str!("../../texts/en.ftl"), include_str!("../../texts/es.ftl"));

/// The texts of one module, or of the kernel, in all languages. A module has one in a `static`, so a server without the module does not
/// contain its texts.
pub struct TextSet {
    german: TextFile,
    english: TextFile,
    spanish: TextFile,
}

impl TextSet {
    /// The contents of the files `de.ftl`, `en.ftl` and `es.ftl`.
    pub const fn new(german: &'static str, english: &'static str, spanish: &'static str) -> Self {
        Self { german: TextFile::new(german), english: TextFile::new(english), spanish: TextFile::new(spanish) }
    }

    /// Whether the language has a text with this key.
    pub(super) fn has(&self, language: Language, key: &str) -> bool {
        self.bundle(language).is_some_and(|bundle| bundle.has_message(key))
    }

    /// The text with this key; `None` if the language has none.
    pub(super) fn format(&self, language: Language, key: &str, values: &FluentArgs<'_>) -> Option<String> {
        let bundle = self.bundle(language)?;
        let pattern = bundle.get_message(key)?.value()?;
        // Errors are ignored: a missing variable leaves its name in the text, which is visible and better than no answer.
        let mut errors = Vec::new();
        Some(bundle.format_pattern(pattern, Some(values), &mut errors).into_owned())
    }

    /// A language's texts; `None` only if the file is invalid, which a test rules out.
    fn bundle(&self, language: Language) -> Option<&Bundle> {
        let file = match language {
            Language::German => &self.german,
            Language::English => &self.english,
            Language::Spanish => &self.spanish,
        };
        file.bundle.get_or_init(|| parse(language, file.content)).as_ref()
    }
}

/// Sets are the same if they are the same `static`.
impl PartialEq for TextSet {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for TextSet {}

impl std::fmt::Debug for TextSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TextSet")
    }
}

/// The file of one language.
struct TextFile {
    content: &'static str,
    bundle: OnceLock<Option<Bundle>>,
}

impl TextFile {
    const fn new(content: &'static str) -> Self {
        Self { content, bundle: OnceLock::new() }
    }
}

fn parse(language: Language, content: &str) -> Option<Bundle> {
    let mut bundle = Bundle::new_concurrent(vec![language.locale().parse().ok()?]);
    // Without this, Fluent inserts Unicode direction marks around variables, which clients that show plain text do not expect.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(match language {
        Language::German => |value, _| format_number(Language::German, value),
        Language::English => |value, _| format_number(Language::English, value),
        Language::Spanish => |value, _| format_number(Language::Spanish, value),
    }));
    // Entries that parse stay usable even if another entry is invalid.
    let resource = FluentResource::try_new(content.to_owned()).unwrap_or_else(|(resource, _)| resource);
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
