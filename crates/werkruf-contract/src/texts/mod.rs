//! What people read, in German, English and Spanish. No text for people stands inside logic.
//!
//! The texts are in `words/*.ftl`, compiled in and parsed once. A key that is missing falls back to English and then
//! to the key itself, so a gap is seen but never breaks an answer.

mod bundle;
mod language;
mod number;

use std::borrow::Cow;

use fluent_bundle::{FluentArgs, FluentValue};
use jiff::Zoned;
use jiff::civil::Date;

pub use language::{Language, fold};

use bundle::bundle;

/// What is put into a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextArg<'a> {
    /// Chooses singular or plural, and is written by locale.
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

/// The words of one locale. Cheap to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    language: Language,
    locale: String,
}

impl Texts {
    /// The words for a locale tag such as `de-DE`; English where its language is none of ours.
    pub fn of(locale: &str) -> Self {
        let language = Language::of(locale);
        let known = Language::parse(&primary(locale)).is_some();
        Self { language, locale: if known { locale.replace('_', "-") } else { language.locale().to_owned() } }
    }

    /// The language they are in.
    pub const fn language(&self) -> Language {
        self.language
    }

    /// The text under this key. Never fails: a key nobody knows is given back.
    pub fn text(&self, key: &str, parts: &[(&str, TextArg<'_>)]) -> String {
        let mut args = FluentArgs::with_capacity(parts.len());
        for (name, part) in parts {
            let value = match part {
                TextArg::Number(number) => FluentValue::from(*number),
                TextArg::Text(text) => FluentValue::String(text.clone()),
            };
            args.set(*name, value);
        }
        [self.language, Language::English].into_iter().find_map(|language| format(language, key, &args)).unwrap_or_else(|| key.to_owned())
    }

    /// Whether there is a text of its own under this key.
    pub fn knows(&self, key: &str) -> bool {
        bundle(self.language).is_some_and(|bundle| bundle.has_message(key))
    }

    /// A whole number with the locale's grouping.
    pub fn number(&self, number: i64) -> String {
        number::whole(&self.locale, number)
    }

    /// A decimal number written with a point, such as `1234.50`, in the locale's form; anything else is given back.
    pub fn decimal(&self, text: &str) -> String {
        number::decimal(&self.locale, text)
    }

    /// A date as people of this locale write it.
    pub fn date(&self, date: Date) -> String {
        let format = match self.language {
            Language::German => "%d.%m.%Y",
            Language::English if self.is_american() => "%b %-d, %Y",
            Language::English => "%-d %b %Y",
            Language::Spanish => "%d/%m/%Y",
        };
        date.strftime(format).to_string()
    }

    /// A time of day as people of this locale write it.
    pub fn time(&self, at: &Zoned) -> String {
        let twelve_hours = self.language == Language::English && self.is_american();
        at.strftime(if twelve_hours { "%-I:%M %p" } else { "%H:%M" }).to_string()
    }

    /// A span of time in hours and minutes.
    pub fn duration_minutes(&self, minutes: i64) -> String {
        let (hours, minutes) = (minutes / 60, minutes % 60);
        match (hours, minutes) {
            (0, _) => self.text("duration-minutes", &[("minutes", minutes.into())]),
            (_, 0) => self.text("duration-hours", &[("hours", hours.into())]),
            (_, _) => self.text("duration-hours-minutes", &[("hours", hours.into()), ("minutes", minutes.into())]),
        }
    }

    /// English without a region is taken for American, as everywhere in the house.
    fn is_american(&self) -> bool {
        let region = self.locale.split('-').skip(1).find(|part| part.len() == 2);
        region.is_none_or(|region| region.eq_ignore_ascii_case("us"))
    }
}

fn primary(locale: &str) -> String {
    locale.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

fn format(language: Language, key: &str, args: &FluentArgs<'_>) -> Option<String> {
    let bundle = bundle(language)?;
    let pattern = bundle.get_message(key)?.value()?;
    let mut faults = Vec::new();
    // A missing variable leaves its name in the text; that is seen, and better than no answer.
    Some(bundle.format_pattern(pattern, Some(args), &mut faults).into_owned())
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
