//! The texts for users, in German, English and Spanish. Error messages of single tools are English and stand in the tools.
//!
//! The texts of the kernel are in `texts/*.ftl` of this crate, those of a module in its own crate. They are compiled into the binary and
//! parsed once. A missing key falls back to English and then to the key itself, so a missing text is visible but does not fail an answer.

mod language;
mod number;
mod text_set;

use std::borrow::Cow;

use fluent_bundle::{FluentArgs, FluentValue};
use jiff::Zoned;
use jiff::civil::Date;

use crate::error::ToolErrorType;

pub use language::{Language, fold, is_locale};
pub use text_set::TextSet;

use text_set::KERNEL;

/// The value of a variable in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextArg<'a> {
    /// Selects singular or plural; formatted by locale.
    Number(i64),
    Text(Cow<'a, str>),
}

impl From<i64> for TextArg<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for TextArg<'_> {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'a> From<&'a str> for TextArg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for TextArg<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for TextArg<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

/// The texts of one locale. Cheap to create.
#[derive(Debug, Clone)]
pub struct Texts {
    language: Language,
    locale: String,
    /// The texts of a module, beside those of the kernel.
    module: Option<&'static TextSet>,
}

impl Texts {
    /// The kernel's texts for a locale tag such as `de-DE`; English if the language is not supported.
    pub fn of(locale: &str) -> Self {
        let language = Language::of(locale);
        let supported = Language::parse(&primary(locale)).is_some();
        Self { language, locale: if supported { locale.replace('_', "-") } else { language.locale().to_owned() }, module: None }
    }

    /// The same locale, with the texts of this module too.
    pub fn with(self, module: &'static TextSet) -> Self {
        Self { module: Some(module), ..self }
    }

    /// The language of the texts.
    pub const fn language(&self) -> Language {
        self.language
    }

    /// The text with this key. Never fails: an unknown key is returned as the text.
    pub fn text(&self, key: &str, args: &[(&str, TextArg<'_>)]) -> String {
        let mut values = FluentArgs::with_capacity(args.len());
        for (name, arg) in args {
            let value = match arg {
                TextArg::Number(number) => FluentValue::from(*number),
                TextArg::Text(text) => FluentValue::String(text.clone()),
            };
            values.set(*name, value);
        }
        let in_language = |language| self.sets().find_map(|set| set.format(language, key, &values));
        in_language(self.language).or_else(|| in_language(Language::English)).unwrap_or_else(|| key.to_owned())
    }

    /// Whether this language has a text with this key.
    pub fn knows(&self, key: &str) -> bool {
        self.sets().any(|set| set.has(self.language, key))
    }

    fn sets(&self) -> impl Iterator<Item = &'static TextSet> {
        self.module.into_iter().chain([&KERNEL])
    }

    /// What a person reads of a failed call. A validation error whose code has no text shows the tool's own message; any other unknown code
    /// is named.
    pub fn call_error(&self, kind: Option<ToolErrorType>, code: &str, reason: &str) -> String {
        let key = format!("call-{code}");
        let known = self.knows(&key);
        if !known && kind == Some(ToolErrorType::Validation) && !reason.is_empty() {
            return reason.to_owned();
        }
        self.text(if known { &key } else { "call-other" }, &[("code", code.into()), ("reason", reason.into())])
    }

    /// A whole number with the locale's grouping.
    pub fn number(&self, number: i64) -> String {
        number::whole(&self.locale, number)
    }

    /// A number written with a decimal point, such as `1234.50`, in the locale's format; any other text is returned unchanged.
    pub fn decimal(&self, text: &str) -> String {
        number::decimal(&self.locale, text)
    }

    /// A date in the locale's format.
    pub fn date(&self, date: Date) -> String {
        let format = match self.language {
            Language::German => "%d.%m.%Y",
            Language::English if self.is_american() => "%b %-d, %Y",
            Language::English => "%-d %b %Y",
            Language::Spanish => "%d/%m/%Y",
        };
        date.strftime(format).to_string()
    }

    /// A time of day in the locale's format.
    pub fn time(&self, at: &Zoned) -> String {
        let twelve_hours = self.language == Language::English && self.is_american();
        at.strftime(if twelve_hours { "%-I:%M %p" } else { "%H:%M" }).to_string()
    }

    /// A duration in hours and minutes.
    pub fn duration_minutes(&self, minutes: i64) -> String {
        let (hours, minutes) = (minutes / 60, minutes % 60);
        match (hours, minutes) {
            (0, _) => self.text("duration-minutes", &[("minutes", minutes.into())]),
            (_, 0) => self.text("duration-hours", &[("hours", hours.into())]),
            (_, _) => self.text("duration-hours-minutes", &[("hours", hours.into()), ("minutes", minutes.into())]),
        }
    }

    /// English without a region counts as American English.
    fn is_american(&self) -> bool {
        let region = self.locale.split('-').skip(1).find(|part| part.len() == 2);
        region.is_none_or(|region| region.eq_ignore_ascii_case("us"))
    }
}

fn primary(locale: &str) -> String {
    locale.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
#[path = "texts_tests.rs"]
mod tests;
