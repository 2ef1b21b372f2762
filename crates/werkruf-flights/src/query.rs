//! A validated search, as sent to a provider.

use jiff::civil::Date;
use serde::Serialize;

use super::cabin::Cabin;

/// One search. Its JSON is part of the cache key, so it must contain everything that a result depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Query {
    pub origin: String,
    pub destination: String,
    pub out: Days,
    pub back: Option<Days>,
    pub adults: u32,
    pub children: u32,
    pub infants: u32,
    pub cabin: Cabin,
    pub nonstop: bool,
    /// Loyalty programs by their names at Seats.aero; empty means all.
    pub sources: Vec<String>,
    pub currency: String,
}

/// The requested day, and the range of acceptable days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Days {
    pub wanted: Date,
    pub first: Date,
    pub last: Date,
}

impl Days {
    /// The range of `flexibility` days around this day, but not before today.
    pub(crate) fn around(wanted: Date, flexibility: u8, today: Date) -> Self {
        let span = jiff::Span::new().days(i64::from(flexibility));
        let first = wanted.checked_sub(span).unwrap_or(wanted).max(today.min(wanted));
        Self { wanted, first, last: wanted.checked_add(span).unwrap_or(wanted) }
    }
}

impl Query {
    /// The number of seats. Infants need none.
    pub fn seats(&self) -> i64 {
        i64::from(self.adults) + i64::from(self.children)
    }
}
