//! Number formatting by locale.

use icu_decimal::DecimalFormatter;
use icu_decimal::input::Decimal;
use icu_locale_core::Locale;

/// Formats a whole number.
pub(super) fn whole(locale: &str, number: i64) -> String {
    format(locale, &Decimal::from(number)).unwrap_or_else(|| number.to_string())
}

/// Formats a number that is written with a decimal point; any other text is returned unchanged.
pub(super) fn decimal(locale: &str, text: &str) -> String {
    Decimal::try_from_str(text).ok().and_then(|number| format(locale, &number)).unwrap_or_else(|| text.to_owned())
}

fn format(locale: &str, number: &Decimal) -> Option<String> {
    let locale = Locale::try_from_str(locale).ok()?;
    let formatter = DecimalFormatter::try_new((&locale).into(), Default::default()).ok()?;
    Some(formatter.format(number).to_string())
}
