//! Amounts of money as decimal text. Floats are not used, so that no cent is lost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Currencies without minor units (ISO 4217).
const WHOLE: [&str; 16] = ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XPF"];
/// Digits after the decimal point that a comparison uses.
const SCALE: usize = 4;

/// An amount. The currency is `None` only if the provider did not send it and it cannot be derived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Money {
    pub amount: String,
    pub currency: Option<String>,
}

impl Money {
    /// An amount as a provider wrote it.
    pub fn new(amount: impl Into<String>, currency: Option<&str>) -> Self {
        Self { amount: amount.into(), currency: currency.map(str::to_owned) }
    }

    /// An amount given in the currency's smallest unit: 560 US cents are 5.60.
    pub fn of_minor(minor: i64, currency: Option<&str>) -> Self {
        if currency.is_some_and(|currency| WHOLE.contains(&currency)) {
            return Self::new(minor.to_string(), currency);
        }
        let (sign, minor) = if minor < 0 { ("-", minor.unsigned_abs()) } else { ("", minor.unsigned_abs()) };
        Self::new(format!("{sign}{}.{:02}", minor / 100, minor % 100), currency)
    }

    /// The amount in ten-thousandths, for comparisons; `None` if the text is not a decimal number.
    pub fn scaled(&self) -> Option<i128> {
        scaled(&self.amount)
    }

    /// Whether the amount exceeds the limit; `None` if the amount is not a number.
    pub fn is_over(&self, limit: f64) -> Option<bool> {
        let limit = scaled(&format!("{limit:.4}"))?;
        Some(self.scaled()? > limit)
    }
}

fn scaled(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 24 || !plain(whole) || !plain(fraction) {
        return None;
    }
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(SCALE).collect();
    let value: i128 = format!("{whole}{padded}").parse().ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::Money;

    #[test]
    fn minor_units_keep_every_cent() {
        let amount = |minor, currency| Money::of_minor(minor, Some(currency)).amount;
        assert_eq!([amount(560, "USD"), amount(34_900, "USD"), amount(5, "CAD")], ["5.60", "349.00", "0.05"]);
        assert_eq!([amount(5600, "JPY"), amount(-150, "EUR")], ["5600", "-1.50"]);
    }

    #[test]
    fn amounts_compare_as_numbers_do() {
        let over = |amount: &str, limit| Money::new(amount, Some("USD")).is_over(limit);
        assert_eq!((over("5.60", 5.6), over("5.61", 5.6), over("100", 99.99)), (Some(false), Some(true), Some(true)));
        assert_eq!((over("", 1.0), over("a lot", 1.0), over("1e3", 1.0)), (None, None, None));
        assert!(Money::new("1590.78", None).scaled() > Money::new("795.39", None).scaled());
    }
}
