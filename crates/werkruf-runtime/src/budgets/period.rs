//! Days and months, in UTC.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Unit};
use werkruf_store::BudgetPeriod;

/// When the period that starts on this day ends.
pub fn period_end(period: BudgetPeriod, start: Date) -> Timestamp {
    let span = match period {
        BudgetPeriod::Day => 1.day(),
        BudgetPeriod::Month => 1.month(),
    };
    start.saturating_add(span).to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |end| end.timestamp())
}

/// A moment as people read it.
pub(crate) fn moment(at: Timestamp) -> String {
    at.round(Unit::Minute).unwrap_or(at).strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn periods_are_days_and_months_in_utc() {
        let now = at("2026-12-31T23:59:59.999Z");
        for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
            assert_eq!(period_end(period, period.start_at(now)), at("2027-01-01T00:00:00Z"));
        }
        assert_eq!(period_end(BudgetPeriod::Month, "2028-02-01".parse().unwrap()), at("2028-03-01T00:00:00Z"));
    }
}
