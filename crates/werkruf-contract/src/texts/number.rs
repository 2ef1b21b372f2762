//! Digits as a locale groups them.

use icu_decimal::DecimalFormatter;
use icu_decimal::input::Decimal;
use icu_locale_core::Locale;

/// A whole number.
pub(super) fn whole(locale: &str, number: i64) -> String {
    show(locale, &Decimal::from(number)).unwrap_or_else(|| number.to_string())
}

/// A number written with a decimal point; what is none stays as it is.
pub(super) fn decimal(locale: &str, text: &str) -> String {
    Decimal::try_from_str(text).ok().and_then(|number| show(locale, &number)).unwrap_or_else(|| text.to_owned())
}

fn show(locale: &str, number: &Decimal) -> Option<String> {
    let locale = Locale::try_from_str(locale).ok()?;
    let formatter = DecimalFormatter::try_new((&locale).into(), Default::default()).ok()?;
    Some(formatter.format(number).to_string())
}
