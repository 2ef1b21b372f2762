//! Formats prices in the user's language.

use werkruf_contract::{Language, Texts};

use super::money::Money;

/// Unambiguous currency signs. Other currencies are written as their code.
const SIGNS: [(&str, &str); 8] =
    [("USD", "$"), ("EUR", "€"), ("GBP", "£"), ("JPY", "¥"), ("CAD", "CA$"), ("AUD", "A$"), ("BRL", "R$"), ("INR", "₹")];

/// `450,00 $`, `$450.00`, `450,00 CHF`, `CHF 450.00`.
pub(super) fn money(texts: &Texts, money: &Money) -> String {
    let number = texts.decimal(&money.amount);
    let Some(code) = money.currency.as_deref() else { return number };
    let sign = SIGNS.iter().find(|(known, _)| *known == code).map(|(_, sign)| *sign);
    match (texts.language(), sign) {
        (Language::English, Some(sign)) => format!("{sign}{number}"),
        (Language::English, None) => format!("{code} {number}"),
        (Language::German | Language::Spanish, sign) => format!("{number} {}", sign.unwrap_or(code)),
    }
}

/// `85.000 Meilen + 450,00 $`.
pub(super) fn miles(texts: &Texts, miles: i64, taxes: Option<&Money>) -> String {
    let taxes = taxes.map_or_else(|| texts.text("flights-taxes-unknown", &[]), |taxes| money(texts, taxes));
    texts.text("flights-miles", &[("miles", texts.number(miles).into()), ("taxes", taxes.into())])
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Texts;

    use super::{miles, money};
    use crate::money::Money;
    use crate::texts::TEXTS;

    #[test]
    fn prices_follow_the_language() {
        let taxes = Money::of_minor(45_000, Some("USD"));
        let written = |locale: &str, taxes: Option<&Money>| miles(&Texts::of(locale).with(&TEXTS), 85_000, taxes);
        assert_eq!(written("de-DE", Some(&taxes)), "85.000 Meilen + 450,00 $");
        assert_eq!(written("en-US", Some(&taxes)), "85,000 miles + $450.00");
        assert_eq!(written("es-ES", Some(&taxes)), "85.000 millas + 450,00 $");
        assert_eq!(written("de", None), "85.000 Meilen + Steuern unbekannt");
        assert_eq!(written("en", None), "85,000 miles + taxes unknown");
        assert_eq!(written("es", None), "85.000 millas + tasas desconocidas");
    }

    #[test]
    fn a_currency_without_a_sign_is_written_as_its_code() {
        let francs = Money::new("1234.50", Some("CHF"));
        assert_eq!(money(&Texts::of("de"), &francs), "1.234,50 CHF");
        assert_eq!(money(&Texts::of("en"), &francs), "CHF 1,234.50");
        assert_eq!(money(&Texts::of("en"), &Money::new("12", None)), "12");
    }
}
