//! A price to the last digit: an integer of millionths of a millionth of a dollar, read from text.

use std::fmt;

/// Digits after the point that are kept.
const DIGITS: usize = 12;
const ONE: i128 = 1_000_000_000_000;
/// No token costs a million dollars; the bound keeps products of prices and counts inside 128 bits.
const MOST: i128 = 1_000_000 * ONE;

/// Dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(i128);

impl Price {
    /// Reads plain decimal notation; `None` for anything else, for more digits than are kept, and for absurd prices.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let kept = fraction.trim_end_matches('0');
        if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') || kept.len() > DIGITS {
            return None;
        }
        let whole: i128 = whole.parse().ok()?;
        let fraction: i128 = format!("{kept:0<DIGITS$}").parse().ok()?;
        let price = whole.checked_mul(ONE)?.checked_add(fraction)?;
        (price <= MOST).then_some(Self(price))
    }

    /// What so many tokens cost, in units of which [`nano_dollars`] knows the size.
    pub(super) fn times(self, tokens: i64) -> i128 {
        self.0 * i128::from(tokens.max(0))
    }
}

/// A sum of products in nano-dollars, rounded half up. `None` beyond what a column holds.
pub(super) fn nano_dollars(sum: i128) -> Option<i64> {
    // Per million tokens, in 10^-12 dollars: 10^18 in a dollar, 10^9 in a nano-dollar.
    const NANO: i128 = 1_000_000_000;
    i64::try_from((sum + NANO / 2) / NANO).ok()
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / ONE, self.0 % ONE);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{fraction:0DIGITS$}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}
