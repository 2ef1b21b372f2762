//! An exact price: an integer number of 10^-12 dollars, read from text.

use std::fmt;

/// The number of digits after the decimal point.
const DIGITS: usize = 12;
const ONE: i128 = 1_000_000_000_000;
/// No token costs a dollar; the bound keeps products of prices and token counts within 128 bits.
const MAX: i128 = 1_000_000 * ONE;

/// A price of one thing is this many prices of a millionth of it: tokens are priced by the million, searches and calls one by one.
pub(super) const MILLION: i128 = 1_000_000;

/// Dollars per million tokens, or per search or call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(i128);

impl Price {
    /// Reads plain decimal notation; `None` for anything else, for too many digits, and for prices above the maximum.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let digits_used = fraction.trim_end_matches('0');
        if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') || digits_used.len() > DIGITS {
            return None;
        }
        let whole: i128 = whole.parse().ok()?;
        let fraction: i128 = format!("{digits_used:0<DIGITS$}").parse().ok()?;
        let price = whole.checked_mul(ONE)?.checked_add(fraction)?;
        (price <= MAX).then_some(Self(price))
    }

    /// The price of one call in nano-dollars, rounded half up.
    pub fn nano_dollars(self) -> Option<i64> {
        nano_dollars(self.0 * MILLION)
    }

    /// The cost of this many tokens, in the unit that [`nano_dollars`] converts.
    pub(super) fn times(self, tokens: i64) -> i128 {
        self.0 * i128::from(tokens.max(0))
    }
}

/// Converts a sum of `times` results to nano-dollars, rounded half up. `None` if it exceeds the column's range.
pub(super) fn nano_dollars(sum: i128) -> Option<i64> {
    // The sum is in 10^-18 dollars (10^-12 dollars per million tokens), so a nano-dollar is 10^9 units.
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
